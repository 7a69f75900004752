"""From the losses of a step to its gradients: update strategies, Gramians, reductions over workers."""
