"""Rows that an experiment plans stay on its leaderboard without runs, and two experiments are never one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
from command import mtlscale, refused
from listening import Listening, board_of

from mtlscale.api.mlflow_rows import rows_of
from mtlscale.api.sources import load_records
from mtlscale.config import Experiment, Run, UserError, load_experiment
from mtlscale.execution.finding.own_board import note_own_runs
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.planning.status import read_plan, write_plan
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.records.board import Wanted
from mtlscale.report import Leaderboard, Results
from mtlscale.report.stats.statistics import holm
from mtlscale.report.tables.takeaway import takeaway

UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"
RULE = """\
from mtlscale.balancing import Balancer

class Own(Balancer):
    name = "own_rule"
    needs = "losses"
    def init(self, tasks): return {{}}
    def __call__(self, losses, gramian, state): return losses.new_ones(losses.shape) * {factor}, state
"""
SEEDS = "[0, 1, 2]"
Write = Callable[..., Path]


def ended(run: Run) -> RunRecord:
    """The run's record with a score that depends on its method and seed."""
    score = 50 + 10 * len(run.method) + (run.seed * len(run.method)) % 4
    metrics = {"test": {"a": {"accuracy": float(score)}, "b": {"accuracy": score + 1.5 * run.seed}}}
    return failed(run, "").model_copy(
        update={
            "status": "finished",
            "error": None,
            "metrics": metrics,
            "last": metrics,
            "higher_is_better": {"accuracy": True},
            "main_metrics": dict.fromkeys("ab", "accuracy"),
            "finished": f"2026-01-01T00:00:0{run.seed}",
        }
    )


def start(path: Path, home: Home, methods: Sequence[str] = ()) -> Experiment:
    """Leave what `run` leaves of these methods, or of all."""
    experiment = load_experiment(path)
    runs = list(experiment.runs(dict.fromkeys(experiment.data(), "f00d")))
    for run in runs:
        if not methods or run.method in methods:
            Ledger(home.ledger(experiment.name)).append(ended(run))
    write_plan(home, experiment.name, [Wanted.of(run) for run in runs])
    return experiment


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def table(path: Path | str, home: Home, *options: str) -> pd.DataFrame:
    """What `leaderboard --format csv` has of the experiment."""
    import io

    done = mtlscale("leaderboard", path, "--home", home.root, "--format", "csv", *options)
    assert done.code == 0, done.stderr
    return pd.read_csv(io.StringIO(done.stdout), index_col="method")


def test_a_method_whose_plugin_was_edited_stays_and_is_corrected_for(
    tmp_path: Path, experiment_file: Write, home: Home
) -> None:
    rule = tmp_path / "rule.py"
    rule.write_text(RULE.format(factor=1))
    methods = "[stl, equal, mgda, own_rule, {name: own_rule, label: again}]"
    path = experiment_file(plugins=f"[{UNEVEN}, {rule}]", methods=methods, seeds=SEEDS)
    start(path, home)
    before = table(path, home)
    rule.write_text(RULE.format(factor=2))
    after = table(path, home)
    assert list(after["finished"][["own_rule", "again"]]) == [0, 0] and set(after["planned"]) == {3}
    assert after["p_holm"]["mgda"] >= before["p_holm"]["mgda"] and after["p_t"].count() < before["p_t"].count()
    shown = mtlscale("leaderboard", path, "--home", home.root, "--format", "markdown").stdout
    assert "own_rule: 3 runs of another version of rule.py left out; `mtlscale show small` lists them" in shown.replace(
        "\\", ""
    )
    assert "| 0/3 |" in shown


def test_what_nobody_ran_is_there_too(experiment_file: Write, home: Home) -> None:
    start(experiment_file(seeds=SEEDS), home)
    path = experiment_file(methods="[stl, equal, mgda, cagrad]", seeds="[0, 1, 2, 3]")
    found = table(path, home)
    assert dict(found["finished"]) == {"stl": 3, "equal": 3, "mgda": 3, "cagrad": 0} and set(found["planned"]) == {4}
    assert set(table(path, home, "--seed", "1")["planned"]) == {1}
    experiment = load_experiment(path)
    results = Results(experiment, tuple(load_records(path, home=home.root)), home.experiment("small"))
    assert {row.method for row in rows_of(results)} == {"stl", "equal", "mgda"}  # MLflow has rows of runs alone
    text = results.leaderboard().to_markdown()
    assert "no runs yet of cagrad" in text and "| 3/4 |" in text


def test_a_file_without_runs_says_what_its_runs_were_of(experiment_file: Write, home: Home) -> None:
    path = experiment_file(seeds=SEEDS)
    start(path, home)
    path.write_text(path.read_text().replace("epochs: 3", "epochs: 4"))
    said = refused("leaderboard", path, "--home", home.root)
    assert "no runs of small as its file is now" in said and "9 runs of other settings (training.epochs)" in said


def test_two_experiments_of_one_name_are_never_one_table(experiment_file: Write, home: Home) -> None:
    path = experiment_file(seeds=SEEDS)
    start(path, home)
    other = experiment_file(seeds=SEEDS, methods="[equal, mgda]", model="{encoder: {name: mlp, hidden: [16]}}")
    experiment = start(other, home)
    wanted = {run.run_id for run in experiment.runs({"uneven": "f00d"})}
    assert {record.run_id for record in load_records(home.root)} == wanted
    shown = mtlscale("leaderboard", home.root, "--format", "markdown").stdout
    assert "9 runs of other settings or data left out" in shown and "no Δ and η: no finished run of stl" in shown


