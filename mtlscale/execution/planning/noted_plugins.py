"""Search for the plugins that a run was made with, by the paths that its experiments noted at their start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtlscale.config import PARTS
from mtlscale.config.registry.source_code import bytes_hash, code_hash
from mtlscale.execution.planning.status import read_plan, read_plugins
from mtlscale.records import FoundRun, Home


def noted_plugins(home: Home, run: FoundRun) -> list[Path]:
    """Return the plugin files of the run's experiments whose code is still what the run was made with.

    A file counts where its hash stands in the run's spec. A spec has no hash of pipelines and metrics: where the
    experiment was last started with this very run, the file counts if its hash is the one noted then.
    """
    if run.record is None:
        return []

    hashes = _hashes(run.record.spec)
    files: list[Path] = []
    for experiment in dict.fromkeys(name.removesuffix(" (trial)") for name in run.experiments):
        planned = any(entry.run_id == run.run_id for entry in read_plan(home, experiment))
        for path, noted in read_plugins(home, experiment).items():
            current_hashes = _now(path)
            if current_hashes & hashes or (planned and noted in current_hashes):
                files.append(path)
    return list(dict.fromkeys(files))


def _hashes(spec: Mapping[str, Any]) -> set[str]:
    """Return the hashes of the plugins that a spec's components come from."""
    entries = (spec.get(part.removeprefix("model.")) for part in PARTS)
    return {entry["plugin"] for entry in entries if entry and "plugin" in entry}


def _now(path: Path) -> set[str]:
    """Return the hashes of a file's code, as this and as earlier versions compute them; none if it is no Python."""
    try:
        source = path.read_bytes()
        return {code_hash(source), bytes_hash(source)}
    except (OSError, SyntaxError, ValueError):
        return set()
