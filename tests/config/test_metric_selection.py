"""Metrics that experiments name: what is refused, what changes a run id and what does not, and plugins among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mtlscale.config import MISSING_CLASS, Experiment, Task, UserError, load_experiment, load_plugin
from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.readers.prepared import read_manifest
from mtlscale.execution.finding.own_board import own_board
from mtlscale.execution.planning.plan import Datasets, make_plan
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.metrics import TaskMetrics, pooled, resampled
from mtlscale.records import Home, Ledger
from mtlscale.report.results import Results
from mtlscale.training import train

File = Callable[..., Path]
UNEVEN = Path(__file__).parents[1] / "plugins" / "uneven.py"
METRIC = '''\
"""{text}"""
import torch
{code}
from mtlscale.metrics import Metric


class Own(Metric):
    """Right answers, counted."""

    name = "{name}"
    {direction}
    losses = {losses}

    def sums(self, task, prediction, target):
        return (prediction.argmax(-1) == target).sum(){then}
'''


def metric(folder: Path, name: str = "hits", text: str = "", losses: str = "('cross_entropy',)", **lines: str) -> Path:
    parts = {"direction": "higher_is_better = True", "code": "", "then": "", **lines}
    path = folder / "own_metric.py"
    path.write_text(METRIC.format(name=name, text=text, losses=losses, **parts))
    return path


def ids(path: Path) -> list[str]:
    experiment = load_experiment(path)
    return [run.run_id for run in experiment.runs(dict.fromkeys(experiment.data(), "0" * 64))]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"delta": "[acuracy]"}, "delta: unknown metric 'acuracy': did you mean accuracy"),
        ({"datasets": "[{name: uneven, delta: [mze]}]"}, "delta of uneven: unknown metric 'mze': did you mean m"),
        ({"datasets": "[{name: uneven, metrics: [acuracy]}]"}, "metrics of uneven: unknown metric 'acuracy'"),
        ({"datasets": "[{name: uneven, metrics: {a: [acuracy]}}]"}, "metrics of uneven: unknown metric 'acuracy'"),
        ({"delta": "[]"}, "delta"),
        ({"delta": "accuracy"}, "delta"),
    ],
)
def test_names_nobody_has(lines: dict[str, str], said: str, experiment_file: File) -> None:
    with pytest.raises(UserError, match=said) as found:
        load_experiment(experiment_file(**lines))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"delta": "[f1]"}, "delta: no task reports 'f1'"),
        (
            {"datasets": "[{name: uneven, delta: [b.mse]}]"},
            "delta of uneven: no task reports 'b.mse': did you mean mse",
        ),
        (
            {"datasets": "[{name: uneven, metrics: [accuracy]}]"},
            "task 'c': metric 'accuracy' is not defined for loss 'mse'; use one of mse, rmse",
        ),
        ({"datasets": "[{name: uneven, metrics: {c: [f1]}}]"}, "task 'c': metric 'f1' is not defined for loss 'mse'"),
        ({"datasets": "[{name: uneven, metrics: {d: [f1]}}]"}, "uneven has no task 'd'"),
    ],
)
def test_names_the_tasks_cannot_have_are_told_before_anything_runs(
    lines: dict[str, str], said: str, experiment_file: File, uneven: Callable[..., PreparedData]
) -> None:
    folder = uneven().folder
    with pytest.raises(UserError, match=said):
        Datasets.prepare(load_experiment(experiment_file(**lines)), lambda name: folder)


def test_delta_is_no_part_of_a_run_and_metrics_are(experiment_file: File) -> None:
    plain = ids(experiment_file())
    assert ids(experiment_file("other", delta="[accuracy]")) == plain
    assert ids(experiment_file("other", datasets="[{name: uneven, delta: [a.accuracy]}]")) == plain
    chosen = ids(experiment_file("other", datasets="[{name: uneven, metrics: {a: [error]}}]"))
    assert not set(chosen) & set(plain)
    assert not set(chosen) & set(ids(experiment_file("other", datasets="[{name: uneven, metrics: [error, mse]}]")))


def test_an_edited_metric_is_another_run_of_those_that_name_it(tmp_path: Path, experiment_file: File) -> None:
    own = metric(tmp_path)
    lines = {"plugins": f"[{UNEVEN}, {own}]", "methods": "[equal]"}
    path = experiment_file(datasets="[{name: uneven, metrics: {a: [hits]}}, {name: uneven, label: plain}]", **lines)
    with_it, without = ids(path)
    assert ids(path) == [with_it, without]
    metric(tmp_path, code="EDITED = 1")
    edited = ids(path)
    assert edited[0] != with_it and edited[1] == without


def test_data_that_name_an_edited_metric_are_other_data_to_a_run(tmp_path: Path, experiment_file: File) -> None:
    own = metric(tmp_path)
    pipeline = tmp_path / "counted.py"
    pipeline.write_text(
        UNEVEN.read_text().replace('= "uneven"', '= "counted"').replace('metrics=("accuracy",)', 'metrics=("hits",)')
    )
    lines = {"plugins": f"[{pipeline}, {own}]", "datasets": "[counted]", "methods": "[equal]"}
    path, home = experiment_file(**lines), Home(tmp_path / "home")

    def planned() -> tuple[Experiment, Datasets, str]:
        experiment = load_experiment(path)
        data = Datasets.prepare(experiment, lambda name: prepare("counted", {}, None, home.root))
        (run,) = experiment.runs(data.fingerprints)
        plan = make_plan(experiment, [run], home.ledger("small"), home, data)
        if plan.todo:
            record = train(run, load_prepared(data.folders["counted"]))
            assert record.metrics["test"]["a"]["hits"] == int(record.metrics["test"]["a"]["hits"]) > 10
            Ledger(home.ledger("small")).append(record)
        assert not make_plan(experiment, [run], home.ledger("small"), home, data).todo
        assert [record.run_id for record in own_board(experiment, home).records] == [run.run_id]
        return experiment, data, run.run_id

    _, before, first = planned()
    assert planned()[2] == first
    metric(tmp_path, code="EDITED = 1")
    load_experiment(path)
    assert not own_board(load_experiment(path), home).records  # what the old text measured is no result of the new
    _, after, second = planned()
    assert second != first and before.folders == after.folders
    assert read_manifest(after.folders["counted"]).fingerprint == after.fingerprints["counted"].partition("+")[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"name": "accuracy"}, "accuracy is a shipped metric; give yours another name"),
        ({"name": "loss"}, "metric loss: every task reports its loss under this name"),
        ({"losses": "()"}, "metric hits: losses is a tuple of some of cross_entropy, soft_cross_entropy"),
        ({"losses": "('hinge',)"}, "metric hits: losses is a tuple of some of"),
        ({"direction": "pass"}, "metric hits: higher_is_better is not said; set it to True or False"),
        (
            {"code": "from mtlscale.config import knob", "direction": "higher_is_better = True\n    top = knob(1)"},
            "metric hits: a metric has no settings; make each a class attribute",
        ),
    ],
)
def test_a_metric_that_is_none(lines: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as found:
        load_plugin(metric(tmp_path, **lines))
    assert "\n" not in str(found.value)


def test_a_metric_that_pools_nothing(tmp_path: Path) -> None:
    path = metric(tmp_path)
    path.write_text(path.read_text().replace("def sums", "def total"))
    with pytest.raises(UserError, match=r"metric hits pools nothing; define sums\(self, task, prediction, target\)"):
        load_plugin(path)


def test_a_value_that_is_infinite_is_told_in_one_line(tmp_path: Path) -> None:
    load_plugin(metric(tmp_path, name="endless", then=" / 0"))
    measured = TaskMetrics(Task(name="a", loss="cross_entropy", outputs=2, metrics=("endless",)))
    measured.update(torch.eye(2), torch.arange(2))
    with pytest.raises(UserError, match=r"^own_metric.py: metric endless of task a is inf; return a finite number"):
        measured.compute()


def test_a_mean_of_ones_own_is_computed_like_a_shipped_one(tmp_path: Path) -> None:
    path = metric(tmp_path, name="own_error")
    text = path.read_text().replace("Metric", "Mean").replace("def sums", "def values")
    path.write_text(text.replace("(prediction.argmax(-1) == target).sum()", "prediction.argmax(-1) != target"))
    load_plugin(path)
    task = Task(name="a", loss="cross_entropy", outputs=2, metrics=("own_error", "error"))
    measured = TaskMetrics(task)
    measured.update(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 1, MISSING_CLASS]))
    values = measured.compute()
    assert values["own_error"] == values["error"] / 100 == 0.5 and pooled(task) and resampled(task)


def test_a_report_is_written_anew_where_what_enters_delta_changed(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], tmp_path: Path
) -> None:
    data = uneven()
    experiment = small(methods="[stl, equal]", training="{epochs: 1, batch_size: 16}")
    records = tuple(train(run, data) for run in experiment.runs({"uneven": data.manifest.fingerprint}))

    def legend(**fields: tuple[str, ...]) -> str:
        chosen = experiment.model_copy(update=fields)
        return Results(chosen, records, tmp_path).write_report()["markdown"].read_text()

    assert "Δ, η: accuracy, mse relative to stl" in legend()
    assert "Δ, η: mse relative to stl" in legend(delta=("mse",))
    with pytest.raises(UserError, match="delta: no task reports 'f1'"):
        legend(delta=("f1",))
