"""One file, its own runs: whatever happened in a home, `leaderboard FILE` shows the runs of this file and no others."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import mtlscale, refused
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtlscale.api import run, sweep
from mtlscale.api.sources import sources_of
from mtlscale.cli.commands.live_page import Watched
from mtlscale.cli.options import only
from mtlscale.config import Experiment, Run, UserError, load_experiment
from mtlscale.execution.planning.check import plan_runs
from mtlscale.execution.planning.plan import Plan
from mtlscale.execution.planning.status import PLAN, write_plan
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.rehearsal.dry_run import plan
from mtlscale.execution.tuning.sweep import SweepPlan, plan_sweep, winners
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Home, Ledger, RunRecord, Wanted, write_atomically
from mtlscale.report.results import Results
from mtlscale.report.sweeps.sweeps import Sweep

LR = {"training.lr": {"low": 1e-3, "high": 1e-1, "scale": "log"}}
TIMES = itertools.count()  # each record ends later than those before


@pytest.fixture(autouse=True)
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for reported in (Results, Sweep):
        monkeypatch.setattr(reported, "write_report", lambda results: {})  # seconds of charts


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Home]:
    """A home beside those of the tests, which says what a file's data are without touching theirs."""
    with tempfile.TemporaryDirectory() as folder:
        yield Home(Path(folder))


@dataclass
class Files:
    """Two experiment files with a table each, and a home that they share."""

    folder: Path
    content: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for letter, version in (("a", 0), ("b", 1)):
            self.edit_data(letter, version)
            self.content[letter] = {
                "name": "same",
                "datasets": [
                    {
                        "name": "table",
                        "label": "t",
                        "source": f"{letter}.csv",
                        "options": {"targets": {"y": "regression", "z": "regression"}},
                    }
                ],
                "methods": ["equal", "stl"],
                "floors": ["constant"],
                "seeds": [0],
                "model": {"encoder": {"name": "mlp", "hidden": [2]}},
                "training": {"epochs": 1, "batch_size": 8, "lr": 0.01},
                "tracking": {"enabled": False},
            }
            self.edit(letter)

    @property
    def home(self) -> Home:
        homes = sorted(self.folder.glob("home*"))
        return Home(homes[0] if homes else self.folder / "home")

    def path(self, letter: str) -> Path:
        return self.folder / f"{letter}.yaml"

    def edit(self, letter: str, **keys: Any) -> None:
        self.content[letter].update(keys)
        self.path(letter).write_text(yaml.safe_dump(self.content[letter]))

    def edit_data(self, letter: str, version: int) -> None:
        """Versions 0 to 2 of a table; the same version makes the same file."""
        rows = [f"{i},{(i * 7 + version) % 11},{i % 5 + version},{(i * 3) % 7 - version}" for i in range(24)]
        (self.folder / f"{letter}.csv").write_text("\n".join(["u,v,y,z", *rows, ""]))


def ended(run: Run) -> RunRecord:
    """What a run leaves, but for the training."""
    score = int(run.run_id, 16) % 97
    metrics = {split: {"y": {"rmse": float(score), "loss": 1.0}} for split in ("val", "test")}
    time = next(TIMES)
    return failed(run, "").model_copy(
        update={
            "status": "finished",
            "error": None,
            "metrics": metrics,
            "higher_is_better": {"rmse": False},
            "main_metrics": {"y": "rmse"},
            "finished": f"2026-01-01T00:{time // 60 % 60:02}:{time % 60:02}",
        }
    )


def trials_left(experiment: Experiment, home: Home) -> list[Run]:
    the_plan = plan(experiment, home)
    return the_plan.plan.todo if isinstance(the_plan, SweepPlan) else []


def runs_left(experiment: Experiment, home: Home) -> list[Run]:
    """The runs that `mtlscale run` would train now, after the trials of its search, which end at once."""
    leave(trials_left(experiment, home), home)
    data = prepare_data(experiment, home, None, False)
    chosen = {} if experiment.search is None else winners(sweep(experiment, home=home).trials, None)
    return plan_runs(experiment, experiment.runs(data.fingerprints, chosen), home, data).todo


def leave(runs: list[Run], home: Home) -> None:
    """Write the records of runs into their folders, as those who train them do."""
    for one in runs:
        write_atomically(home.run(one.run_id) / "record.json", ended(one).model_dump_json().encode())


