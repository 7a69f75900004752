"""What a run says as it goes: a line for each event, nothing but the result, or whether it works at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import EVENTS, mtlscale

from mtlscale.cli.output.json_events import JsonEvents, plain
from mtlscale.cli.output.progress import Errors
from mtlscale.config import Experiment, Run
from mtlscale.data import PreparedData
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.records.events import EpochEnded, Noted, RunBegun, RunEnded
from mtlscale.training import train

BROKEN = '''
import torch

from mtlscale.balancing import Balancer

class Broken(Balancer):
    """Works once."""
    name = "broken"
    def init(self, tasks, *, seed=0, batch=()):
        return {"steps": torch.zeros(())}
    def __call__(self, losses, gramian, state):
        if state["steps"] >= 1:
            raise ValueError("no luck")
        return losses.new_ones(losses.shape), {"steps": state["steps"] + 1}
'''


def events(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert set(one) - {"event", "time"} == EVENTS[one["event"]], one
    return found


@pytest.mark.slow  # several runs through Ray
@pytest.mark.ray
def test_a_run_in_lines_in_silence_and_in_part(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    home, path = Home(tmp_path / "home"), experiment_file(tracking="{enabled: false}")
    first = mtlscale("run", path, "--home", home.root, "--only", "mgda", "--only", "equal", "--json")
    assert first.code == 0, first
    told = events(first.stdout)
    assert [one["event"] for one in told[:2]] == ["prepared", "planned"] and told[-1]["event"] == "done"
    assert told[1]["runs"] == 2 and told[-1]["failed"] == 0
    for method in ("mgda", "equal"):
        own = [one for one in told if one.get("method") == method]
        assert [one["event"] for one in own] == ["started", *["epoch"] * 3, "finished"]
        assert own[-1]["metrics"]["test"]["a"]["accuracy"] > 0 and own[1]["of"] == 3
    assert {record.method for record in Ledger(home.ledger("small"))} == {"mgda", "equal"}
    standing = mtlscale("status", "--home", home.root).stdout
    assert "3" in standing.split() and "1" in standing.split()  # the row that was left out is still to be done
    quiet = mtlscale("run", path, "--home", home.root, "--only", "stl", "--quiet")
    assert quiet.code == 0 and not quiet.stderr
    assert "runs," not in quiet.stdout and "a time" not in quiet.stdout and "leaderboard.html" in quiet.stdout
    assert all(method in quiet.stdout for method in ("stl", "mgda", "equal"))  # of what there is
    board = (home.experiment("small") / "leaderboard.md").read_text()
    assert all(method in board for method in ("stl", "mgda", "equal"))
    assert "3 runs" in mtlscale("run", path, "--home", home.root).stdout

    broken, before = tmp_path / "broken.py", sorted(home.root.rglob("*"))
    broken.write_text(BROKEN)
    plugins = f"[{Path(__file__).parents[1] / 'plugins' / 'uneven.py'}, {broken}]"
    both = experiment_file(name="fast", plugins=plugins, methods="[equal, broken]", training="{epochs: 500}")
    fast = mtlscale("run", both, "--home", home.root, "--fast")
    assert fast.code == 1 and "1 of 2 work" in fast.stdout, fast
    assert "no luck" in fast.stdout and any(line.split()[-1:] == ["ok"] for line in fast.stdout.splitlines())
    assert sorted(home.root.rglob("*")) == before  # nothing of it was kept


def test_numbers_that_json_has_not() -> None:
    assert plain({1: [float("nan"), float("inf"), 1.5, (True, None)], "p": Path("x")}) == {
        "1": [None, None, 1.5, [True, None]],
        "p": "x",
    }


def ended(small: Callable[..., Experiment], uneven: Callable[..., PreparedData]) -> tuple[Run, RunRecord]:
    data = uneven()
    (run,) = small(methods="[equal]", training="{epochs: 1}").runs({"uneven": data.manifest.fingerprint})
    return run, train(run, data)


def test_what_failed_is_told(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], capsys: pytest.CaptureFixture[str]
) -> None:
    run, record = ended(small, uneven)
    lost = record.model_copy(update={"status": "failed", "error": "no luck"})
    lines = JsonEvents()
    told = (RunBegun(run), Noted("", "hear"), EpochEnded(run.run_id, record.epochs[0]), RunEnded(run.run_id, lost))
    for event in told:
        lines.take(event)
    found = events(capsys.readouterr().out)
    assert [one["event"] for one in found] == ["note", "started", "epoch", "failed"] and found[-1]["error"] == "no luck"
    quiet = Errors()
    for event in (*told, RunEnded(run.run_id, record)):
        quiet.take(event)
    out, error = capsys.readouterr()
    assert not out and error == f"uneven · equal · seed 0: failed: no luck (mtlscale show {run.run_id[:8]})\n"


def test_a_shortened_experiment(small: Callable[..., Experiment]) -> None:
    from mtlscale.execution.rehearsal.smoke_test import STEPS, shortened

    whole = small(
        datasets="[{name: uneven, training: {epochs: 9, lr: 0.5}}]",
        methods="[equal, {name: ltb, search_epochs: 7, training: {steps_per_epoch: 80, patience: 3, lr: 0.1}}]",
        model="{encoder: {name: mlp, hidden: [8, 8]}}",
        seeds="[3, 4]",
        search="{budget: 40}",
    )
    short = shortened(whole)
    assert short.seeds == (3,) and short.search is not None and short.search.budget == 2
    assert not short.tracking.enabled and [method.label for method in short.methods] == ["equal", "ltb"]
    for run in short.runs(dict.fromkeys(short.data(), "")):
        assert run.training.steps_per_epoch == STEPS and run.training.patience is None
        assert run.epochs == len(run.parts.phases) and run.training.lr == (0.1 if run.method == "ltb" else 0.5)
    assert whole.training.epochs == 3 and len(whole.seeds) == 2
