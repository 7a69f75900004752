"""Gradients of a step from its losses: update strategies, Gramians, reductions over workers."""
