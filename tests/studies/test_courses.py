"""`studies/courses.py`: quantities by epoch, and errors by the number of tasks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.records import RunRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import courses
from result_tables import cut

Record = Callable[..., RunRecord]


def test_a_quantity_by_epoch_and_by_seed(record: Record) -> None:
    """Epoch e has mean relatedness 1 - 1 / e: 0, 1/2, 2/3."""
    runs = [record("aamtrl", seed, {"a": {"accuracy": 90.0}}, experiment="aamtrl_newsgroups") for seed in range(3)]
    runs.append(
        record("linear", 0, {"a": {"accuracy": 90.0}}, experiment="aamtrl_newsgroups", epochs=runs[0].epochs[:1])
    )
    page = "\n".join(courses.by_epoch(runs))
    assert "Return" not in page and "The mean over pairs of tasks of R, in percent." in page
    tables = {table.name: table.rows for table in cut(page.replace("### ", "## "))}
    assert tables["digits_relatedness_by_epoch"] == (
        ("method by epoch", "1", "2", "3"),
        ("aamtrl", "0.000", "50.000", "66.667"),
    )
    means = tables["digits_relatedness_mean_over_epochs_seeds"]
    assert means == (("method by seed", "0", "1", "2"), ("aamtrl", "38.889", "38.889", "38.889"))
    assert not list(courses.by_epoch([record("aamtrl", 0, {"a": {"accuracy": 90.0}}, experiment="other")]))


def test_a_fall_and_a_rise_both_move(record: Record) -> None:
    run = record("aamtrl", 0, {"a": {"accuracy": 90.0}}, experiment="aamtrl_newsgroups")
    epochs = [
        epoch.model_copy(update={"traces": {"R_mean": value, "R_var": value**2}})
        for epoch, value in zip(run.epochs, (0.9, 0.4, 0.8), strict=True)
    ]
    page = "\n".join(courses.by_epoch([run.model_copy(update={"epochs": epochs})]))
    assert page.count("| aamtrl | 90.000 | 40.000 | 80.000 |") == page.count("| aamtrl | 70.000 |") == 2
    assert page.count("| aamtrl | 90.000 |\n") == 2, "moved in all"


def test_losses_and_weights_of_the_tasks(record: Record) -> None:
    """Epoch e has losses 1/e and 2/e: variance 1/4 e²; seed 1's weights are 1/2 ∓ 1/2e."""
    test = {"a": {"accuracy": 90.0}, "b": {"accuracy": 80.0}}
    run = record("getmtl", 1, test, experiment="getmtl_traces_newsgroups")
    page = "\n".join(courses.by_epoch([run]))
    assert "| getmtl | 2500.000 | 625.000 | 277.778 |" in page
    weights = [list(epoch.weights.values()) for epoch in run.epochs]
    spreads = [100 * abs(b - a) / (a + b) for a, b in weights]
    assert f"| getmtl | {' | '.join(f'{spread:.3f}' for spread in spreads)} |" in page


def test_norms_by_topic_and_how_many_are_zero(record: Record) -> None:
    runs = []
    for seed, norms in enumerate(([[0.0, 1.5], [0.0, 0.25]], [[1.0, 1.0], [0.0, 2.0]])):
        run = record("tomato_el", seed, {"a": {"accuracy": 90.0}, "b": {"accuracy": 80.0}})
        last = run.epochs[-1].model_copy(update={"traces": {"topic_norms": norms}})
        runs.append(run.model_copy(update={"epochs": [*run.epochs[:-1], last]}))
    page = "\n".join(courses.by_topic([*runs, record("stl", 0, {"a": {"accuracy": 90.0}})]))
    assert "| tomato_el | 0 | 0.000 | 1.500 |\n| tomato_el | 1 | 0.000 | 0.250 |" in page and "stl" not in page
    assert "| tomato_el | 50.000 | 25.000 |" in page


def test_gates_and_weights_by_task(record: Record) -> None:
    runs = []
    for seed, gate in enumerate((0.2, 0.3, 0.4)):
        run = record("dsmtl_al", seed, {"a": {"accuracy": 90.0}, "b": {"accuracy": 80.0}})
        traces = {"gates": {"b": gate}, "task_weights": {"a": 0.75, "b": 0.25}}
        runs.append(run.model_copy(update={"epochs": [run.epochs[-1].model_copy(update={"traces": traces})]}))
    page = "\n".join(courses.by_task([*runs, record("stl", 0, {"a": {"accuracy": 90.0}})]))
    assert "| gates | b |" in page and "| dsmtl_al | 0.300 ± 0.248 |" in page and "stl" not in page
    assert "| task weights | a | b |" in page and "| dsmtl_al | 0.750 ± 0.000 | 0.250 ± 0.000 |" in page


def test_errors_beside_single_tasks_by_their_number(record: Record) -> None:
    scores = {  # of apparel, of the second task: errors of 10 and 20 for single tasks
        ("2 tasks", "stl"): (90.0, 80.0),
        ("2 tasks", "aamtrl"): (95.0, 80.0),
        ("4 tasks", "stl"): (90.0, 80.0),
        ("4 tasks", "aamtrl"): (80.0, 90.0),
    }
    runs = [
        record(method, seed, {"apparel": {"accuracy": a + seed}, "books": {"accuracy": b - seed}}, dataset=dataset)
        for (dataset, method), (a, b) in scores.items()
        for seed in range(3)
    ]
    lines = list(courses.by_number_of_tasks(runs, "stl"))
    assert "| method by number of tasks | 2 tasks | 4 tasks | 4 tasks − 2 tasks |" in lines
    assert "| aamtrl | 83.3 ± 0.0 | 100.0 ± 0.0 | 16.7 ± 0.0 |" in lines
    apparel = [(100 * (5 - seed) / (10 - seed), 100 * (20 - seed) / (10 - seed)) for seed in range(3)]
    row = next(line for line in reversed(lines) if line.startswith("| aamtrl |"))
    for column in (0, 1):
        assert f"{sum(pair[column] for pair in apparel) / 3:.1f} ± " in row


@pytest.mark.parametrize("names", [("digits",), ("a", "b"), ("2 tasks",)])
def test_other_data_sets_have_no_number_of_tasks(record: Record, names: tuple[str, ...]) -> None:
    runs = [record("stl", 0, {"a": {"accuracy": 90.0}}, dataset=name) for name in names]
    assert not list(courses.by_number_of_tasks(runs, "stl"))
