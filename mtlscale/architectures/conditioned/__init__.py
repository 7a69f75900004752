"""Networks that are given a preference among the tasks: one network for a whole Pareto front."""
