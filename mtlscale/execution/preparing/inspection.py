"""The inspection of a user's file or folder as a data set, before anything is prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.config import UserError

if TYPE_CHECKING:
    from pipelines import SourceReport

__all__ = ["SourceReport", "inspect_source"]


def inspect_source(source: Path, targets: Sequence[str], options: Mapping[str, Any], home: Path) -> SourceReport:
    """Return what a table, or a folder of pictures, is taken as.

    Args:
        source: The file or folder, the URL of one, or `hf:NAME`.
        targets: Target columns, patterns or places, with kinds, as `a,b:regression`; empty: they are guessed.
        options: Options of the pipeline that reads it.
        home: The home folder, for downloads.

    Raises:
        UserError: The source does not exist, or is neither a table nor a folder of pictures.
    """
    from pipelines import fetch_source, is_remote
    from pipelines import inspect_source as inspect

    if is_remote(source):
        source = fetch_source("table", source, True, home / "downloads")
    if not source.exists():
        raise UserError(f"{source} does not exist; name a table (.csv, .tsv, .parquet, .arff) or a folder of pictures")
    return inspect(source, targets, options)
