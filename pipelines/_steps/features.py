"""Helpers of the pipelines of plain feature vectors: random splits, standardising, PCA, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError
from mtlscale.data.sampling.splits import uniform_hash
from pipelines.contract import Prepared

TEST, VALIDATION = 0.2, 0.2  # Zhang & Lee, CIKM 2020: 20 % test, 20 % of the rest validation


@dataclass(frozen=True)
class Vectors:
    """The samples of one task.

    Attributes:
        ids: [N].
        features: [N, D].
        targets: [N] or [N, outputs].
        rows: split -> indices of its samples.
    """

    ids: np.ndarray
    features: np.ndarray
    targets: np.ndarray
    rows: Mapping[str, np.ndarray]


def random_split(
    name: str,
    task: str,
    ids: Sequence[str] | np.ndarray,
    salt: str,
    classes: np.ndarray | None = None,
    *,
    test: float = TEST,
    validation: float = VALIDATION,
) -> dict[str, np.ndarray]:
    """Return split -> its rows, drawn in exact shares by the hash of the samples' ids and the salt.

    Args:
        name: The pipeline, for messages.
        task: The task, for messages.
        ids: The ids [N] that are hashed.
        salt: The salt of the hash.
        classes: Labels [N] to stratify the split by; one sample of each class always stays in train.
        test: Share of the samples for test.
        validation: Share of the samples outside test for validation.

    Raises:
        UserError: There are too few samples.
    """
    count = len(ids)
    hashes = np.array([uniform_hash(str(id), salt) for id in ids])
    labels = np.zeros(count, dtype=int) if classes is None else classes
    order = np.lexsort((hashes, labels))

    is_first = np.append(count > 0, np.diff(labels[order]) != 0)[:count]  # marks the first sample of each class
    first_rows, remaining = order[is_first], order[~is_first]

    tests = int(test * count + 0.5)
    validations = int(validation * (count - tests) + 0.5)
    if min(tests, validations) < 1 or tests + validations > len(remaining):
        raise UserError(
            f"{name}: task {task} has {count} samples, too few for {test:.0%} test and {validation:.0%} of the rest "
            "validation; leave the task out"
        )

    is_test = _evenly(len(remaining), tests)
    outside_test = remaining[~is_test]
    is_validation = _evenly(len(outside_test), validations)
    return {
        "test": remaining[is_test],
        "val": outside_test[is_validation],
        "train": np.append(first_rows, outside_test[~is_validation]),
    }


def _evenly(count: int, chosen: int) -> np.ndarray:
    """Return a mask [count] with `chosen` entries at even distances, so that every stretch has about the same share."""
    return np.diff(np.arange(count + 1) * chosen // count) > 0


def standardise(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Scale columns to mean 0 and variance 1 over the rows of train; a column that is constant there becomes 0."""
    return standardised(features, train)[0]


def standardised(
    features: np.ndarray, train: np.ndarray, columns: np.ndarray | None = None
) -> tuple[np.ndarray, dict[str, list[float]]]:
    """Return the features as `standardise` does, and the note by which raw features of later samples are scaled.

    Args:
        features: [N, D].
        train: The rows of train.
        columns: Mask of the columns to scale; None: all.
    """
    mean, deviation = features[train].mean(0), features[train].std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    if columns is not None:
        mean, deviation = np.where(columns, mean, 0.0), np.where(columns, deviation, 1.0)

    return (features - mean) / deviation, scaling(mean.tolist(), deviation.tolist())


def scaling(mean: list[float], deviation: list[float]) -> dict[str, list[float]]:
    """Return the note `standardised`: the mean to subtract from raw features, and the deviation to divide by."""
    return {"mean": mean, "deviation": deviation}


def repeated_inputs(tables: Mapping[str, Mapping[str, pa.Table]]) -> dict[str, int]:
    """Return stream -> number of its test inputs that also occur in training or validation of any stream, if above 0.

    Args:
        tables: Split -> stream -> table.
    """
    rows = {
        split: {stream: [row.tobytes() for row in _stored(table["input"])] for stream, table in streams.items()}
        for split, streams in tables.items()
    }
    known_inputs = {row for split in ("train", "val") for inputs in rows[split].values() for row in inputs}
    counts = {stream: sum(row in known_inputs for row in inputs) for stream, inputs in rows["test"].items()}
    return {stream: count for stream, count in counts.items() if count}


def _stored(column: pa.ChunkedArray) -> np.ndarray:
    return column.combine_chunks().flatten().to_numpy().reshape(len(column), -1)


def principal_components(name: str, features: np.ndarray, train: np.ndarray, components: int) -> np.ndarray:
    """Project [N, D] onto [N, components] by a PCA of the rows of train."""
    from sklearn.decomposition import PCA

    most = min(len(train), features.shape[1])
    if components > most:
        raise UserError(
            f"{name}: {components} components are more than {most}, the smaller of training samples and features; "
            "lower `components`"
        )

    pca = PCA(components, svd_solver="covariance_eigh").fit(features[train])
    # Rounded: the last bits of a matrix product depend on the number of threads, and so would the fingerprint.
    return np.round(pca.transform(features), 4)