def test_rows_of_a_home_that_were_changed_and_not_run_are_planned(experiment_file: Write, home: Home) -> None:
    start(experiment_file(seeds=SEEDS), home)
    start(experiment_file(seeds=SEEDS, training="{epochs: 5}"), home, ["equal"])
    assert dict(table(str(home.root), home)["finished"]) == {"equal": 3, "stl": 0, "mgda": 0}


def test_tests_that_wait_for_runs_are_corrected_for(record: Callable[..., RunRecord]) -> None:
    scores = {"stl": (90, 91, 92), "equal": (85, 86, 88), "mgda": (86, 87.5, 88.5)}
    runs = [record(m, s, {"a": {"accuracy": v}}) for m, of in scores.items() for s, v in enumerate(of)]
    alone = Leaderboard.from_records(runs).tables["digits"].rows
    planned = {"digits": {"cagrad": (0, 1, 2), "famo": (0, 1, 2)}}
    waiting = Leaderboard.from_records(runs, planned=planned).tables["digits"]
    smallest = alone["p_t"].idxmin()
    assert waiting.untested == 2 and waiting.rows["p_holm"][smallest] == pytest.approx(min(1, 4 * alone["p_t"].min()))
    assert alone["p_holm"][smallest] == pytest.approx(2 * alone["p_t"].min())
    assert list(holm([0.01, 0.02], missing=1)) == pytest.approx([0.03, 0.04])


def test_a_baseline_that_is_no_method_is_refused(experiment_file: Write) -> None:
    with pytest.raises(UserError, match="baseline: small has no method 'mdga'; did you mean mgda"):
        load_experiment(experiment_file(baseline="mdga"))
    with pytest.raises(UserError, match="reference: small has no method 'cagrad'; known: stl, equal, mgda"):
        load_experiment(experiment_file(reference="cagrad"))
    assert load_experiment(experiment_file(methods="[mgda]")).baseline == "stl"  # a default need not be a row


def test_a_baseline_is_found_by_what_it_is(experiment_file: Write, home: Home) -> None:
    methods = "[{name: stl, label: single task}, {name: equal, label: all alike}, mgda]"
    path = experiment_file(methods=methods, baseline="stl", seeds=SEEDS)
    experiment = start(path, home)
    found = table(path, home)
    assert (
        found["delta_i"]["single task"] == 0 and found["pairs"].notna().all() and found["verdict"].isna()["all alike"]
    )
    board = Results(experiment, tuple(load_records(path, home=home.root)), home.root).leaderboard().tables["uneven"]
    assert (board.baseline, board.reference) == ("single task", "all alike")
    assert table(path, home, "--baseline", "mgda")["delta_i"]["mgda"] == 0


def test_ids_of_runs_are_where_people_look_for_them(experiment_file: Write, home: Home) -> None:
    path = experiment_file(seeds=SEEDS)
    experiment = start(path, home)
    records = load_records(path, home=home.root)
    board = Results(experiment, tuple(records), home.root)
    for text in (board.leaderboard().to_markdown(), board.leaderboard().to_csv(), board.page()):
        assert all(record.run_id in text for record in records)
    assert table(path, home)["run_ids"]["stl"].split()[2] == f"2:{records[2].run_id}"


def test_the_description_stands_above_the_leaderboard(experiment_file: Write, home: Home) -> None:
    path = experiment_file(seeds=SEEDS, description="Three of a kind.")
    experiment = start(path, home)
    board = Results(experiment, tuple(load_records(path, home=home.root)), home.root)
    assert board.page().index("Three of a kind.") < board.page().index("uneven</h2>")
    assert mtlscale("leaderboard", path, "--home", home.root, "--wide").stdout.startswith("Three of a kind.")
    assert "Three of a kind." not in mtlscale("leaderboard", path, "--home", home.root).stdout


def test_of_the_baseline_it_is_said_that_nothing_beats_it(record: Callable[..., RunRecord]) -> None:
    scores = {"stl": (90, 91, 92), "equal": (85, 86, 88), "mgda": (86, 87.5, 88.5)}
    runs = [record(m, s, {"a": {"accuracy": v}}) for m, of in scores.items() for s, v in enumerate(of)]
    said = takeaway(Leaderboard.from_records(runs).tables["digits"])
    assert "stl is best by Δ (no method beats single-task learning)" in said and "0.00 %" not in said


def test_run_says_that_another_file_of_this_name_was_run_in_this_home(experiment_file: Write, home: Home) -> None:
    listening = Listening()
    first = experiment_file(seeds=SEEDS)
    ours = load_experiment(first)
    start(first, home)
    other = load_experiment(experiment_file(model="{encoder: {name: mlp, hidden: [16]}}"))
    for experiment, expected in ((ours, 0), (other, 1)):
        runs = list(experiment.runs({"uneven": "f00d"}))
        board = board_of(*runs, ledger=home.ledger("small"))
        note_own_runs(experiment, home, Datasets({}, {}), board, Sinks(listening))
        assert len(listening.notes) == expected
        assert {entry.run_id for entry in read_plan(home, "small") or ()} == {run.run_id for run in runs}
    assert (
        listening.notes[0].startswith("small has 9 runs of other settings or data in ")
        and "needs another `name`" in listening.notes[0]
    )
