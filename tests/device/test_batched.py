"""A step of many trials asks of a device what the step of one asks: it waits once, for what the balancers are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
CASES = {  # -> how often a step waits
    "batched, side by side/equal": 1,
    "batched, side by side/mgda": 1,
    "batched, side by side/famo": 2,
    "batched, side by side/tomato_ex": 1,
    "batched, side by side/other clip, stl": 1,
    "batched, side by side/other seeds and dropout": 1,
    "batched, side by side/patience": 1,
    "batched, side by side/getmtl, sgd, exponential": 1,
    "batched, in groups/mgda": 1,
    "batched, one after another/cagrad": 1,
    "batched, shared inputs/uncertainty": 1,
}
COPIES = 2  # learning rates, and the factors of the tasks' gradients


def test_a_step_of_many_trials_waits_once_and_copies_no_parameter() -> None:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "device.batched", *CASES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["case"] for result in results] == list(CASES)
    for result in results:
        name = result["case"]
        assert result["placed"] and not any(result["difference"]), (name, result["difference"])
        for number, events in enumerate(result["steps"][1:], 1):  # the first one may bring what stays
            for kind, allowed in (("sync", CASES[name]), ("h2d", COPIES)):
                found = Counter(text for of_kind, text in events if of_kind == kind)
                listing = "\n".join(f"{count} x {text}" for text, count in found.most_common())
                assert found.total() <= allowed, f"{name}: step {number} has {found.total()}:\n{listing}"
