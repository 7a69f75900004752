"""GAUC and the expected calibration error, against scikit-learn's areas user by user and sums written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from two_workers import two_workers

from mtlscale.config import MISSING_CLASS, Task, UserError
from mtlscale.data import Workers
from mtlscale.metrics import TaskMetrics, task_metrics

METRICS = ("gauroc", "ece")
ONE = Task(name="t", loss="bce", outputs=1, metrics=METRICS, group=0)
TWO = Task(name="t", loss="cross_entropy", outputs=2, metrics=METRICS, group=0)


def samples(count: int = 300, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits with many ties, labels of which some are missing, and users; one has one class, and 0 is unknown."""
    draw = torch.Generator().manual_seed(seed)
    users = torch.randint(0, 9, (count,), generator=draw).float()
    logits = torch.randn(count, 1, generator=draw).mul(3).round().div(3)
    labels = (logits[:, 0] + torch.randn(count, generator=draw) > 0).float()
    labels[users == 5] = 1.0
    labels[torch.rand(count, generator=draw) < 0.2] = math.nan
    return logits, labels.unsqueeze(1), users


def by_hand(logits: torch.Tensor, labels: torch.Tensor, users: torch.Tensor) -> tuple[float, float]:
    there = ~labels[:, 0].isnan()
    score, truth, user = (v.double().numpy() for v in (logits[there, 0], labels[there, 0], users[there]))
    areas, sizes = [], []
    for one in set(user) - {0.0}:
        own = user == one
        if len(set(truth[own])) == 2:
            areas.append(sklearn.metrics.roc_auc_score(truth[own], score[own]))
            sizes.append(own.sum())

    probability, error = 1 / (1 + np.exp(-score)), 0.0
    for low in range(15):
        own = (probability >= low / 15) & (probability < (low + 1) / 15)
        error += abs(probability[own].sum() - truth[own].sum()) / len(truth)
    return 100 * float(np.average(areas, weights=sizes)), 100 * error


def measured(task: Task, *batches: tuple[torch.Tensor, ...]) -> dict[str, float]:
    metrics = task_metrics(task)
    for batch in batches:
        metrics.update(*batch)
    return metrics.compute()


def test_both_are_their_definitions() -> None:
    logits, labels, users = samples()
    gauc, error = by_hand(logits, labels, users)
    found = measured(ONE, (logits, labels, users))
    assert 50 < gauc < 95 and 1 < error < 50
    assert found == {"gauroc": pytest.approx(gauc, rel=1e-12), "ece": pytest.approx(error, rel=1e-9)}

    in_parts = measured(ONE, *((logits[i : i + 37], labels[i : i + 37], users[i : i + 37]) for i in range(0, 300, 37)))
    assert in_parts == {name: pytest.approx(value, rel=1e-12) for name, value in found.items()}


def test_two_classes_are_one_output() -> None:
    logits, labels, users = samples()
    classes = torch.where(labels[:, 0].isnan(), MISSING_CLASS, labels[:, 0]).long()
    pair = torch.cat([logits.new_full((300, 1), 0.25), logits + 0.25], 1)
    expected = measured(ONE, (logits, labels, users))
    assert measured(TWO, (pair, classes, users)) == {k: pytest.approx(v, rel=1e-6) for k, v in expected.items()}


def test_an_order_that_is_right_within_users_alone() -> None:
    """Users differ in how much they like everything, which the area over all samples counts and GAUC does not."""
    users = torch.tensor([1.0] * 4 + [2.0] * 4)
    labels = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]).unsqueeze(1)
    logits = torch.tensor([5.0, 5.0, 5.0, 6.0, 0.0, 1.0, 1.0, 1.0]).unsqueeze(1)
    task = Task(name="t", loss="bce", outputs=1, metrics=("auroc", "gauroc"), group=0)
    found = measured(task, (logits, labels, users))
    assert found["gauroc"] == 100.0 and found["auroc"] < 50.0


def test_probabilities_that_are_right_have_no_error() -> None:
    logits = torch.tensor([0.25]).logit().expand(8, 1)
    labels = torch.tensor([1.0, 0, 0, 0, 1.0, 0, 0, 0]).unsqueeze(1)
    assert measured(ONE, (logits, labels, torch.ones(8)))["ece"] == pytest.approx(0.0, abs=1e-6)
    sure = torch.full((8, 1), 50.0)
    assert measured(ONE, (sure, labels, torch.ones(8)))["ece"] == pytest.approx(75.0)


def test_where_nothing_can_be_said() -> None:
    one_class = (torch.randn(5, 1), torch.ones(5, 1), torch.ones(5))
    assert math.isnan(measured(ONE, one_class)["gauroc"])
    no_label = (torch.randn(5, 1), torch.full((5, 1), math.nan), torch.ones(5))
    assert all(math.isnan(value) for value in measured(ONE, no_label).values())


def _half(job: Any, workers: Workers) -> dict[str, float]:
    logits, labels, users = job
    metrics = TaskMetrics(ONE)
    if workers.rank == 0:
        metrics.update(logits[:111], labels[:111], users[:111])
    elif len(logits) > 111:
        metrics.update(logits[111:], labels[111:], users[111:])
    return metrics.compute()


def test_two_workers_measure_what_one_does() -> None:
    jobs = [samples(), samples(100)]
    for job, found in zip(jobs, two_workers(_half, jobs)[1], strict=True):
        assert found == {name: pytest.approx(value, rel=1e-12) for name, value in measured(ONE, job).items()}


def test_a_task_without_groups_says_how_to_name_them() -> None:
    with pytest.raises(UserError, match="metric 'gauroc' needs a column of groups; name it by the option `grouped`"):
        task_metrics(Task(name="t", loss="bce", outputs=1, metrics=("gauroc",)))
    with pytest.raises(UserError, match="metric 'ece' is defined for one output, not for 3"):
        task_metrics(Task(name="t", loss="bce", outputs=3, metrics=("ece",)))
