"""Every shipped experiment can be dry-run: on any machine, without its data, in seconds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from command import mtlscale

from mtlscale.cli.commands.runs import is_large
from mtlscale.config import load_experiment

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "experiments").glob("*.yaml"))
SECONDS = 10.0  # of this process, however busy the machine is
SLOWEST = 5


@pytest.mark.slow
def test_every_shipped_file_is_planned_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Print the seconds of the slowest; `MTLSCALE_DATA` is used where it is set."""
    seconds: dict[str, float] = {}
    for name in SHIPPED:
        began = time.process_time()
        done = mtlscale("run", name, "--dry-run", "--json", "--home", tmp_path / "home")
        seconds[name] = time.process_time() - began
        assert done.code == 0, (name, done)

        plan = json.loads(done.stdout)
        experiment = load_experiment(name)
        assert {row["method"] for row in plan.get("runs", plan.get("searches"))}, name
        assert ("GPU" in plan["lacking"]) or not experiment.resources.gpus_per_worker or not plan["lacking"]
        assert not plan["estimates"] or all(row["seconds"] is None for row in plan["estimates"]), "nothing is tried"

    slowest = sorted(seconds.items(), key=lambda entry: -entry[1])[:SLOWEST]
    with capsys.disabled():
        print(f"\n{len(seconds)} dry runs, {sum(seconds.values()):.0f} s; slowest: {slowest}")
    for name, took in slowest:
        assert took < SECONDS or is_large(load_experiment(name)), f"{name} is silent for {took:.0f} s"
    assert not (tmp_path / "home").exists()
