"""The registry of components: balancers, architectures, encoders, objectives, data sets and metrics by name."""
