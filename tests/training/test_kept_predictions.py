"""A run's predictions on test: what its metrics were measured on, whoever trains it, while they are few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mtlscale.batched import BatchedTrainer
from mtlscale.config import Experiment, Run, Task
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.metrics import TaskMetrics
from mtlscale.records import Metrics
from mtlscale.training import TaskPredictions, Trainer, finish, mean_prediction, read_predictions, write_predictions
from mtlscale.training.evaluation import kept_predictions

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]
Kept = dict[str, TaskPredictions]


def assert_measured(kept: Kept, metrics: Metrics) -> None:
    assert kept.keys() == metrics.keys()
    for name, entry in kept.items():
        measure = TaskMetrics(entry.task)
        measure.update(entry.predictions, entry.labels)
        found = measure.compute()
        assert {key: metrics[name][key] for key in found} == pytest.approx(found, rel=1e-5)


def test_they_are_those_that_the_metrics_were_measured_on(
    small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path
) -> None:
    data = uneven()
    trainer = Trainer(run_of(small(methods="[equal]", training="{epochs: 3, batch_size: 16}"), data), data)
    record = finish(trainer)
    assert_measured(trainer.test_predictions, record.metrics["test"])
    write_predictions(tmp_path, trainer.test_predictions)
    read = read_predictions(tmp_path)
    assert_measured(read, record.metrics["test"])
    assert [entry.task for entry in read.values()] == list(data.suite.tasks)
    assert read_predictions(tmp_path / "elsewhere") == {}


def test_batched_trials_keep_theirs_with_their_parameters(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    runs = [
        run_of(small(methods="[equal]", seeds=f"[{seed}]", training="{epochs: 2, batch_size: 16}"), data)
        for seed in (0, 1)
    ]
    trainer = BatchedTrainer(runs, data, keep_states=True)
    for _ in trainer.train():
        pass
    for run, record in trainer.ended:
        assert_measured(trainer.test_predictions[run.run_id], record.metrics["test"])


def test_large_suites_keep_none(small: Small, uneven: Uneven, run_of: RunOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_predictions, "MOST_NUMBERS", 20)
    data = uneven()
    trainer = Trainer(run_of(small(methods="[equal]", training="{epochs: 1}"), data), data)
    finish(trainer)
    assert trainer.test_predictions == {}


def test_an_ensemble_is_the_mean_of_probabilities_or_numbers() -> None:
    def task(loss: str) -> Task:
        return Task(name="t", loss=loss, outputs=2, metrics=("error",))

    one, other = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    shares = torch.stack([one.softmax(1), other.softmax(1)]).mean(0)
    torch.testing.assert_close(mean_prediction(task("cross_entropy"), [one, other]).softmax(1).float(), shares)
    shares = torch.stack([one.sigmoid(), other.sigmoid()]).mean(0)
    torch.testing.assert_close(mean_prediction(task("bce"), [one, other]).sigmoid().float(), shares)
    assert mean_prediction(task("l1"), [one, other]).tolist() == [[2.0, 0.5]]
