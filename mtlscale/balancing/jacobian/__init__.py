"""Balancers that need the task gradients themselves, one file per rule."""
