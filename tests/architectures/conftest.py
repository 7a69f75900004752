"""Fixtures of networks for a suite of three tasks."""

from three_tasks import batch, build, double_precision, suite

__all__ = ["batch", "build", "double_precision", "suite"]
