"""Correlations, and what depends on the order of all samples, against scikit-learn and scipy."""

import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from metric_checks import compute, same
from two_workers import two_workers

from mtlscale.config import MISSING_CLASS, Task, UserError
from mtlscale.data import Workers
from mtlscale.metrics import TaskMetrics, all_metrics, task_metrics

CLASSES = ("aupr", "matthews")
TASKS = {
    "classes": Task(name="t", loss="cross_entropy", outputs=4, metrics=CLASSES),
    "two": Task(name="t", loss="cross_entropy", outputs=2, metrics=(*CLASSES, "binary_f1", "ndcg", "auroc")),
    "one": Task(name="t", loss="bce", outputs=1, metrics=(*CLASSES, "binary_f1", "ndcg", "f1", "auroc")),
    "labels": Task(name="t", loss="bce", outputs=3, metrics=CLASSES),
    "number": Task(name="t", loss="mse", outputs=1, metrics=("pearson", "spearman", "ndcg")),
    "numbers": Task(name="t", loss="l1", outputs=2, metrics=("pearson", "spearman")),
}


def samples(name: str, count: int = 120, seed: int = 0, missing: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions that know something, many of them the same, and labels of which some are missing."""
    task, generator = TASKS[name], torch.Generator().manual_seed(seed)
    prediction = torch.randn(count, task.outputs, generator=generator).mul(4).round().div(4)
    absent = torch.rand(count, generator=generator) < missing
    if task.loss == "cross_entropy":
        target = torch.randint(0, task.outputs, (count,), generator=generator)
        prediction[torch.arange(count), target] += 1.0
        return prediction, target.masked_fill(absent, MISSING_CLASS)
    noise = torch.randn(count, task.outputs, generator=generator)
    target = (prediction + noise > 0).float() if task.loss == "bce" else (prediction + noise + 8).mul(2).round()
    entries = torch.rand(count, task.outputs, generator=generator) < missing
    return prediction, target.masked_fill(entries, math.nan)


def kept(prediction, target, column=0):
    """One output and its labels as arrays, without the missing ones."""
    there = ~target[:, column].isnan()
    return prediction[there, column].double().numpy(), target[there, column].numpy()


def test_two_classes_against_scikit_learn():
    logits, target = samples("two")
    there = target != MISSING_CLASS
    score, truth = (logits[:, 1] - logits[:, 0])[there].double().numpy(), target[there].numpy()
    answer = logits[there].argmax(-1).numpy()
    found = compute(TASKS["two"], (logits, target))
    assert found["aupr"] == pytest.approx(100 * sklearn.metrics.average_precision_score(truth, score), rel=1e-12)
    assert found["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(truth, answer), rel=1e-12)
    assert found["binary_f1"] == pytest.approx(100 * sklearn.metrics.f1_score(truth, answer), rel=1e-12)
    assert found["ndcg"] == pytest.approx(100 * sklearn.metrics.ndcg_score([truth], [score]), rel=1e-12)


def test_one_output_against_scikit_learn():
    logits, target = samples("one")
    score, truth = kept(logits, target)
    found = compute(TASKS["one"], (logits, target))
    assert found["aupr"] == pytest.approx(100 * sklearn.metrics.average_precision_score(truth, score), rel=1e-12)
    assert found["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(truth, score > 0), rel=1e-12)
    assert found["binary_f1"] == pytest.approx(found["f1"], rel=1e-6)
    assert found["ndcg"] == pytest.approx(100 * sklearn.metrics.ndcg_score([truth], [score]), rel=1e-12)


def test_more_classes_and_labels_against_scikit_learn():
    logits, target = samples("classes")
    there = target != MISSING_CLASS
    chances, truth = logits[there].double().log_softmax(-1).numpy(), target[there].numpy()
    areas = [sklearn.metrics.average_precision_score(truth == c, chances[:, c]) for c in range(4)]
    found = compute(TASKS["classes"], (logits, target))
    assert found["aupr"] == pytest.approx(100 * np.mean(areas), rel=1e-12)
    assert found["matthews"] == pytest.approx(sklearn.metrics.matthews_corrcoef(truth, chances.argmax(1)), rel=1e-12)

    logits, target = samples("labels")
    columns = [kept(logits, target, column) for column in range(3)]
    found = compute(TASKS["labels"], (logits, target))
    areas = [sklearn.metrics.average_precision_score(truth, score) for score, truth in columns]
    assert found["aupr"] == pytest.approx(100 * np.mean(areas), rel=1e-12)
    phi = [sklearn.metrics.matthews_corrcoef(truth, score > 0) for score, truth in columns]
    assert found["matthews"] == pytest.approx(np.mean(phi), rel=1e-12)


@pytest.mark.parametrize("name", ["number", "numbers"])
def test_correlations_against_scipy(name):
    prediction, target = samples(name)
    columns = [kept(prediction, target, column) for column in range(TASKS[name].outputs)]
    found = compute(TASKS[name], (prediction, target))
    for metric, by_scipy in (("pearson", scipy.stats.pearsonr), ("spearman", scipy.stats.spearmanr)):
        assert found[metric] == pytest.approx(np.mean([by_scipy(x, y).statistic for x, y in columns]), rel=1e-9)


def test_ndcg_of_numbers_against_scikit_learn():
    prediction, target = samples("number")
    score, gain = kept(prediction, target)
    expected = 100 * sklearn.metrics.ndcg_score([gain], [score])
    assert compute(TASKS["number"], (prediction, target))["ndcg"] == pytest.approx(expected, rel=1e-12)
    assert math.isnan(compute(TASKS["number"], (prediction, target - 100.0))["ndcg"])


def test_numbers_far_from_zero_keep_their_correlation():
    prediction, target = samples("number", missing=0.0)
    x, y = kept(prediction, target)
    far = compute(TASKS["number"], (prediction.double() + 1e8, target.double() + 1e8))
    assert far["pearson"] == pytest.approx(scipy.stats.pearsonr(x, y).statistic, rel=1e-7)


def test_what_does_not_vary_has_no_correlation():
    prediction, target = samples("numbers", missing=0.0)
    prediction[:, 0] = 0.1
    found = compute(TASKS["numbers"], *zip(prediction.split(7), target.split(7), strict=True))
    x, y = kept(prediction, target, 1)
    assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
    assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    prediction[:] = 0.1
    assert all(math.isnan(value) for value in compute(TASKS["numbers"], (prediction, target)).values())


def test_an_answer_that_is_always_the_same():
    logits, target = torch.tensor([[1.0, 0.0]]).repeat(6, 1), torch.tensor([0, 0, 0, 0, 1, 1])
    found = compute(TASKS["two"], (logits, target))
    assert (found["matthews"], found["binary_f1"]) == (0, 0)
    assert found["aupr"] == pytest.approx(100 / 3)  # the share of positives
    never = compute(TASKS["two"], (logits, torch.zeros(6, dtype=torch.int64)))
    assert math.isnan(never["aupr"]) and math.isnan(never["ndcg"])


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("size", [1, 7, 50])
def test_figures_do_not_depend_on_the_batch_size_or_order(name, size):
    prediction, target = samples(name, seed=size)
    order = torch.randperm(len(prediction), generator=torch.Generator().manual_seed(size))
    batches = zip(prediction[order].split(size), target[order].split(size), strict=True)
    same(compute(TASKS[name], *batches), compute(TASKS[name], (prediction, target)))


@pytest.mark.parametrize("name", TASKS)
def test_without_a_label_every_figure_is_nan_and_reset_forgets(name):
    prediction, target = samples(name, missing=2.0)
    assert all(math.isnan(value) for value in compute(TASKS[name], (prediction, target)).values())
    assert all(math.isnan(value) for value in compute(TASKS[name]).values())
    metrics = task_metrics(TASKS[name])
    metrics.update(*samples(name, seed=5))
    metrics.compute()
    metrics.reset()
    metrics.update(*samples(name, seed=6))
    same(metrics.compute(), compute(TASKS[name], samples(name, seed=6)))


@pytest.mark.parametrize("name", ["binary_f1", "ndcg"])
def test_a_metric_of_one_score_wants_two_classes(name):
    with pytest.raises(UserError, match=f"metric '{name}' is defined for two classes, not for 4; use one of accuracy"):
        task_metrics(Task(name="t", loss="cross_entropy", outputs=4, metrics=(name,)))


def test_units_and_what_can_be_negative():
    assert {name for name, info in all_metrics().items() if info.lowest} == {"matthews", "pearson", "spearman"}
    assert {all_metrics()[name].unit for name in ("aupr", "binary_f1", "ndcg")} == {"%"}


def _figures(job: tuple[str, int], workers: Workers) -> dict[str, float]:
    """Worker 0 has the first `share` samples, worker 1 the rest."""
    name, share = job
    metrics = TaskMetrics(TASKS[name])
    prediction, target = samples(name)
    mine = slice(0, share) if workers.rank == 0 else slice(share, None)
    for batch in zip(prediction[mine].split(9), target[mine].split(9), strict=True):
        if len(batch[0]):
            metrics.update(*batch)
    return metrics.compute()


def test_two_workers_agree_on_one_workers_figures():
    jobs = [(name, share) for name in TASKS for share in (0, 23, 120)]
    first, second = two_workers(_figures, jobs)
    for job, one, other in zip(jobs, first, second, strict=True):
        same(one, compute(TASKS[job[0]], samples(job[0])))
        assert one == pytest.approx(other, nan_ok=True)
