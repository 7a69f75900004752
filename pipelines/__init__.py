"""Data sets: one module per pipeline, named as in experiment files."""

from pipelines._base import Pipeline, Prepared, Work

__all__ = ["Pipeline", "Prepared", "Work"]
