"""Metrics of pixels against scikit-learn and numpy, for any batch size and number of workers."""

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
from mtlscale.metrics import all_metrics, task_metrics, total_error
from mtlscale.training.losses import task_loss

torch.set_num_threads(1)

IMAGES, HEIGHT, WIDTH = 12, 6, 5
ANGLES = ("angle_mean", "angle_median", "angle_rmse", "within_11.25", "within_22.5", "within_30")
TASKS = {
    "segmentation": Task(
        name="segmentation", loss="cross_entropy", outputs=4, metrics=("miou", "pixel_accuracy", "pixel_error")
    ),
    "saliency": Task(name="saliency", loss="cross_entropy", outputs=2, metrics=("max_f",)),
    "mask": Task(name="mask", loss="bce", outputs=1, metrics=("max_f", "accuracy")),
    "depth": Task(name="depth", loss="l1", outputs=1, metrics=("abs_err", "rel_err", "rmse")),
    "normals": Task(name="normals", loss="cosine", outputs=3, metrics=ANGLES),
    "edges": Task(name="edges", loss="l1", outputs=1, metrics=("mae",)),
}


def maps(task: Task, seed: int = 0, images: int = IMAGES) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions [N, outputs, H, W] and targets, a fifth of whose pixels are missing."""
    generator = torch.Generator().manual_seed(seed)
    prediction = torch.randn(images, task.outputs, HEIGHT, WIDTH, generator=generator)
    absent = torch.rand(images, HEIGHT, WIDTH, generator=generator) < 0.2
    if task.loss == "cross_entropy":
        target = torch.randint(0, task.outputs, (images, HEIGHT, WIDTH), generator=generator)
        return prediction, torch.where(absent, MISSING_CLASS, target)
    noise = torch.randn(images, task.outputs, HEIGHT, WIDTH, generator=generator)
    if task.loss == "bce":
        target = (noise > 0.5).float()
    elif task.loss == "cosine":
        target = torch.nn.functional.normalize(prediction + noise, dim=1)
    else:
        target = noise.abs() + 0.1
    return prediction, torch.where(absent.unsqueeze(1), math.nan, target)


def test_miou_against_scikit_learns_confusion_matrix():
    logits, target = maps(TASKS["segmentation"])
    logits[:, 3] = -50.0  # class 3 is never predicted, but occurs
    found = compute(TASKS["segmentation"], (logits, target))
    kept = target != MISSING_CLASS
    matrix = sklearn.metrics.confusion_matrix(target[kept], logits.argmax(1)[kept], labels=range(4))
    union = matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
    assert found["miou"] == pytest.approx(100 * np.mean(matrix.diagonal() / union), rel=1e-9)
    assert found["pixel_accuracy"] == pytest.approx(100 * matrix.diagonal().sum() / matrix.sum(), rel=1e-9)
    assert found["pixel_error"] == pytest.approx(100 - found["pixel_accuracy"])


def test_miou_leaves_out_classes_that_occur_nowhere():
    logits, target = torch.zeros(1, 4, 1, 3), torch.tensor([[[0, 1, MISSING_CLASS]]])
    logits[:, 0] = 1.0  # all predicted as class 0: IoU 1/2 and 0, classes 2 and 3 nowhere
    assert compute(TASKS["segmentation"], (logits, target))["miou"] == pytest.approx(25.0)


def test_miou_is_not_the_mean_over_batches():
    logits, target = maps(TASKS["segmentation"])
    halves = [compute(TASKS["segmentation"], (logits[i : i + 6], target[i : i + 6]))["miou"] for i in (0, 6)]
    assert abs(np.mean(halves) - compute(TASKS["segmentation"], (logits, target))["miou"]) > 1e-3


def test_depth_errors_are_pooled_over_valid_pixels():
    prediction, target = maps(TASKS["depth"])
    target[0, 0, 0, :2] = 0.0  # no depth there
    found = compute(TASKS["depth"], (prediction, target))
    valid = (target > 0).numpy()
    error = np.abs(prediction.numpy()[valid] - target.numpy()[valid]).astype(np.float64)
    assert found["abs_err"] == pytest.approx(error.mean(), rel=1e-6)
    assert found["rel_err"] == pytest.approx((error / target.numpy()[valid]).mean(), rel=1e-6)


@pytest.mark.parametrize("images", [IMAGES, IMAGES - 1, 1])
def test_angles_against_numpy(images):
    prediction, target = maps(TASKS["normals"], seed=images, images=images)
    target[0, :, 0, 0] = 0.0  # no direction: not valid
    found = compute(TASKS["normals"], (prediction, target))
    p, t = (x.movedim(1, -1).reshape(-1, 3).double().numpy() for x in (prediction, target))
    valid = ~np.isnan(t).any(-1) & (t != 0).any(-1)
    cosine = (p[valid] * t[valid]).sum(-1) / np.linalg.norm(p[valid], axis=-1) / np.linalg.norm(t[valid], axis=-1)
    angle = np.degrees(np.arccos(cosine))
    assert found["angle_median"] == pytest.approx(np.median(angle), rel=1e-7)
    assert found["angle_mean"] == pytest.approx(angle.mean(), rel=1e-9)
    assert found["angle_rmse"] == pytest.approx(np.sqrt((angle**2).mean()), rel=1e-9)
    for bound in (11.25, 22.5, 30):
        assert found[f"within_{bound:g}"] == pytest.approx(100 * (angle < bound).mean())


def test_the_median_of_normals_that_are_all_right_is_zero():
    target = torch.zeros(1, 3, 2, 2)
    target[:, 2] = 1.0
    found = compute(TASKS["normals"], (target * 7, target))
    assert found["angle_median"] == found["angle_mean"] == 0.0 and found["within_11.25"] == 100.0


@pytest.mark.parametrize("name", ["saliency", "mask"])
def test_max_f_against_thresholds_one_by_one(name):
    task = TASKS[name]
    logits, target = maps(task)
    if name == "mask":
        chance, truth, kept = logits.double().sigmoid(), target > 0.5, ~target.isnan()
    else:
        chance, truth, kept = logits.double().softmax(1)[:, 1], target == 1, target != MISSING_CLASS
    levels, positive = (chance[kept] * 255).round(), truth[kept]
    best = 0.0
    for threshold in range(256):
        guess = levels >= threshold
        hits = float((guess & positive).sum())
        if hits:
            precision, recall = hits / float(guess.sum()), hits / float(positive.sum())
            best = max(best, 1.3 * precision * recall / (0.3 * precision + recall))
    assert compute(task, (logits, target))["max_f"] == pytest.approx(100 * best, rel=1e-9)


def test_max_f_of_a_perfect_map_and_of_one_without_a_salient_pixel():
    target = torch.tensor([[[[1.0, 0.0]]]])
    assert compute(TASKS["mask"], (target * 40 - 20, target))["max_f"] == pytest.approx(100.0)
    assert compute(TASKS["mask"], (target, torch.zeros_like(target)))["max_f"] == 0.0


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(1, IMAGES))
def test_figures_do_not_depend_on_the_batch_size_or_order(name, seed, size):
    task = TASKS[name]
    prediction, target = maps(task, seed)
    order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(seed))
    batches = zip(prediction[order].split(size), target[order].split(size), strict=True)
    same(compute(task, *batches), compute(task, (prediction, target)))


@pytest.mark.parametrize("name", TASKS)
def test_without_a_label_every_figure_is_nan_and_reset_forgets(name):
    task = TASKS[name]
    prediction, target = maps(task)
    nothing = torch.full_like(target, MISSING_CLASS if task.loss == "cross_entropy" else math.nan)
    metrics = task_metrics(task)
    metrics.update(prediction, target)
    before = metrics.compute()
    metrics.reset()
    metrics.update(prediction, nothing)
    assert all(math.isnan(value) for value in metrics.compute().values())
    metrics.reset()
    metrics.update(prediction, target)
    same(metrics.compute(), before)


def _figures(job: tuple[str, int], workers: Workers) -> dict[str, float]:
    """Worker 0 has the first `share` images, worker 1 the rest."""
    name, share = job
    prediction, target = maps(TASKS[name])
    mine = slice(0, share) if workers.rank == 0 else slice(share, IMAGES)
    metrics = task_metrics(TASKS[name])
    for part in zip(prediction[mine].split(5), target[mine].split(5), strict=True):
        if len(part[0]):
            metrics.update(*part)
    return metrics.compute()


def test_two_workers_agree_on_one_workers_figures():
    """Unequal shares, and one where worker 1 has no image at all."""
    jobs = [(name, share) for name in TASKS for share in (5, IMAGES)]
    for rank in two_workers(_figures, jobs):
        for (name, _), found in zip(jobs, rank, strict=True):
            same(found, compute(TASKS[name], maps(TASKS[name])))


def test_directions_and_units_of_the_new_metrics():
    for name in ("miou", "pixel_accuracy", "max_f", "within_11.25", "within_22.5", "within_30"):
        assert all_metrics()[name].higher_is_better and all_metrics()[name].unit == "%"
    for name in ("abs_err", "rel_err", "angle_mean", "angle_median", "angle_rmse", "pixel_error"):
        assert not all_metrics()[name].higher_is_better


def test_total_error_is_the_sum_over_tasks():
    assert total_error({"Goatee": {"error": 3.5, "f1": 1.0}, "Mustache": {"error": 2.0}}) == 5.5
    with pytest.raises(ValueError, match="Mustache"):
        total_error({"Goatee": {"error": 3.5}, "Mustache": {"f1": 2.0}})


def test_cosine_loss_by_hand():
    prediction = torch.tensor([[2.0, 0, 0], [0, 3, 0], [1, 1, 0], [1, 0, 0]]).T.reshape(1, 3, 1, 4)
    target = torch.tensor([[1.0, 0, 0], [0, -1, 0], [1, 0, 0], [math.nan, 0, 0]]).T.reshape(1, 3, 1, 4)
    prediction = prediction.clone().requires_grad_()
    total, count = task_loss("cosine", prediction, target)
    assert count == 3  # same direction 0, opposite 2, 45 degrees 1 − 1/√2; the last one is missing
    assert total.item() == pytest.approx(3 - 0.5**0.5, rel=1e-6)
    (gradient,) = torch.autograd.grad(total, prediction)
    assert gradient.isfinite().all() and not gradient[..., 3].any()
