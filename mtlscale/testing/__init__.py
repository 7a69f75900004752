"""Checks of components of one's own: what shipped ones keep, as functions that any test runner may call."""

from mtlscale.testing.balancers import Bound, Check, balancer_checks

__all__ = ["Bound", "Check", "balancer_checks"]
