"""Pipelines that prepare data sets: one module each, named as in experiment files; `__all__` is for other packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from pipelines._engine.blocks import Engine, TableFunction, Tell
from pipelines.contract import ComputedRows, Download, Pipeline, PrepareContext, Prepared, ShardedTable

if TYPE_CHECKING:
    from pipelines._engine.ray_errors import in_one_line
    from pipelines._sources.remote import fetch_source, is_remote
    from pipelines._steps.features import Vectors, vector_tables
    from pipelines._steps.suite import check_prepared
    from pipelines._writing.write import write_prepared
    from pipelines.table_inspection import ColumnReport, SourceReport, inspect_source

__all__ = [
    "ColumnReport",
    "ComputedRows",
    "Download",
    "Engine",
    "Pipeline",
    "PrepareContext",
    "Prepared",
    "ShardedTable",
    "SourceReport",
    "TableFunction",
    "Tell",
    "Vectors",
    "check_prepared",
    "fetch_source",
    "in_one_line",
    "inspect_source",
    "is_remote",
    "vector_tables",
    "write_prepared",
]

__getattr__ = lazily(__name__)
