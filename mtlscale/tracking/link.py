"""Addresses of runs in MLflow's pages, read from its database: importing MLflow takes two seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mtlscale.tracking.page import route

_QUERY = """
SELECT runs.experiment_id, runs.run_uuid FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE tags.key = 'mtlscale.run_id' AND tags.value = ? AND runs.lifecycle_stage = 'active'
ORDER BY runs.start_time DESC LIMIT 1
"""


def link(uri: str, run_id: str) -> str | None:
    """Return the end of the run's address in MLflow's pages, `#/experiments/…`.

    It is None if the database is not SQLite, or does not know the run.
    """
    ids = _find_run(uri, run_id)
    return None if ids is None else f"#/experiments/{ids[0]}/runs/{ids[1]}"


def methods_link(uri: str, run_id: str) -> str | None:
    """Return the end of the address of the table that compares the methods of the run's experiment."""
    ids = _find_run(uri, run_id)
    return None if ids is None else route(str(ids[0]))


def _find_run(uri: str, run_id: str) -> tuple[int, str] | None:
    """Return MLflow's ids of the run's experiment and of the run, or None."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            ids: tuple[int, str] | None = database.execute(_QUERY, (run_id,)).fetchone()
    except sqlite3.Error:  # of a version with other tables, or being written
        return None
    return ids
