"""Linear and logistic regressions by scikit-learn, for each task by itself or in one model with a task indicator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mtlscale.config import MISSING_CLASS, Task

Array = npt.NDArray[Any]
Rows = Any  # [n, features], a numpy array or a scipy sparse matrix

_RARE = math.log(1e-6)  # the logit of a class that no training label has
_CLASSES = ("cross_entropy", "soft_cross_entropy", "bce")


@dataclass(frozen=True)
class Examples:
    """Rows [n, features] and their labels: [n] classes, or [n, outputs] numbers. Labels may be missing."""

    rows: Rows
    labels: Array

    def of(self, kept: Any) -> Examples:
        return Examples(self.rows[kept], self.labels[kept])


@dataclass(frozen=True)
class LinearFit:
    """The linear predictor rows @ weights.T + offsets, with weights [outputs, features] and offsets [outputs]."""

    weights: Array
    offsets: Array

    def __call__(self, rows: Rows) -> Array:
        return np.asarray(rows @ self.weights.T) + self.offsets


Fits = dict[str, LinearFit]  # task -> its predictor

_Kind = Callable[[Mapping[str, Task], Mapping[str, Examples], float], Fits]
_MANY = 100  # tasks on which strength and kind are chosen, at most

_last_fits: dict[str, Fits] = {}  # hash of the tasks, examples and strengths -> their regressions; of one alone


def fit(
    tasks: Mapping[str, Task],
    train: Mapping[str, Examples],
    val: Mapping[str, Examples],
    strengths: Sequence[float],
) -> Fits:
    """Return the regressions that predict validation best, by the mean over tasks.

    For each strength every task has a regression of its own; if all tasks have labels of one kind, one regression of
    all tasks with an indicator of the task is a candidate too. Of more than 100 tasks, 100 at even distances choose,
    and the best candidate is then fitted to all. The last result is kept: a floor of another seed has the same
    examples, if no part of them is drawn.

    Args:
        strengths: Inverse strengths of the penalty to choose from.
    """
    import joblib

    key = joblib.hash((dict(tasks), dict(train), dict(val), tuple(strengths)))
    if key not in _last_fits:
        fits = _best_fits(tasks, train, val, strengths)
        _last_fits.clear()
        _last_fits[key] = fits
    return _last_fits[key]


def _best_fits(
    tasks: Mapping[str, Task],
    train: Mapping[str, Examples],
    val: Mapping[str, Examples],
    strengths: Sequence[float],
) -> Fits:
    from threadpoolctl import threadpool_limits

    names = list(tasks)
    if len(names) > _MANY:
        names = [names[place * len(names) // _MANY] for place in range(_MANY)]
    some = {name: tasks[name] for name in names}
    some_train, some_val = (
        {name: labelled(task, examples[name]) for name, task in some.items()} for examples in (train, val)
    )
    kinds: list[_Kind] = [_each_alone]
    if len({(task.loss, task.outputs) for task in tasks.values()}) == 1 < len(tasks):
        kinds.append(_together)

    best: tuple[float, _Kind, float, Fits] | None = None
    with threadpool_limits(limits=1):
        for strength in strengths:
            for kind in kinds:
                fits = kind(some, some_train, strength)
                score = _score(some, fits, some_val)
                if best is None or score > best[0]:
                    best = score, kind, strength, fits

        assert best is not None
        _, kind, strength, fits = best
        if len(some) < len(tasks):
            fits = kind(tasks, {name: labelled(task, train[name]) for name, task in tasks.items()}, strength)
    return fits


def labelled(task: Task, examples: Examples) -> Examples:
    """Return the examples that have a label."""
    labels = examples.labels
    if labels.dtype.kind == "f":
        return examples.of(~np.isnan(labels).reshape(len(labels), -1).any(1))
    return examples.of((labels.reshape(len(labels), -1) != MISSING_CLASS).all(1))


def _score(tasks: Mapping[str, Task], found: Fits, val: Mapping[str, Examples]) -> float:
    """Return the mean over tasks of accuracy, or of minus the squared error over the labels' variance."""
    scores = [_of_task(task, found[name](val[name].rows), val[name].labels) for name, task in tasks.items()]
    finite_scores = [score for score in scores if not math.isnan(score)]
    return sum(finite_scores) / len(finite_scores) if finite_scores else 0.0


