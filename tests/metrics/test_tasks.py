import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_checks import compute, same
from two_workers import two_workers

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.data import Workers
from mtlscale.metrics import pooled_metrics, pooled_sums, task_metrics
from mtlscale.metrics.accumulators import Sums

torch.set_num_threads(1)

TASKS = {
    "cross_entropy": Task(
        name="t", loss="cross_entropy", outputs=4, metrics=("accuracy", "error", "cross_entropy", "f1", "auroc")
    ),
    "soft_cross_entropy": Task(
        name="t", loss="soft_cross_entropy", outputs=5, metrics=("cross_entropy", "soft_error", "accuracy")
    ),
    "bce": Task(name="t", loss="bce", outputs=1, metrics=("accuracy", "error", "cross_entropy", "f1", "auroc")),
    "multilabel": Task(name="t", loss="bce", outputs=3, metrics=("accuracy", "cross_entropy", "f1", "auroc")),
    "mse": Task(name="t", loss="mse", outputs=1, metrics=("mse", "rmse", "mae")),
    "l1": Task(name="t", loss="l1", outputs=2, metrics=("mae", "mse")),
}


def samples(task: Task, count: int, seed: int, missing: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    prediction = torch.randn(count, task.outputs, generator=generator)
    absent = torch.rand(count, generator=generator) < missing
    if task.loss == "cross_entropy":
        target = torch.randint(0, task.outputs, (count,), generator=generator)
        return prediction, torch.where(absent, MISSING_CLASS, target)
    if task.loss == "soft_cross_entropy":
        target = torch.randn(count, task.outputs, generator=generator).softmax(-1)
    elif task.loss == "bce":
        target = (torch.rand(count, task.outputs, generator=generator) < 0.4).float()
    else:
        target = torch.randn(count, task.outputs, generator=generator)
    target[absent] = math.nan
    return prediction, target


def test_classification_against_scikit_learn():
    logits, target = samples(TASKS["cross_entropy"], 200, seed=0)
    found = compute(TASKS["cross_entropy"], (logits, target))
    probabilities, predicted = logits.double().softmax(-1).numpy(), logits.argmax(-1)
    assert found["accuracy"] == pytest.approx(100 * sklearn.metrics.accuracy_score(target, predicted))
    assert found["error"] == pytest.approx(100 - found["accuracy"])
    assert found["cross_entropy"] == pytest.approx(sklearn.metrics.log_loss(target, probabilities), rel=1e-6)
    assert found["f1"] == pytest.approx(100 * sklearn.metrics.f1_score(target, predicted, average="macro"), rel=1e-6)
    area = sklearn.metrics.roc_auc_score(target, probabilities, multi_class="ovr")
    assert found["auroc"] == pytest.approx(100 * area, rel=1e-6)


def test_binary_labels_against_scikit_learn():
    logits, target = samples(TASKS["bce"], 150, seed=1)
    found = compute(TASKS["bce"], (logits, target))
    truth, scores = target[:, 0].numpy(), logits[:, 0].double().sigmoid().numpy()
    assert found["accuracy"] == pytest.approx(100 * sklearn.metrics.accuracy_score(truth, scores > 0.5))
    assert found["cross_entropy"] == pytest.approx(sklearn.metrics.log_loss(truth, scores), rel=1e-6)
    assert found["f1"] == pytest.approx(100 * sklearn.metrics.f1_score(truth, scores > 0.5), rel=1e-6)
    assert found["auroc"] == pytest.approx(100 * sklearn.metrics.roc_auc_score(truth, scores), rel=1e-6)


def test_a_constant_has_half_the_area():
    _, target = samples(TASKS["bce"], 917, seed=3)
    for logit in (1.3372520208358765, -0.7, 60.0):  # sigmoid of the first differs in the last bit from place to place
        batches = [(torch.full((len(part), 1), logit), part) for part in target.split(256)]
        assert compute(TASKS["bce"], *batches)["auroc"] == 50


def test_several_binary_labels_with_single_ones_missing():
    logits, target = samples(TASKS["multilabel"], 120, seed=2)
    target[::3, 1] = math.nan
    found = compute(TASKS["multilabel"], (logits, target))
    kept = [~target[:, label].isnan() for label in range(3)]
    areas = [sklearn.metrics.roc_auc_score(target[k, i], logits[k, i]) for i, k in enumerate(kept)]
    scores = [sklearn.metrics.f1_score(target[k, i], logits[k, i] > 0) for i, k in enumerate(kept)]
    right = [((logits[k, i] > 0) == (target[k, i] > 0.5)).double() for i, k in enumerate(kept)]
    assert found["auroc"] == pytest.approx(100 * np.mean(areas), rel=1e-6)
    assert found["f1"] == pytest.approx(100 * np.mean(scores), rel=1e-6)
    assert found["accuracy"] == pytest.approx(100 * torch.cat(right).mean().item())


def test_numbers_against_scikit_learn():
    prediction, target = samples(TASKS["mse"], 80, seed=3)
    found = compute(TASKS["mse"], (prediction, target[:, 0]))  # targets may come without their last dimension
    assert found["mse"] == pytest.approx(sklearn.metrics.mean_squared_error(target, prediction), rel=1e-6)
    assert found["rmse"] == pytest.approx(found["mse"] ** 0.5)
    assert found["mae"] == pytest.approx(sklearn.metrics.mean_absolute_error(target, prediction), rel=1e-6)


def test_soft_labels_by_hand():
    task = TASKS["soft_cross_entropy"]
    target = torch.tensor([[0.5, 0.3, 0.2, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1, 0.6]])
    prediction = torch.tensor([[2.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    found = compute(task, (prediction, target))
    assert found["soft_error"] == 50 and found["accuracy"] == 50
    logs = prediction.double().log_softmax(-1)
    assert found["cross_entropy"] == pytest.approx(-(target * logs).sum(-1).mean().item(), rel=1e-6)


def test_pixels_count_like_samples():
    task = Task(name="seg", loss="cross_entropy", outputs=3, metrics=("accuracy", "cross_entropy"))
    logits, target = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))
    target[0, 0] = MISSING_CLASS
    flat = compute(task, (logits.movedim(1, -1).reshape(-1, 3), target.reshape(-1)))
    same(compute(task, (logits, target)), flat)
    kept = target != MISSING_CLASS
    assert flat["accuracy"] == pytest.approx(100 * (logits.argmax(1) == target)[kept].double().mean().item())


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 40), missing=st.sampled_from([0.0, 0.3]))
def test_figures_do_not_depend_on_the_batch_size_or_order(name, seed, size, missing):
    task = TASKS[name]
    prediction, target = samples(task, 60, seed, missing)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    batches = zip(prediction[order].split(size), target[order].split(size), strict=True)
    same(compute(task, *batches), compute(task, (prediction, target)))


