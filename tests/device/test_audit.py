"""What a step asks of a device, found without one: nothing on the wrong side, few waits, few copies, the same numbers.

`fake_device` says what is counted, `audit` what is run: in a process of its own, since the device stays in torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from checkpoints import where_installed
from device.cases import LIKE, audited, usual
from frozen.cases import Case

from mtlscale.config.registry import components
from mtlscale.training.probes.survival import due

TESTS = Path(__file__).parents[1]
# How often a turn of a step may wait for the device: once for the numbers that a balancer is told, and once more for
# those of its query data, or for whether its rows of gradients are finite;
WAITS = {"losses": 1, "gramian": 1, "modules": 1, "jacobian": 2, "validation": 2}
AGAIN = 1  # for the losses of the same batch after the step, where a balancer asks for them (FAMO);
SCALED = 1  # and in fp16 for whether the gradients that one backward pass left are finite.

# For every batch of tokens: its longest sequence, beyond which nothing is computed; which spellings it has.
LONGEST, SPELLINGS = 1, 2
ACTED = 2  # for every batch of an expert that knows no device: there and back
SOLVED = 1  # for the Gramian of a balancer of rows whose weights come from a solver on the host
MEASURED = 2  # for every task along whose gradient affinities are measured

BATCHED = {  # cases of many trials -> how often a step waits
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
BATCHED_COPIES = 2  # learning rates, and the factors of the tasks' gradients

Result = dict[str, Any]


def cases_of_runs() -> list[Any]:
    """Every case of a single run as a parameter, `slow` unless it is of the default suite."""
    by_default = usual()
    return [
        case if case.values[0] in by_default else pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow])
        for case in where_installed(audited())
    ]


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> dict[str, Result]:
    """What the audit finds of every case whose test was asked for."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == Path(__file__)]
    names = sorted({call.params["name"] for call in calls if call is not None and "name" in call.params})
    path = os.pathsep.join(map(str, (TESTS, TESTS / "support", TESTS.parent)))
    done = subprocess.run(
        [sys.executable, "-m", "device.program", *names],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"the audit itself failed:\n{done.stderr[-3000:]}"
    return {result["case"]: result for result in map(json.loads, done.stdout.splitlines())}


@pytest.mark.timeout(900)  # the first waits for all of them
@pytest.mark.parametrize("name", cases_of_runs())
def test_a_step_waits_once_and_copies_no_parameter(name: str, results: dict[str, Result]) -> None:
    result, case = results[name], audited()[name]
    assert "error" not in result, result["error"]
    assert not result["misplaced"], "\n".join(result["misplaced"])
    scaled = SCALED * (result["amp"] == "fp16")
    for step in result["steps"]:
        waits = sum(
            WAITS[needs] + AGAIN * needs_post_step_losses + scaled for needs, needs_post_step_losses in step["turns"]
        )
        waits += MEASURED * step["measured"] + SOLVED * ("m_config" in _parts(case))
        waits += (LONGEST * (case.data == "tags") + SPELLINGS * ("word_char" in _parts(case))) * result["batches"]
        waits += ACTED * ("scripted_expert" in _parts(case)) * result["batches"]
        copies = (2 * result["batches"] + 2) * len(step["turns"])  # an index and its query's (or its tasks' places) a
        for kind, allowed in (("sync", waits), ("h2d", copies)):  # batch; two tables
            found = Counter(text for of_kind, text in step["events"] if of_kind == kind)
            listing = "\n".join(f"{count} x {text}" for text, count in found.most_common())
            where = "step {1} of phase {0}".format(*step["place"])
            assert found.total() <= allowed, f"{where} has {found.total()} instead of {allowed}:\n{listing}"
    assert not result["difference"], f"other numbers than on the host: {result['difference']}"


@pytest.mark.parametrize("kind", ["balancers", "architectures", "encoders", "objectives"])
def test_every_component_is_audited(kind: str) -> None:
    missing = set(components.names(kind, plugins=False)) - {
        name for case in usual() for name in _parts(audited()[case])
    }
    assert set(LIKE.values()) <= set(usual()) and set(LIKE) <= {
        name for case in audited().values() for name in _parts(case)
    }
    assert not missing - set(LIKE), f"no case has {sorted(missing)}"


@pytest.mark.timeout(900)  # as above
@pytest.mark.parametrize("name", BATCHED)
def test_a_step_of_many_trials_waits_once_and_copies_no_parameter(name: str, results: dict[str, Result]) -> None:
    result = results[name]
    assert "error" not in result, result["error"]
    assert result["placed"] and not any(result["difference"]), result["difference"]
    assert len(result["steps"]) > 1
    for number, events in enumerate(result["steps"][1:], 1):  # the first one may bring what stays
        looked_at = int(due(number + 1))  # the loss of equal weights is waited for, too
        for kind, allowed in (("sync", BATCHED[name] + looked_at), ("h2d", BATCHED_COPIES + 3 * looked_at)):
            found = Counter(text for of_kind, text in events if of_kind == kind)
            listing = "\n".join(f"{count} x {text}" for text, count in found.most_common())
            assert found.total() <= allowed, f"step {number} has {found.total()}:\n{listing}"


def _parts(case: Case) -> list[str]:
    values = [case.encoder, *(case.method.get(key) for key in ("balancer", "architecture", "objective")), case.method]
    return [value.get("name", "") if isinstance(value, dict) else value for value in values if value]
