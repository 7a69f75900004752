"""Where MLflow shows a run, read off its database: starting MLflow's client takes seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_QUERY = """
SELECT runs.experiment_id, runs.run_uuid FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE tags.key = 'mtlscale.run_id' AND tags.value = ? AND runs.lifecycle_stage = 'active'
ORDER BY runs.start_time DESC LIMIT 1
"""


def link(uri: str, run_id: str) -> str | None:
    """The end of the run's address in MLflow's pages, `#/experiments/…`; None where the database is none of SQLite, or
    does not know the run."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute(_QUERY, (run_id,)).fetchone()
    except sqlite3.Error:  # of a version with other tables, or being written
        return None
    return None if found is None else f"#/experiments/{found[0]}/runs/{found[1]}"