def regressions(name: str, features: int, tasks: Mapping[str, Vectors], *, shared: bool = False) -> Prepared:
    """Return tasks of one number each, on vectors of their own or, if `shared`, on the same ones."""
    suite = TaskSuite(
        name=name,
        tasks=tuple(Task(name=task, loss="mse", outputs=1, metrics=("rmse", "mae")) for task in tasks),
        inputs="shared" if shared else "per_task",
        input_kind="vector",
        input_shape=(features,),
    )
    return Prepared(suite, shared_tables(tasks) if shared else vector_tables(tasks))


def shared_tables(tasks: Mapping[str, Vectors]) -> dict[str, dict[str, pa.Table]]:
    """Return split -> "all" -> the table of the ids and inputs, which all tasks have, and of every task's targets."""
    first, *_ = tasks.values()
    return {
        split: {
            "all": pa.table(
                {
                    "id": pa.array(first.ids[first.rows[split]]),
                    "input": lists(first.features[first.rows[split]]),
                    **{
                        f"target.{task}": _target(vectors.targets[vectors.rows[split]])
                        for task, vectors in tasks.items()
                    },
                }
            )
        }
        for split in SPLITS
    }


def vector_tables(tasks: Mapping[str, Vectors]) -> dict[str, dict[str, pa.Table]]:
    """Return split -> task -> table of ids, inputs and targets; integer targets are classes, others numbers."""
    return {
        split: {
            task: pa.table(
                {
                    "id": pa.array(vectors.ids[vectors.rows[split]]),
                    "input": lists(vectors.features[vectors.rows[split]]),
                    f"target.{task}": _target(vectors.targets[vectors.rows[split]]),
                }
            )
            for task, vectors in tasks.items()
        }
        for split in SPLITS
    }


def lists(values: np.ndarray) -> pa.Array:
    """Convert [N, D] to N fixed-size lists of float32."""
    return pa.FixedSizeListArray.from_arrays(values.astype(np.float32).ravel(), values.shape[1])


def _target(values: np.ndarray) -> pa.Array:
    if values.ndim > 1:
        return lists(values)
    return pa.array(values.astype(np.int64 if values.dtype.kind in "iub" else np.float32))


def one_against_rest(
    name: str,
    features: np.ndarray,
    labels: np.ndarray,
    classes: Mapping[str, int],
    *,
    positives: int,
    negatives: int,
    components: int,
    split: int,
) -> dict[str, Vectors]:
    """Return a binary task per class: `positives` samples of it and `negatives` of each other class.

    No sample is in two tasks. The features become principal components of the tasks' training samples.

    Args:
        name: The pipeline, for messages and the hash.
        features: [N, D].
        labels: [N].
        classes: Task name -> label.
        positives: Samples of a task's own class.
        components: Number of principal components.

    Raises:
        UserError: A class has too few samples.
    """
    chosen = _without_overlap(name, labels, classes, positives, negatives)
    ids = {task: np.array([f"{row:06d}" for row in rows]) for task, rows in chosen.items()}
    truth = {task: labels[rows] == classes[task] for task, rows in chosen.items()}
    splits = {task: random_split(name, task, ids[task], f"{name}/{split}", truth[task]) for task in chosen}

    starts = np.cumsum([0, *map(len, chosen.values())])[:-1]
    train = np.concatenate([start + splits[task]["train"] for start, task in zip(starts, chosen, strict=True)])
    used = np.concatenate(list(chosen.values()))
    reduced = np.split(principal_components(name, features[used], train, components), starts[1:])

    return {
        task: Vectors(ids[task], part, truth[task], splits[task]) for task, part in zip(chosen, reduced, strict=True)
    }


def _without_overlap(
    name: str, labels: np.ndarray, classes: Mapping[str, int], positives: int, negatives: int
) -> dict[str, np.ndarray]:
    """Return the rows of each task, dealing out each class in the order of hashes, a stretch to every task."""
    needed = positives + negatives * (len(classes) - 1)
    stock = {}
    for task, label in classes.items():
        rows = np.flatnonzero(labels == label)
        if len(rows) < needed:
            raise UserError(
                f"{name}: there are {len(rows)} samples of {task}, its own task and the others need {needed}; lower "
                "`positives` or `negatives`"
            )
        stock[task] = rows[np.argsort([uniform_hash(f"{row:06d}", f"{name}/{label}") for row in rows])]

    order = list(classes)
    tasks = {}
    for position, task in enumerate(order):
        parts = [stock[task][:positives]]
        for other_position, other_task in enumerate(order):
            if other_task != task:
                start = positives + (position - (position > other_position)) * negatives
                parts.append(stock[other_task][start : start + negatives])
        tasks[task] = np.concatenate(parts)

    return tasks
