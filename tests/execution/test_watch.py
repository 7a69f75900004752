"""Workers that hang are found, their thread dumps kept, their runs tried again; logs stay within their bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.api import run
from mtlscale.config import load_experiment
from mtlscale.execution import monitoring
from mtlscale.execution.faults.dumps import ends_if_silent
from mtlscale.execution.planning.status import experiment_counts
from mtlscale.records import Home
from mtlscale.records.events import Closed

PLUGIN = Path(__file__).parents[1] / "plugins"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("always", [False, True])
def test_a_worker_that_hangs_is_replaced(
    always: bool, experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    """Once, and its run is tried again; again and again, and it is a failed run that leaves the others alone."""
    always_text = str(always).lower()
    stuck = f"{{name: stuck, mark: {tmp_path / 'mark'}, always: {always_text}, driver: {os.getpid()}}}"
    path = experiment_file(
        methods=f"[equal, {stuck}]",
        plugins=f"[{PLUGIN / 'uneven.py'}, {PLUGIN / 'stuck.py'}]",
        resources="{timeout_minutes: 0.25, max_failures: 1}",
        tracking="{enabled: false}",
    )
    results = run(load_experiment(path), home=tmp_path / "home")
    outcome = {record.method: record for record in results.records}
    assert outcome["equal"].status == "finished"
    assert outcome["stuck"].status == ("failed" if always else "finished")
    if always:
        assert "its worker died 2 times: no sign of life within 0.25 minutes" in str(outcome["stuck"].error)
    lines = [json.loads(line) for line in (tmp_path / "home" / "logs" / "small.jsonl").read_text().splitlines()]
    hung = [line for line in lines if line["event"] == "worker hangs"]
    assert len(hung) == (2 if always else 1)
    assert all("stuck.py" in line["dump"] and "in __call__" in line["dump"] for line in hung)
    assert {line["run_id"] for line in hung} == {outcome["stuck"].run_id}
    assert [line["event"] for line in lines].count("run ended") == 2
    (standing,) = experiment_counts(Home(tmp_path / "home")).values()
    assert (standing.total, standing.finished, standing.failed, standing.left) == (2, 1 + (not always), int(always), 0)


def test_a_process_that_takes_too_long_ends_itself_and_leaves_its_thread_dump(tmp_path: Path) -> None:
    """Even while it is stuck in C code; what ends in time, or fails, leaves no file."""
    dump = tmp_path / "new" / "dump.txt"
    with ends_if_silent(5, dump):
        pass
    with pytest.raises(KeyError), ends_if_silent(5, dump):
        raise KeyError
    assert not list(dump.parent.iterdir())

    program = (
        "import re, sys; from pathlib import Path; from mtlscale.execution.faults.dumps import ends_if_silent\n"
        "with ends_if_silent(0.01, Path(sys.argv[1])): re.match('(a|aa)+$', 'a' * 50 + 'b')"
    )
    for times in (1, 2):
        done = subprocess.run([sys.executable, "-c", program, dump], timeout=200)
        assert done.returncode == 1 and dump.read_text().count("Timeout (") == times
    assert "match" in dump.read_text()


def test_the_log_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "LOG_BYTES", 2000)
    sink = monitoring.Log("small", Home(tmp_path))
    for number in range(500):
        monitoring.log.warning("worker lost", extra={"run_id": f"{number:04d}", "error": "x" * 50})
    sink.take(Closed("FINISHED"))
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == [
        "small.jsonl",
        *(f"small.jsonl.{n}" for n in range(1, monitoring.LOG_FILES + 1)),
    ]
    assert sum(file.stat().st_size for file in files) <= 2000 * (monitoring.LOG_FILES + 1)
    last = json.loads((tmp_path / "logs" / "small.jsonl").read_text().splitlines()[-1])
    assert last["run_id"] == "0499" and last["experiment"] == "small" and last["level"] == "WARNING"
    monitoring.log.warning("after the end")  # goes nowhere
    assert "after the end" not in (tmp_path / "logs" / "small.jsonl").read_text()