def do(files: Files, action: str, letter: str, value: int) -> None:
    """Take a step: `value` chooses among the few that the action has."""
    home = files.home
    if action == "run":
        full = load_experiment(files.path(letter))
        part = full if value == 0 else only(full, [["equal"], ["stl", "constant"]][value - 1])
        leave(runs_left(part, home), home)
        run(part, home=home, whole=None if part is full else full)
    elif action == "fail":
        do(files, "run", letter, 1)  # has started, that is
        for first in runs_left(load_experiment(files.path(letter)), home)[:1]:
            Ledger(home.ledger(first.experiment)).append(failed(first, "no luck"))
    elif action == "try":
        leave(trials_left(load_experiment(files.path(letter)), home)[: value + 1], home)
    elif action == "data":
        files.edit_data(letter, value)
    elif action == "name":
        files.edit(letter, name=["same", "other", "same"][value])
    elif action == "lr":
        files.edit(letter, training=files.content[letter]["training"] | {"lr": [0.01, 0.02, 0.03][value]})
    elif action == "seeds":
        files.edit(letter, seeds=[[0], [0, 1], [1]][value])
    elif action == "search":
        files.edit(letter, search=[None, {"budget": 2, "space": LR}, {"budget": 3, "space": LR}][value])
    elif action == "metrics":
        (dataset,) = files.content[letter]["datasets"]
        files.edit(letter, datasets=[dataset | {"metrics": [["rmse"], ["rmse", "mae"], ["mae"]][value]}])
    elif action == "forget":
        shutil.rmtree(home.root / "data", ignore_errors=True)
    elif action == "move" and home.root.exists():
        home.root.rename(files.folder / f"home{next(TIMES)}")


def shown(files: Files, letter: str) -> list[str]:
    """Run ids behind the rows of `leaderboard FILE`."""
    try:
        (source,) = sources_of([files.path(letter)], [files.home])
    except UserError as error:
        assert str(error).startswith("no runs of "), error
        return []
    return [record.run_id for record in source.records]


def own(files: Files, letter: str, elsewhere: Home) -> list[str]:
    """Ids of the runs that the file has now, of those that the home has a record of."""
    experiment = load_experiment(files.path(letter))
    data = prepare_data(experiment, elsewhere, None, False)
    chosen = {}
    if experiment.search is not None:
        the_plan = plan_sweep(experiment, files.home, data)
        for record in list(the_plan.plan.board.unlisted()):
            the_plan.plan.board.know(record)
        chosen = winners(the_plan.result(), None)
    listed = Ledger(files.home.ledger(experiment.name)).latest()
    ids = [run.run_id for run in experiment.runs(data.fingerprints, chosen)]
    return [run_id for run_id in ids if run_id in listed or (files.home.run(run_id) / "record.json").exists()]


ACTIONS = ("run", "run", "run", "fail", "data", "name", "lr", "seeds", "search", "try", "metrics", "forget", "move")
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=8)
A, B = ("run", "a", 0), ("run", "b", 0)


