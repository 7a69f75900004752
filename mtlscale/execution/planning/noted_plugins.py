"""Search for the plugins that a run was made with, by the paths that its experiments noted at their start."""

from __future__ import annotations

from pathlib import Path

from mtlscale.config import PARTS, UserError
from mtlscale.config.registry.helpers import plugin_hash
from mtlscale.execution.planning.status import read_plan, read_plugins
from mtlscale.records import FoundRun, Home


def noted_plugins(home: Home, run: FoundRun) -> list[Path]:
    """Return the plugin files of the run's experiments whose code is still what the run was made with.

    A file counts where its hash stands in the run's spec. A spec has no hash of pipelines and metrics: where the
    experiment was last started with this very run, the file counts if its hash is the one noted then.
    """
    if run.record is None:
        return []

    # Of the plugins that the components come from.
    components = (run.record.spec.get(part.removeprefix("model.")) for part in PARTS)
    hashes = {entry["plugin"] for entry in components if entry and "plugin" in entry}
    files: list[Path] = []
    for experiment in dict.fromkeys(name.removesuffix(" (trial)") for name in run.experiments):
        planned = any(entry.run_id == run.run_id for entry in read_plan(home, experiment) or ())
        for path, noted in read_plugins(home, experiment).items():
            current_hash = _current_hash(path)
            if current_hash in hashes or (planned and noted == current_hash):
                files.append(path)
    return list(dict.fromkeys(files))


def _current_hash(path: Path) -> str:
    """Return the hash of a file's code; "" if it is no Python."""
    try:
        return plugin_hash(path, path.read_bytes())
    except (OSError, SyntaxError, ValueError, UserError):
        return ""
