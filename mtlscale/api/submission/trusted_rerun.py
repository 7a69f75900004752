"""Repetition of runs that need somebody's plugins: in a process of their own, sandboxed where the system allows.

This process never imports the plugins. It prepares data of shipped pipelines, which may need the network, and compares
the record that the other process leaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mtlscale.api.submission import sandbox
from mtlscale.api.submission.validate import Checked
from mtlscale.config import UserError, names
from mtlscale.execution.rehearsal.rerun import data_of
from mtlscale.records import Home, RunRecord
from mtlscale.records.reproduction import Reproduction

OUTCOME = "outcome.json"  # in the sandbox's folder: what the other process leaves
_MOST_BYTES = 64 << 20  # of it
_KEPT_VARIABLES = ("PATH", "LANG", "PYTHONPATH", "LD_LIBRARY_PATH", "MTLSCALE_DATA", "OMP_NUM_THREADS")
_MODULE = "mtlscale.api.submission.sandboxed_rerun"


def check_trusted(checked: Checked, *, trusted: bool) -> None:
    """Raise `UserError`, which lists the plugins with their hashes, unless the user has said to run them."""
    if checked.plugins and not trusted:
        raise UserError(
            f"{checked.folder}: a rerun needs its plugins {checked.plugins}, which run as code; read them, then add "
            "--trust-plugins"
        )


def rerun_with_plugins(
    checked: Checked, record: RunRecord, home: Home, source: Path | None, note: Callable[[str], None]
) -> Reproduction:
    """Repeat a run whose experiment has plugins, by one worker.

    Args:
        checked: The contributed results, without problems.
        record: One of their finished runs.
        home: The home folder, for the prepared data of shipped pipelines.
        source: The raw data.
        note: Called with what the user should know, such as that there is no sandbox here.

    Raises:
        UserError: If the run cannot be repeated.
    """
    assert checked.outline is not None
    dataset = str(record.spec["dataset"]["name"])
    is_shipped = dataset in names("datasets", plugins=False)
    prepared = data_of(record, home, source, download=True).absolute() if is_shipped else None

    with tempfile.TemporaryDirectory(prefix="mtlscale-rerun-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        if prepared is not None:
            link = folder / "home" / "data" / dataset / prepared.name
            link.parent.mkdir(parents=True)
            link.symlink_to(prepared)
        job = {
            "plugins": [str(plugin.path.absolute()) for plugin in checked.outline.plugins],
            "record": record.model_copy(update={"workers": 1}).model_dump(mode="json"),
            "source": None if source is None or is_shipped else str(source.absolute()),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        after = _run(folder, note)
    return Reproduction(record, after)


def _run(folder: Path, note: Callable[[str], None]) -> RunRecord:
    """Run the other process, and return the record that it leaves."""
    environment = {key: value for key, value in os.environ.items() if key in _KEPT_VARIABLES or key.startswith("CUDA_")}
    program_folder = str(Path(sandbox.__file__).parents[3])  # the same mtlscale as here
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (program_folder, environment.get("PYTHONPATH"))))
    places = {"HOME": folder, "TMPDIR": folder / "tmp", "RAY_TMPDIR": folder / "tmp", "MTLSCALE_CACHE": folder / "tmp"}
    environment |= {key: str(place) for key, place in places.items()}

    start = [sys.executable, "-P", sandbox.__file__, str(folder)]
    program = [sys.executable, "-P", "-m", _MODULE]
    done = subprocess.run([*start, *program], env=environment, capture_output=True, text=True, errors="replace")

    if (refused := folder / sandbox.REFUSED).is_file():
        reason = refused.read_text(encoding="utf-8")
        note(f"this system lets no process leave network and disk ({reason}): the plugins ran with your rights")
    outcome = _outcome(folder / OUTCOME)
    if outcome is None:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        last_line = "".join(filter(str.isprintable, lines[-1]))[:300] if lines else "it says nothing"
        raise UserError(f"the rerun ended with exit status {done.returncode}: {last_line}")
    if "error" in outcome:
        raise UserError("".join(filter(str.isprintable, str(outcome["error"])))[:400])
    return RunRecord.model_validate(outcome["record"])


def _outcome(path: Path) -> dict[str, object] | None:
    """Return what the other process has left; None if it is nothing that can be read."""
    try:
        if path.is_symlink() or path.stat().st_size > _MOST_BYTES:
            return None
        outcome = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return outcome if isinstance(outcome, dict) and {"error", "record"} & outcome.keys() else None