@settings(max_examples=10, derandomize=True)  # a larger number, each time of others, looks further
@given(STEPS)
@example([A, B])
@example([A, B, ("forget", "a", 0)])
@example([A, ("data", "a", 2), ("forget", "a", 0), B])
@example([A, ("data", "a", 2), A, ("data", "a", 0)])
@example([("run", "a", 1), B, ("run", "a", 2), ("fail", "a", 0), ("move", "a", 0)])
@example([("search", "a", 1), ("search", "b", 1), A, B, ("search", "a", 2), A, ("search", "a", 1)])
@example([A, ("lr", "a", 1), ("run", "a", 1), ("lr", "a", 0), ("name", "a", 1)])
@example([A, ("name", "a", 1), ("forget", "a", 0)])
def test_a_file_shows_its_own_runs_and_no_others(elsewhere: Home, steps: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        for step in steps:
            do(files, *step)
            for letter in "ab":
                assert shown(files, letter) == own(files, letter, elsewhere), (step, letter)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def rows_of(files: Files, letter: str) -> str:
    done = mtlscale("leaderboard", files.path(letter), "--home", files.home.root, "--format", "csv")
    assert done.code == 0, done
    return done.stdout


def test_two_files_of_one_name_that_were_run_for_real(files: Files, tmp_path: Path) -> None:
    """By `work`, which trains in this process; `run` finds everything done."""
    alone = {}
    for letter in "ab":
        for command in ("work", "run"):
            done = mtlscale(command, files.path(letter), "--home", files.home.root)
            assert done.code == 0, done
        alone[letter] = rows_of(files, letter)
    assert alone["a"] != alone["b"]
    assert rows_of(files, "a") == alone["a"] and rows_of(files, "b") == alone["b"]

    (source,) = sources_of([files.path("a")], [files.home])
    own_ids = {record.method: record.run_id for record in source.records}
    listed = json.loads(mtlscale("show", files.path("a"), "--home", files.home.root, "--json").stdout)["runs"]
    assert {row["run_id"] for row in listed if row["settings"] == "now"} == set(own_ids.values()) and len(listed) == 6
    of_name = json.loads(mtlscale("show", "same", "--home", files.home.root, "--json").stdout)["runs"]
    assert {row["run_id"] for row in of_name if row["settings"] == "other"} == set(own_ids.values())
    assert (
        mtlscale("export", files.path("a"), tmp_path / "model", "--method", "equal", "--home", files.home.root).code
        == 0
    )
    assert own_ids["equal"] in (tmp_path / "model" / "model.json").read_text()

    watched = Watched(load_experiment(files.path("a")), files.home)
    assert own_ids["equal"] in watched.page() and watched.status_line().startswith("3 of 3 runs done")


def test_without_prepared_data_and_notes_nothing_is_guessed(files: Files, tmp_path: Path, elsewhere: Home) -> None:
    for step in (A, B):
        do(files, *step)
    (files.home.experiment("same") / PLAN).unlink()
    do(files, "forget", "a", 0)
    told = "runs of same on t were made on 2 versions of its data ("
    for command in ("leaderboard", "report", "show"):
        said = refused(command, files.path("a"), "--home", files.home.root)
        assert said.startswith(told) and "`mtlscale run` of the file settles that" in said
    said = refused("contribute", files.path("a"), tmp_path / "ours", "--by", "us", "--home", files.home.root)
    assert said.startswith("same cannot be contributed: ") and told in said

    do(files, *A)
    assert shown(files, "a") == own(files, "a", elsewhere) and len(shown(files, "a")) == 3


@pytest.mark.parametrize("source", [True, False])
def test_records_of_one_version_are_shown_where_the_prepared_data_are_gone(
    files: Files, elsewhere: Home, source: bool
) -> None:
    do(files, *A)
    expected = own(files, "a", elsewhere)
    (files.home.experiment("same") / PLAN).unlink()
    do(files, "forget", "a", 0)
    if not source:
        (files.folder / "a.csv").unlink()
    assert shown(files, "a") == expected and len(expected) == 3


def test_a_data_set_that_is_not_told_apart_leaves_the_others_alone(files: Files) -> None:
    """A note stands in the place of its rows."""
    (dataset,) = files.content["a"]["datasets"]
    for letter in "ab":
        second = dataset | {"label": "u", "options": dataset["options"] | {"test": 0.3}}
        files.edit(letter, datasets=[dataset | {"source": f"{letter}.csv"}, second | {"source": "a.csv"}])
        do(files, "run", letter, 0)
    (files.home.experiment("same") / PLAN).unlink()
    do(files, "forget", "a", 0)
    (source,) = sources_of([files.path("a")], [files.home])
    assert {record.dataset for record in source.records} == {"u"}
    assert source.notes["t"][0].startswith("runs of same on t were made on 2 versions of its data (")


def test_a_file_without_a_source_is_told_to_name_it(files: Files) -> None:
    """Two sources by `--source`: which of them the file means, it does not say."""
    (dataset,) = files.content["a"]["datasets"]
    files.edit("a", datasets=[{key: value for key, value in dataset.items() if key != "source"}])
    experiment = load_experiment(files.path("a"))
    for letter in "ab":
        source = files.folder / f"{letter}.csv"
        the_plan = plan(experiment, files.home, source=source)
        assert isinstance(the_plan, Plan)
        leave(the_plan.todo, files.home)
        run(experiment, home=files.home, source=source)
        if letter == "a":  # the only prepared data are the file's
            expected = [one.run_id for one in the_plan.board.wanted]
            assert shown(files, "a") == expected
    said = refused("leaderboard", files.path("a"), "--home", files.home.root)
    assert said.startswith("runs of same on t were made on 2 versions") and said.endswith("its `source` in the file")


def test_a_home_says_that_no_run_of_the_last_start_has_ended(files: Files) -> None:
    do(files, *A)
    entries = [Wanted("another", "t", "equal", 0)]
    write_plan(files.home, "same", entries)
    (source,) = sources_of([files.home.root])
    assert len(source.records) == 3 and "of which no run has ended yet" in source.notes["t"][0]
    listed = json.loads(mtlscale("show", "same", "--home", files.home.root, "--json").stdout)["runs"]
    assert {row["settings"] for row in listed} == {"other"}
