"""The program that repeats a run with somebody's plugins; `trusted_rerun` starts it in a sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mtlscale.api.submission.trusted_rerun import OUTCOME
from mtlscale.config import UserError, load_plugin
from mtlscale.execution.rehearsal.rerun import rerun
from mtlscale.records import Home, RunRecord


def main() -> None:
    """Repeat the run that `job.json` in the working folder describes, and leave its record or error."""
    job = json.loads(Path("job.json").read_bytes())
    try:
        outcome: dict[str, Any] = {"record": _repeated(job).model_dump(mode="json")}
    except UserError as error:
        outcome = {"error": str(error)}
    Path(OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")


def _repeated(job: dict[str, Any]) -> RunRecord:
    for plugin in job["plugins"]:
        load_plugin(Path(plugin))
    record = RunRecord.model_validate(job["record"])
    source = None if job["source"] is None else Path(job["source"])
    comparison, _ = rerun(record, Home(Path("home").absolute()), source=source, download=False)
    return comparison.after


if __name__ == "__main__":
    main()
