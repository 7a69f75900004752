"""Success in environments against the steps taken there and the seconds spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtlscale.config import Experiment
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Epoch, PhaseCost, RunRecord
from mtlscale.report import write_report
from mtlscale.report.charts.chart import Line
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.report_section import HTML
from mtlscale.report.sections.registry import sections
from mtlscale.report.stats.curves import traced
from mtlscale.rl.report.sample_efficiency import (
    SampleEfficiency,
    cost_table,
    efficiency_studies,
    sample_efficiencies,
    sentences,
    success_lines,
)
from mtlscale.training import train

Make = Callable[..., RunRecord]


def epochs(values: Sequence[tuple[float, float]], seconds: float, every: int = 1, **traces: Any) -> list[Epoch]:
    """Of success on tasks a and b; 1000 environment steps an epoch, half of its seconds simulation, a quarter
    learning."""
    found = []
    for number, (a, b) in enumerate(values, 1):
        told = {
            "environment_steps": 1000.0 * number,
            "simulation_seconds": seconds * number / 2,
            "learning_seconds": seconds * number / 4,
            "temperature": [0.1, 0.2],
            **traces,
        }
        val = {"a": {"success": a, "mse": 1.0}, "b": {"success": b, "mse": 1.0}} if number % every == 0 else {}
        found.append(Epoch(epoch=number, train_loss={"a": 1.0, "b": 1.0}, val=val, seconds=seconds, traces=told))
    return found


@pytest.fixture
def runs(record: Make) -> list[RunRecord]:
    """Two methods, of which one needs twice the seconds and learns less, two seeds; and a floor that tries nothing."""

    def make(method: str, seed: int, of: list[Epoch], **fields: Any) -> RunRecord:
        test = {task: {"success": of[-1].val[task]["success"] if of else 0.0} for task in "ab"}
        more = {"higher_is_better": {"success": True, "mse": False}, "dataset": "metaworld", "steps": 300, **fields}
        return record(method, seed, test, epochs=of, **more)

    return [
        make("sac", 0, epochs([(0, 0), (40, 20), (80, 40)], 10.0), seconds=40.0),
        make("sac", 1, epochs([(20, 0), (60, 40), (100, 100)], 20.0), seconds=80.0),
        make("cagrad", 0, epochs([(0, 0), (10, 0), (20, 0)], 30.0), seconds=100.0),
        make("cagrad", 1, epochs([(0, 0), (30, 0), (40, 0)], 30.0), seconds=100.0),
        make("floor", 0, [], seconds=1.0),
    ]


def only(runs: Sequence[RunRecord]) -> SampleEfficiency:
    [found] = sample_efficiencies(runs)
    return found


def test_over_environment_steps_it_is_the_mean_over_tasks_and_a_band_over_seeds(runs: list[RunRecord]) -> None:
    of = only(runs)
    assert of.tasks == ["a", "b"]
    rows = success_lines(of, "steps")["sac"]
    assert rows["x"].tolist() == [1000.0, 2000.0, 3000.0]
    # Means over a and b: 0, 30, 60 and 10, 50, 100.
    assert rows["low"].tolist() == [0.0, 30.0, 60.0] and rows["high"].tolist() == [10.0, 50.0, 100.0]
    assert rows["value"].tolist() == [5.0, 40.0, 80.0]
    assert success_lines(of, "steps", "b")["sac"]["value"].tolist() == [0.0, 30.0, 70.0]


def test_over_seconds_seeds_are_compared_at_the_same_time(runs: list[RunRecord]) -> None:
    """One is evaluated at 10, 20 and 30 s, the other at 20, 40 and 60 s."""
    rows = success_lines(only(runs), "seconds")["sac"].set_index("x")
    assert rows.index.tolist() == [20.0, 30.0, 40.0, 60.0]  # before 20 s nothing is known of the second
    assert rows.loc[20.0].tolist() == [20.0, 10.0, 30.0]
    assert rows.loc[30.0].tolist() == [45.0, 30.0, 60.0]  # half way from 10 to 50
    assert rows.loc[60.0].tolist() == [80.0, 60.0, 100.0]  # the first stays where it ended


def test_epochs_without_an_evaluation_count_their_steps_and_seconds(record: Make) -> None:
    test = {"a": {"success": 1.0}, "b": {"success": 1.0}}
    run = record("sac", 0, test, epochs=epochs([(0, 0), (10, 10), (0, 0), (30, 30)], 5.0, every=2), seconds=20.0)
    of = only([run])
    assert success_lines(of, "steps")["sac"]["x"].tolist() == [2000.0, 4000.0]
    assert success_lines(of, "seconds")["sac"]["x"].tolist() == [10.0, 20.0]


def test_of_several_phases_the_last_is_drawn(record: Make) -> None:
    test = {"a": {"success": 1.0}, "b": {"success": 1.0}}
    search = [one.model_copy(update={"phase": "search"}) for one in epochs([(90, 90)], 7.0)]
    train = [one.model_copy(update={"phase": "train"}) for one in epochs([(0, 0), (10, 10)], 5.0)]
    before = PhaseCost(name="search", phase_id="f00", epochs=1, steps=100, seconds=8.0)
    of = only([record("conal", 0, test, epochs=search + train, phases=[before], seconds=28.0, steps=300)])
    assert success_lines(of, "seconds")["conal"]["x"].tolist() == [5.0, 10.0]
    assert of.costs.loc["conal"].to_dict() == pytest.approx(
        {"seconds": 20.0, "simulation": 5.0, "learning": 2.5, "steps": 2000.0, "updates": 200.0}
    )


def test_the_table_says_where_the_seconds_go_and_what_they_buy(runs: list[RunRecord]) -> None:
    table = cost_table(only(runs))
    assert table.header[:5] == ("method", "seconds", "simulation, %", "learning, %", "rest, %")
    # sac: 60 s in the mean, 22.5 s of simulation for 3000 steps, 11.25 s for 300 gradient steps.
    assert table.texts[0] == ("sac", "60", "37.5", "18.8", "43.8", "133", "27")
    assert table.texts[1] == ("cagrad", "100", "45.0", "22.5", "32.5", "67", "13")


def test_what_was_not_recorded_is_not_made_up(runs: list[RunRecord]) -> None:
    for run in runs:
        for epoch in run.epochs:
            del epoch.traces["learning_seconds"]
    [row, _] = cost_table(only(runs)).texts
    assert row == ("sac", "60", "37.5", "–", "–", "133", "–")


def test_it_says_where_methods_have_come_to(runs: list[RunRecord]) -> None:
    first, second = sentences(only(runs))
    when = "3,000 environment steps, 60 s of training"
    assert first == f"sac: 80.0 % success on validation after {when}, 60.0 to 100.0 over 2 seeds."
    assert second.startswith("cagrad: 15.0 %") and "90 s of training, 10.0 to 20.0" in second


def test_pictures_have_both_axes_side_by_side_and_a_panel_for_each_task(runs: list[RunRecord]) -> None:
    of = only(runs)
    means, tasks = (study.chart for study in efficiency_studies(of, {}))
    assert [panel.x.title for panel in means.panels] == [
        "environment steps, all tasks",
        "seconds of training, without evaluation",
    ]
    assert [panel.title for panel in tasks.panels] == ["a", "b"]
    for panel in means.panels:
        assert [line.name for line in panel.of(Line)] == ["sac", "cagrad"]
    sac = means.panels[0].of(Line)[0]
    assert list(sac.y) == pytest.approx([5.0, 40.0, 80.0])
    assert dict(zip(sac.x, sac.high - sac.low, strict=True))[3000.0] == pytest.approx(40.0)


def test_a_report_has_both_studies_and_draws_these_numbers_nowhere_else(runs: list[RunRecord], tmp_path: Path) -> None:
    files = write_report(runs, tmp_path, "trying", board=Leaderboard.from_records(runs, "cagrad"))
    for name in ("success_metaworld", "success_metaworld_tasks"):
        assert files[name].stat().st_size > 10_000
    text = files["markdown"].read_text()
    assert "## Success by environment steps and by seconds on metaworld" in text and "### Where the seconds go" in text
    assert "- a: sac 90.0 %, cagrad 30.0 %.\n" in text
    page = files["html"].read_text()
    assert "Success by environment steps and by seconds on metaworld</h2>" in page
    assert 'data-for="figure-1-0"' in page and 'data-for="figure-2-0"' in page
    assert traced(runs) == []


def test_a_learner_by_trying_records_what_is_drawn(small: Callable[..., Experiment], tmp_path: Path) -> None:
    pytest.importorskip("metaworld")
    tasks = "tasks: [reach, drawer-close], demonstrations: 10, horizon: 12, episodes: 1, val_episodes: 1"
    options = yaml.safe_load(f"{{{tasks}}}")
    data = load_prepared(prepare("metaworld", options, None, tmp_path))
    experiment = small(
        plugins="[]",
        datasets=f"[{{name: metaworld, options: {{{tasks}}}}}]",
        methods="[{name: sac, first_episodes: 1, round_episodes: 1, replay_batch: 8}]",
        training="{epochs: 2, steps_per_epoch: 3, lr: 1e-3}",
    )
    run = train(next(experiment.runs({"metaworld": data.manifest.fingerprint})), data)
    of = only([run])
    assert success_lines(of, "steps")["sac"]["x"].tolist() == [24.0, 48.0]  # 12 steps of two tasks an epoch
    costs = of.costs.loc["sac"]
    assert 0 < costs["simulation"] + costs["learning"] <= costs["seconds"] and costs["updates"] == 6
    assert "–" not in cost_table(of).texts[0]


@pytest.mark.parametrize("without", ["traces", "success", "end"])
def test_there_is_none_without(without: str, runs: list[RunRecord]) -> None:
    for run in runs:
        for epoch in run.epochs:
            if without == "traces":
                epoch.traces.clear()
            elif without == "success":
                epoch.val = {task: {"mse": 1.0} for task in epoch.val}
        if without == "end":
            run.status = "failed"
    assert not list(sample_efficiencies(runs))
    made = sections(Leaderboard.from_records(runs).report(runs), HTML)
    assert "families" not in {section.key for section in made}
