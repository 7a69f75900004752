"""Data sets: one module per pipeline, named as in experiment files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from pipelines._base import Download, Pieces, Pipeline, Prepared, Work
from pipelines._blocks import Engine, TableFunction, Tell

if TYPE_CHECKING:
    from pipelines._write import write_prepared

__all__ = [
    "Download",
    "Engine",
    "Pieces",
    "Pipeline",
    "Prepared",
    "TableFunction",
    "Tell",
    "Work",
    "write_prepared",
]

__getattr__ = lazily(__name__, {"pipelines._write": ["write_prepared"]})
