"""What the pipelines of plain feature vectors share: random splits, standardising, PCA, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mtlscale.data.splits import uniform_hash
from mtlscale.spec import SPLITS, Task, TaskSuite, UserError
from pipelines._base import Prepared

TEST, VALIDATION = 0.2, 0.2  # Zhang & Lee, CIKM 2020: 20 % test, 20 % of the rest validation


@dataclass(frozen=True)
class Vectors:
    """The samples of one task: ids [N], features [N, D], targets [N] or [N, outputs], and the rows of each split."""

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
    """Split -> its rows, drawn by the hash of the samples' ids and the salt, in exact shares.

    classes [N]: the split is stratified by them, and one sample of each class always stays in train. `validation` is
    the share of what `test` leaves. Raises `UserError` where the samples are too few.
    """
    count = len(ids)
    hashes = np.array([uniform_hash(str(id), salt) for id in ids])
    labels = np.zeros(count, dtype=int) if classes is None else classes
    order = np.lexsort((hashes, labels))
    first = np.append(count > 0, np.diff(labels[order]) != 0)[:count]  # of each class
    kept, rest = order[first], order[~first]
    tests = int(test * count + 0.5)
    validations = int(validation * (count - tests) + 0.5)
    if min(tests, validations) < 1 or tests + validations > len(rest):
        raise UserError(
            f"{name}: task {task} has {count} samples, too few for {test:.0%} test and {validation:.0%} of the rest "
            "validation; leave the task out"
        )
    chosen = _evenly(len(rest), tests)
    left = rest[~chosen]
    held = _evenly(len(left), validations)
    return {"test": rest[chosen], "val": left[held], "train": np.append(kept, left[~held])}


def _evenly(count: int, chosen: int) -> np.ndarray:
    """Mask [count] with that many chosen at even distances: in every stretch about the same share."""
    return np.diff(np.arange(count + 1) * chosen // count) > 0


def standardise(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Columns at mean 0 and variance 1 over the rows of train; a column that is constant there becomes 0."""
    return standardised(features, train)[0]


def standardised(
    features: np.ndarray, train: np.ndarray, columns: np.ndarray | None = None
) -> tuple[np.ndarray, dict[str, list[float]]]:
    """The same, and what was taken off and divided by: a note that raw features of later samples are read by.

    columns: a mask of those that are scaled; none: all.
    """
    mean, deviation = features[train].mean(0), features[train].std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    if columns is not None:
        mean, deviation = np.where(columns, mean, 0.0), np.where(columns, deviation, 1.0)
    return (features - mean) / deviation, scaling(mean.tolist(), deviation.tolist())


def scaling(mean: list[float], deviation: list[float]) -> dict[str, list[float]]:
    """The note `standardised`: what is taken off the raw features, and what they are divided by then."""
    return {"mean": mean, "deviation": deviation}


def seen_inputs(tasks: Mapping[str, Vectors]) -> dict[str, int]:
    """Task -> how many of its test inputs stand in training or validation, too, of whatever task; where there are."""
    known: set[bytes] = set()
    for vectors in tasks.values():
        for split in ("train", "val"):
            known |= set(_as_bytes(vectors, split))
    counts = {task: sum(row in known for row in _as_bytes(vectors, "test")) for task, vectors in tasks.items()}
    return {task: count for task, count in counts.items() if count}


def _as_bytes(vectors: Vectors, split: str) -> list[bytes]:
    """The inputs of a split as they are stored."""
    return [row.tobytes() for row in vectors.features[vectors.rows[split]].astype(np.float32)]


def principal_components(name: str, features: np.ndarray, train: np.ndarray, components: int) -> np.ndarray:
    """[N, D] -> [N, components], by a PCA of the rows of train."""
    from sklearn.decomposition import PCA

    most = min(len(train), features.shape[1])
    if components > most:
        raise UserError(
            f"{name}: {components} components are more than {most}, the smaller of training samples and features; "
            "lower `components`"
        )
    pca = PCA(components, svd_solver="covariance_eigh").fit(features[train])
    # Rounded, because the last bits of a matrix product depend on the number of threads, and so would the fingerprint.
    return np.round(pca.transform(features), 4)


def regressions(name: str, features: int, tasks: Mapping[str, Vectors]) -> Prepared:
    """Tasks of one number each, on vectors of their own."""
    suite = TaskSuite(
        name=name,
        tasks=tuple(Task(name=task, loss="mse", outputs=1, metrics=("rmse", "mae")) for task in tasks),
        inputs="per_task",
        input_kind="vector",
        input_shape=(features,),
    )
    return Prepared(suite, vector_tables(tasks))


def vector_tables(tasks: Mapping[str, Vectors]) -> dict[str, dict[str, pa.Table]]:
    """Split -> task -> table of ids, inputs and targets: integers as classes, anything else as numbers."""
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
    """[N, D] -> N fixed-size lists of float32."""
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
    """A binary task for each class (task name -> label): `positives` samples of it and `negatives` of each other class.

    No sample is in two tasks. The features [N, D] become principal components of the tasks' training samples. Raises
    `UserError` where a class has too few samples.
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
    """The rows of each task: a class's samples in the order of their hashes are dealt out, a stretch to every task."""
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
    for place, task in enumerate(order):
        parts = [stock[task][:positives]]
        for other_place, other in enumerate(order):
            if other != task:
                start = positives + (place - (place > other_place)) * negatives
                parts.append(stock[other][start : start + negatives])
        tasks[task] = np.concatenate(parts)
    return tasks
