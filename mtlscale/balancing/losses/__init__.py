"""Balancers that need the task losses alone, one file per rule."""