def _of_task(task: Task, predicted: Array, labels: Array) -> float:
    if not len(labels):
        return math.nan
    if task.loss == "cross_entropy":
        return float((predicted.argmax(1) == labels).mean())
    if task.loss == "soft_cross_entropy":
        return float((predicted.argmax(1) == labels.argmax(1)).mean())
    labels = labels.reshape(predicted.shape)
    if task.loss == "bce":
        return float(((predicted > 0) == (labels > 0.5)).mean())
    return -float(np.square(predicted - labels).mean() / max(labels.var(), 1e-12))


def _alone(task: Task, examples: Examples, strength: float) -> LinearFit:
    rows, labels = examples.rows, examples.labels
    if not len(labels):
        return LinearFit(np.zeros((task.outputs, rows.shape[1])), np.zeros(task.outputs))

    if task.loss not in _CLASSES:
        return _ridge(rows, labels.reshape(len(labels), task.outputs), strength)
    if task.loss == "cross_entropy":
        return _logistic(rows, labels, task.outputs, strength)

    labels = labels.reshape(len(labels), task.outputs)
    if task.loss == "bce":
        models = [_logistic(rows, (column > 0.5).astype(int), 2, strength) for column in labels.T]
        return LinearFit(
            np.stack([model.weights[1] - model.weights[0] for model in models]),
            np.array([model.offsets[1] - model.offsets[0] for model in models]),
        )

    # A soft label becomes one sample per class, with the weight of that class.
    classes = np.tile(np.arange(task.outputs), len(labels))
    weights = labels.reshape(-1)
    positive = weights > 1e-9
    return _logistic(
        rows[np.repeat(np.arange(len(labels)), task.outputs)[positive]],
        classes[positive],
        task.outputs,
        strength,
        weights[positive],
    )


def _each_alone(tasks: Mapping[str, Task], train: Mapping[str, Examples], strength: float) -> Fits:
    return {name: _alone(task, train[name], strength) for name, task in tasks.items()}


def _together(tasks: Mapping[str, Task], train: Mapping[str, Examples], strength: float) -> Fits:
    """Fit one model on all tasks' samples, whose rows are extended by an indicator of the task."""
    from scipy import sparse

    counts = [len(train[name].labels) for name in tasks]
    indicator = sparse.csr_array(
        (np.ones(sum(counts)), (np.arange(sum(counts)), np.repeat(np.arange(len(tasks)), counts))),
        shape=(sum(counts), len(tasks)),
    )

    rows = sparse.vstack([sparse.csr_array(train[name].rows) for name in tasks])
    labels = np.concatenate([train[name].labels for name in tasks])
    model = _alone(
        next(iter(tasks.values())), Examples(sparse.hstack([rows, indicator], format="csr"), labels), strength
    )

    task_weights, shared_weights = model.weights[:, -len(tasks) :], model.weights[:, : -len(tasks)]
    return {name: LinearFit(shared_weights, model.offsets + task_weights[:, index]) for index, name in enumerate(tasks)}


def _ridge(rows: Rows, labels: Array, strength: float) -> LinearFit:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1.0 / strength).fit(rows, labels)
    weights = np.asarray(model.coef_).reshape(labels.shape[1], -1)
    return LinearFit(weights, np.broadcast_to(np.asarray(model.intercept_, dtype=float), (labels.shape[1],)).copy())


def _logistic(rows: Rows, labels: Array, outputs: int, strength: float, weights: Array | None = None) -> LinearFit:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    coefficients, offsets = np.zeros((outputs, rows.shape[1])), np.full(outputs, _RARE)

    present = np.unique(labels)
    if len(present) == 1:
        offsets[present] = 0.0
        return LinearFit(coefficients, offsets)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best of a few is chosen on validation
        model = LogisticRegression(C=strength, max_iter=300).fit(rows, labels, sample_weight=weights)

    if len(present) == 2:
        coefficients[present[1]], offsets[present] = model.coef_[0], (0.0, model.intercept_[0])
    else:
        coefficients[present], offsets[present] = model.coef_, model.intercept_
    return LinearFit(coefficients, offsets)
