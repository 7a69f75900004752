"""Balancers that need the Gramian of the task gradients, one file per rule."""
