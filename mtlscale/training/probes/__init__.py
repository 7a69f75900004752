"""What is measured of a network beside its training: steps, gradients, features, affinities."""