@pytest.mark.parametrize("name", TASKS)
def test_missing_labels_are_as_if_their_samples_were_not_there(name):
    task = TASKS[name]
    prediction, target = samples(task, 50, seed=4, missing=0.4)
    absent = (target == MISSING_CLASS) if task.loss == "cross_entropy" else target.isnan().any(-1)
    assert 0 < absent.sum() < 50
    same(compute(task, (prediction, target)), compute(task, (prediction[~absent], target[~absent])))


@pytest.mark.parametrize("name", TASKS)
def test_without_a_label_every_figure_is_nan(name):
    task = TASKS[name]
    prediction, target = samples(task, 5, seed=5, missing=1.0)
    assert all(math.isnan(value) for value in compute(task, (prediction, target)).values())
    assert all(math.isnan(value) for value in compute(task).values())


def test_integer_labels_of_a_binary_task():
    logits = torch.tensor([[2.0], [-1.0], [3.0]])
    found = compute(TASKS["bce"], (logits, torch.tensor([1, 1, MISSING_CLASS])))
    assert found["accuracy"] == 50


def test_auroc_leaves_out_classes_that_occur_in_one_kind_only():
    task = Task(name="t", loss="cross_entropy", outputs=3, metrics=("auroc",))
    logits, target = torch.randn(40, 3), torch.arange(40) % 2  # class 2 never occurs
    scores = logits.double().softmax(-1)
    areas = [sklearn.metrics.roc_auc_score(target == c, scores[:, c]) for c in (0, 1)]
    assert compute(task, (logits, target))["auroc"] == pytest.approx(100 * np.mean(areas), rel=1e-6)
    assert math.isnan(compute(task, (logits, torch.zeros(40, dtype=torch.int64)))["auroc"])


def test_reset_forgets_everything():
    task = TASKS["cross_entropy"]
    metrics = task_metrics(task)
    metrics.update(*samples(task, 30, seed=6))
    metrics.compute()
    metrics.reset()
    batch = samples(task, 20, seed=7)
    metrics.update(*batch)
    same(metrics.compute(), compute(task, batch))


def test_sizes_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match=r"prediction \[4, 1\] and target \[3\]"):
        task_metrics(TASKS["mse"]).update(torch.zeros(4, 1), torch.zeros(3))


def logits_and_target() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(30, 4, generator=generator), torch.randint(0, 4, (30,), generator=generator)


SHARED_TASK = Task(name="t", loss="cross_entropy", outputs=4, metrics=("accuracy", "cross_entropy", "f1", "auroc"))


def _figures(share: int, workers: Workers) -> dict[str, float]:
    """Worker 0 has the first `share` samples, worker 1 the rest."""
    mine = slice(0, share) if workers.rank == 0 else slice(share, 30)
    metrics = task_metrics(SHARED_TASK)
    for logit, label in zip(*(part[mine].split(7) for part in logits_and_target()), strict=True):
        if len(label):
            metrics.update(logit, label)
    return metrics.compute()


def test_workers_without_a_common_share_agree_on_one_workers_figures():
    """Unequal shares, and one where worker 1 has no sample at all: both know the whole."""
    alone = compute(SHARED_TASK, logits_and_target())
    for figures in two_workers(_figures, [13, 30]):
        for found in figures:
            same(found, alone)


@pytest.mark.parametrize("scale", [0.25, 300.0])
def test_metrics_are_in_the_unit_that_labels_were_divided_by(scale: float) -> None:
    """By the accumulator, and by the sums that batched trials and bootstrap samples add up."""
    task = Task(name="t", loss="mse", outputs=1, metrics=("mae", "rmse"), scale=scale)
    prediction, target = samples(task, 20, 0, missing=0.3)
    error = scale * (prediction - target).double()
    error = error[~error.isnan()]
    expected = {"mae": float(error.abs().mean()), "rmse": float(error.square().mean().sqrt())}
    assert compute(task, (prediction, target)) == pytest.approx(expected, rel=1e-6)
    sums, count = pooled_sums(task, prediction, target)
    means = {name: float(total / count) for name, total in sums.items()}
    assert pooled_metrics(task, means) == pytest.approx(expected, rel=1e-6)


def test_sums_of_single_precision_are_added_up_in_double() -> None:
    total = Sums(lambda values: values.sum(0, keepdim=True), torch.add)
    for value in (2.0**24, 1.0, 1.0):
        total.update(torch.tensor([value]))
    assert total.compute().tolist() == [2.0**24 + 2]
