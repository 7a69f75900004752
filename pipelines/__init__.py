"""Data sets: one module per pipeline, named as in experiment files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from pipelines._base import Download, Part, Pieces, Pipeline, Prepared, Work
from pipelines._blocks import Engine, TableFunction, Tell

if TYPE_CHECKING:
    from pipelines._sources import fetch_source, is_remote
    from pipelines._suite import check_prepared
    from pipelines._write import write_prepared

__all__ = [
    "Download",
    "Engine",
    "Part",
    "Pieces",
    "Pipeline",
    "Prepared",
    "TableFunction",
    "Tell",
    "Work",
    "check_prepared",
    "fetch_source",
    "is_remote",
    "write_prepared",
]

__getattr__ = lazily(
    __name__,
    {
        "pipelines._write": ["write_prepared"],
        "pipelines._sources": ["fetch_source", "is_remote"],
        "pipelines._suite": ["check_prepared"],
    },
)
