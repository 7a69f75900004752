"""Searches for cells and heads: supernets, loss sources, controller."""
