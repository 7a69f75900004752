"""Whole searches: the same budget for all, nothing run twice, the same end whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from listening import Listening
from processes import run_workers, wait_until_gone

from mtlscale.api import run, sweep
from mtlscale.config import Experiment, load_experiment
from mtlscale.execution import Interrupted
from mtlscale.records import Home, Ledger
from mtlscale.records.events import Event, RunEnded
from mtlscale.report.sweeps.sweeps import Sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # minutes on two cores: python -m pytest -m slow

File = Callable[..., Path]
SEARCH = (
    "{{budget: 6, {more}space: {{training.lr: {{low: 1e-4, high: 1e-1, scale: log}}, model.dropout: [0, 0.3]}}, "
    "methods: {{mgda: {{}}}}}}"
)


def ranking(found: Sweep) -> dict[tuple[str, str], list[tuple[str, float]]]:
    frame = found.to_pandas()
    return {
        key: [(r.run_id, r.score) for r in group.sort_values(["score", "trial"]).itertuples()]
        for key, group in frame.groupby(["dataset", "method"])
    }


def test_a_search_then_its_winners_on_fresh_seeds(experiment_file: File, tmp_path: Path, local_ray: None) -> None:
    import mlflow

    experiment = load_experiment(
        experiment_file(methods="[stl, equal, mgda]", seeds="[0, 1]", search=SEARCH.format(more=""))
    )
    home, watching = tmp_path / "home", Listening()
    results = run(experiment, home=home, sinks=[watching])
    assert len(watching.trials) == len(set(watching.trials)) == 18
    found = results.search
    assert found is not None
    [finished] = [column.cells for column in found.sheet().columns if column.header == "trials"]
    assert [cell.text for cell in finished] == ["6/6"] * 3
    assert [r.status for r in results.records] == ["finished"] * 6
    for record in results.records:
        winner = found.best(record.dataset, record.method)
        assert winner is not None and record.trial == winner.trial and record.seed in (0, 1)
        assert record.spec["training"]["lr"] == winner.trial["training.lr"]
        scores = found.to_pandas().query("method == @record.method")["score"]
        assert found.to_pandas().set_index("run_id")["score"][winner.run_id] == scores.max()
    assert len(list(Ledger(Home(home).trials("small")))) == 18 and len(list(Ledger(Home(home).ledger("small")))) == 6
    again = Listening()
    assert [r.run_id for r in run(experiment, home=home, sinks=[again]).records] == [r.run_id for r in results.records]
    assert again.trials == []

    client = mlflow.MlflowClient(tracking_uri=Home(home).tracking_uri)
    written = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    kinds = [r.data.tags["mtlscale.kind"] for r in written]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "experiment": 1,
        "row": 3,
        "trial": 18,
        "run": 6,
        "search": 4,
    }
    names = {r.info.run_id: r.info.run_name for r in written}
    above = {r.info.run_id: names.get(r.data.tags.get("mlflow.parentRunId", "")) for r in written}
    for one in written:
        method, kind = one.data.tags.get("mtlscale.method"), one.data.tags["mtlscale.kind"]
        searched = kind == "search" and method is not None
        expected = "search" if searched else f"{method} · uneven" if kind in ("trial", "run") else None
        assert above[one.info.run_id] == expected
    assert {r.info.status for r in written} == {"FINISHED"}


def test_batched_and_single_runs_find_the_same(experiment_file: File, tmp_path: Path, local_ray: None) -> None:
    found = {}
    for executor in ("tune", "batched"):
        path = experiment_file(methods="[uncertainty, mgda]", search=SEARCH.format(more=f"executor: {executor}, "))
        found[executor] = sweep(load_experiment(path), home=tmp_path / executor)
    single, batched = (ranking(found[executor]) for executor in ("tune", "batched"))
    for key, trials in single.items():
        assert [run_id for run_id, _ in trials] == [run_id for run_id, _ in batched[key]]
        assert [score for _, score in trials] == pytest.approx([score for _, score in batched[key]], rel=1e-9)


def test_a_method_without_a_finished_trial_fails_and_the_others_go_on(
    experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    search = "{budget: 2, space: {training.lr: [0.01, 0.1]}, methods: {mgda: {}}}"
    folder = Path(__file__).parents[1] / "plugins"
    plugins = f"[{folder / 'uneven.py'}, {folder / 'tired.py'}]"
    path = experiment_file(methods="[tired, mgda]", search=search, seeds="[5]", plugins=plugins)
    results = run(load_experiment(path), home=tmp_path / "home")
    assert [(r.method, r.status) for r in results.records] == [("tired", "failed"), ("mgda", "finished")]
    assert "none of its 2 trials finished" in str(results.records[0].error)


@pytest.mark.parametrize("executor", ["tune", "batched"])
def test_kill_9_in_the_middle_repeats_no_finished_trial(executor: str, experiment_file: File, tmp_path: Path) -> None:
    path = experiment_file(
        methods="[equal, mgda]",
        training="{epochs: 60, batch_size: 4, dtype: float64}",
        tracking="{enabled: false}",
        search=SEARCH.format(more=f"executor: {executor}, "),
    )
    home = tmp_path / "home"
    command = [sys.executable, "-m", "mtlscale.cli", "sweep", str(path), "--home", str(home)]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    ledger = Ledger(Home(home).trials("small"))
    deadline = time.monotonic() + 200
    while not ledger.latest():
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    workers = run_workers(psutil.Process(driver.pid))
    assert workers
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until_gone(workers)  # two sweeps at once would write the same files
    before = {run_id: record.finished for run_id, record in ledger.latest().items()}
    assert 0 < len(before) < 12

    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = ledger.latest()
    assert len(after) == 12
    assert {run_id: after[run_id].finished for run_id in before} == before
    calm = sweep(load_experiment(path), home=tmp_path / "calm")
    resumed = sweep(load_experiment(path), home=home)
    if executor == "tune":
        assert ranking(resumed) == ranking(calm)
    else:  # other batches add up in another order
        for key, trials in ranking(calm).items():
            assert dict(ranking(resumed)[key]) == pytest.approx(dict(trials), rel=1e-9)
    assert resumed.winners() == calm.winners()


@pytest.mark.parametrize(
    ("settings", "methods"),
    [
        ("algorithm: optuna, ", "[stl, mgda]"),
        ("scheduler: asha, grace: 1, ", "[mgda]"),
        ("scheduler: median, grace: 1, ", "[mgda]"),
        ("scheduler: pbt, interval: 2, ", "[mgda]"),
    ],
)
def test_searches_that_adapt_to_results_end_with_a_record_for_every_trial(
    settings: str, methods: str, experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    training = "{epochs: 6, batch_size: 32, dtype: float64}"
    path = experiment_file(methods=methods, training=training, search=SEARCH.format(more=settings))
    experiment = load_experiment(path)
    found = sweep(experiment, home=tmp_path / "home")
    # Trials of a population that are pushed to the same end of a range end with the same settings, and count once.
    least = 4 if "pbt" in settings else 6
    assert all(least <= len(records) <= 6 for records in found.trials.values())
    assert {record.status for records in found.trials.values() for record in records} == {"finished"}
    home = Home(tmp_path / "home")
    if "pbt" not in settings:  # members of a population keep their epochs elsewhere
        lengths = {len(home.epochs(record.run_id)) for records in found.trials.values() for record in records}
        assert max(lengths) == 6 and (min(lengths) < 6) == ("grace" in settings)
    again = Listening()
    assert sweep(experiment, home=tmp_path / "home", sinks=[again]).winners() == found.winners()
    assert again.trials == []
    assert not list(tmp_path.glob("home/**/tune-*"))


def reserved() -> list[str]:
    """The placement groups that somebody still holds."""
    import ray

    groups = ray.util.placement_group_table().values()
    return [group["placement_group_id"] for group in groups if group["state"] != "REMOVED"]


def test_an_adaptive_search_goes_on_with_what_it_knows(experiment_file: File, tmp_path: Path, local_ray: None) -> None:
    """Stopped in the middle: finished trials stay, the one that had begun is the next, the searcher learns of all."""
    path = experiment_file(methods="[mgda]", search=SEARCH.format(more="algorithm: optuna, "))
    experiment = load_experiment(path)

    def stop(event: Event) -> None:
        if isinstance(event, RunEnded) and len(stopping.trials) == 3:
            raise KeyboardInterrupt

    stopping = Listening(stop)
    with pytest.raises(Interrupted, match="3 of 6 trials are done"):
        sweep(experiment, home=tmp_path / "home", sinks=[stopping])
    ledger = Ledger(Home(tmp_path / "home").trials("small", experiment.search.ledger))  # type: ignore[union-attr]
    before = {run_id: record.finished for run_id, record in ledger.latest().items()}
    assert len(before) == 3
    assert not reserved()  # else the next search here waits for ever
    rest = Listening()
    found = sweep(experiment, home=tmp_path / "home", sinks=[rest])
    assert len(found.trials["uneven", "mgda"]) == 6 and len(rest.trials) == 3
    assert not set(rest.trials) & set(before)
    assert {run_id: ledger.latest()[run_id].finished for run_id in before} == before


def test_trials_of_an_earlier_space_do_not_count(experiment_file: File, tmp_path: Path, local_ray: None) -> None:
    """They stay as records; the budget is spent in the space of today, and the winner lies in it."""

    def searched(space: str) -> Experiment:
        search = f"{{algorithm: optuna, budget: 3, methods: {{mgda: {{}}}}, space: {{training.lr: {space}}}}}"
        return load_experiment(experiment_file(methods="[mgda]", tracking="{enabled: false}", search=search))

    for space, low, high in (
        ("{low: 1e-5, high: 1e-4, scale: log}", 1e-5, 1e-4),
        ("{low: 1e-3, high: 1e-2, scale: log}", 1e-3, 1e-2),
        ("[0.002, 0.02, 0.2]", 0.002, 0.2),
        ("[0.02, 0.03]", 0.02, 0.03),  # two settings are two trials, whatever the budget
    ):
        experiment, watching = searched(space), Listening()
        found = sweep(experiment, home=tmp_path / "home", sinks=[watching])
        rates = [record.trial["training.lr"] for record in found.trials["uneven", "mgda"]]
        assert len(set(rates)) == len(rates) == (2 if space.count(",") == 1 else 3)
        assert all(low <= rate <= high for rate in rates)
        again = Listening()
        sweep(experiment, home=tmp_path / "home", sinks=[again])
        assert again.trials == []
