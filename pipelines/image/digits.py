"""The 1,797 handwritten digits (8x8) that scikit-learn ships, as ten one-against-rest tasks."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob
from mtlscale.data.sampling.splits import hash_split, uniform_hash
from pipelines._steps.features import scaling
from pipelines.contract import Pipeline, PrepareContext, Prepared

DIGITS = range(10)
PIXELS = 64
WHITE = 16.0  # the largest value of a pixel
FRACTIONS = {"test": 0.2, "val": 0.16, "train": 0.64}  # 80/20, and 20 % of the 80 held out


class Digits(Pipeline):
    """Handwritten digits, 8x8: is it this digit? Ten balanced binary tasks, each with its own images (no download).

    This is MNIST-MTL's protocol (Zhang & Lee 2020) on scikit-learn's digits. Task `digit3` has every 3 and, of each
    other digit, as many images as `negatives` says. An image occurs once in a task and, where there are enough, is a
    negative of one task only; its split is the same in every task.
    """

    name: ClassVar[str] = "digits"
    source: ClassVar[str] = "scikit-learn load_digits, UCI optical recognition of handwritten digits (test part)"
    needs_source: ClassVar[bool] = False

    negatives: int = knob(20, low=1, high=174, help="images of each other digit in a task; 20 balances the classes")

    def source_fingerprint(self, located: Path | None) -> str:
        return digits_fingerprint(self.name)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        pixels = (images / WHITE).astype(np.float32)
        ids = np.array([f"{index:04d}" for index in range(len(labels))])
        split_of = np.array([hash_split(str(id), FRACTIONS, self.name) for id in ids])

        tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
        for digit in DIGITS:
            chosen = np.concatenate([np.flatnonzero(labels == digit), self._negatives(digit, ids, labels)])
            for split in SPLITS:
                rows = chosen[split_of[chosen] == split]
                tables[split][f"digit{digit}"] = pa.table(
                    {
                        "id": ids[rows],
                        "input": pa.FixedSizeListArray.from_arrays(pixels[rows].ravel(), PIXELS),
                        f"target.digit{digit}": (labels[rows] == digit).astype(np.int8),
                    }
                )

        suite = TaskSuite(name=self.name, tasks=TASKS, inputs="per_task", input_kind="vector", input_shape=(PIXELS,))
        return Prepared(suite, tables, notes={"standardised": scaling([0.0] * PIXELS, [WHITE] * PIXELS)})

    def _negatives(self, digit: int, ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Choose rows of the other digits; each task has its own stretch of a digit's images, ordered by hash."""
        rows = []
        for other_digit in DIGITS:
            if other_digit != digit:
                images = sorted(
                    np.flatnonzero(labels == other_digit), key=lambda row: uniform_hash(str(ids[row]), "negatives")
                )
                start = (digit - (digit > other_digit)) * self.negatives  # one of nine stretches
                rows.append(np.take(images, range(start, start + self.negatives), mode="wrap"))
        return np.concatenate(rows)


def digits_fingerprint(name: str) -> str:
    """Return the hash of scikit-learn's file of digits, for a pipeline of this name.

    The file itself is hashed, since importing scikit-learn takes a second.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise UserError(f"{name}: scikit-learn is not installed; pip install scikit-learn")

    data = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    return hashlib.sha256(data.read_bytes()).hexdigest()


TASKS = tuple(
    Task(name=f"digit{digit}", loss="cross_entropy", outputs=2, metrics=("accuracy",), classes=("rest", str(digit)))
    for digit in DIGITS
)
