"""MultiMNIST's construction, with the digits of scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, knob
from mtlscale.data.sampling.splits import hash_split
from pipelines._steps.features import lists
from pipelines.contract import Pipeline, PrepareContext, Prepared
from pipelines.image.digits import DIGITS, FRACTIONS, WHITE, digits_fingerprint

SIDE = 8  # pixels of a digit


class DigitPairs(Pipeline):
    """Pairs of handwritten digits in one image that overlap: which is at the top left, which at the bottom right?

    This is MultiMNIST's construction (Sabour et al. 2017; Sener & Koltun 2018) on scikit-learn's 8x8 digits. Two tasks
    of ten classes share their input, a vector of (8 + `shift`)² pixels. Where the digits overlap, the brighter pixel
    counts. The digits of a split occur in no other one; pairs are drawn with `seed`.
    """

    name: ClassVar[str] = "digit_pairs"
    source: ClassVar[str] = "scikit-learn load_digits, paired as MultiMNIST (Sabour et al. 2017)"
    needs_source: ClassVar[bool] = False

    shift: int = knob(4, low=0, high=8, help="pixels from one digit to the other, to the right and down; 8: no overlap")
    pairs: int = knob(4000, low=10, help="pairs in train; a fifth as many in val, and in test")
    seed: int = knob(0, low=0, help="of the pairs")

    def source_fingerprint(self, located: Path | None) -> str:
        return digits_fingerprint(self.name)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        images = (images / WHITE).reshape(-1, SIDE, SIDE)
        split_of = np.array([hash_split(f"{index:04d}", FRACTIONS, "digits") for index in range(len(labels))])

        tables = {}
        for number, split in enumerate(SPLITS):
            rng = np.random.default_rng((self.seed, number))
            count = self.pairs if split == "train" else max(1, self.pairs // 5)
            first, second = rng.choice(np.flatnonzero(split_of == split), (2, count))
            columns = {
                "id": pa.array([f"{split}/{row:05d}" for row in range(count)]),
                "input": lists(self._overlaid(images[first], images[second])),
                "target.top_left": labels[first].astype(np.int8),
                "target.bottom_right": labels[second].astype(np.int8),
            }
            tables[split] = {"all": pa.table(columns)}

        tasks = tuple(
            Task(
                name=task,
                loss="cross_entropy",
                outputs=len(DIGITS),
                metrics=("accuracy", "cross_entropy"),
                classes=tuple(map(str, DIGITS)),
            )
            for task in ("top_left", "bottom_right")
        )
        shape = ((SIDE + self.shift) ** 2,)
        suite = TaskSuite(name=self.name, tasks=tasks, inputs="shared", input_kind="vector", input_shape=shape)
        return Prepared(suite, tables)

    def _overlaid(self, top_left: np.ndarray, bottom_right: np.ndarray) -> np.ndarray:
        """Return the images [N, side²] with both digits, from images [N, 8, 8] of each."""
        side = SIDE + self.shift
        canvas = np.zeros((2, len(top_left), side, side))
        canvas[0, :, :SIDE, :SIDE] = top_left
        canvas[1, :, self.shift :, self.shift :] = bottom_right
        return canvas.max(axis=0).reshape(len(top_left), -1)
