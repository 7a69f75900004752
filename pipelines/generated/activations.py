"""CoNAL's synthetic study: tasks apply equal or different activations to one product of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import SPLITS, UserError, knob, nearest
from pipelines._steps.features import Vectors, regressions
from pipelines.contract import Pipeline, PrepareContext, Prepared

FEATURES = 200
INPUT_VARIANCE, TASK_VARIANCE = 10.0, 2.0  # variances of x and of δ_t
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sinc": lambda z: np.sinc(z / np.pi),  # sin z / z
    "bent": lambda z: (np.sqrt(z**2 + 1) - 1) / 2 + z,  # the bent identity
    "square": np.square,
}


class Activations(Pipeline):
    """CoNAL's synthetic study: y = A((x + δ_t)·Z / 200) for each task t, without noise.

    x, δ_t and Z are drawn once per `seed`. All tasks share x, and δ_t shifts it, so each task has inputs of its own.
    The paper's study has training samples only; here validation and test get as many each, drawn the same way with the
    same Z. `divisor: 200` is as printed. It leaves a product with a standard deviation of about ¼, where sinc is nearly
    constant and the bent identity nearly linear; a smaller divisor spreads the product.
    """

    name: ClassVar[str] = "activations"
    source: ClassVar[str] = "CoNAL (Yue's thesis), section 5.4.11"
    needs_source: ClassVar[bool] = False
    delta: ClassVar[tuple[str, ...]] = ("rmse",)

    activations: tuple[str, ...] = knob(("sinc", "bent", "square"), help="of the tasks: sinc, bent, square")
    scales: tuple[float, ...] = knob((), help="factors of the activations, one each; default: 1")
    samples: int = knob(100, low=2, help="of each task in train, and as many in val and in test")
    divisor: float = knob(200.0, low=0.0, open_low=True, help="what the product of features is divided by")
    seed: int = knob(0, low=0, help="of the data")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        tasks = list(zip(self._names(), self.activations, self._scales(), strict=True))
        rng = np.random.default_rng(self.seed)
        weights = rng.normal(size=FEATURES)

        count = self.samples * len(SPLITS)
        rows = dict(zip(SPLITS, np.split(np.arange(count), len(SPLITS)), strict=True))
        common = rng.normal(scale=np.sqrt(INPUT_VARIANCE), size=(count, FEATURES))

        samples = {}
        for name, activation, scale in tasks:
            inputs = common + rng.normal(scale=np.sqrt(TASK_VARIANCE), size=common.shape)
            targets = scale * ACTIVATIONS[activation](inputs @ weights / self.divisor)
            samples[name] = Vectors(np.array([f"{name}/{row:06d}" for row in range(count)]), inputs, targets, rows)
        return regressions(self.name, FEATURES, samples)

    def _names(self) -> list[str]:
        """Return a name for each activation, numbered where several tasks have the same one."""
        if not self.activations:
            raise UserError(f"{self.name}: activations is empty; name one for each task, of {', '.join(ACTIVATIONS)}")
        for name in self.activations:
            if name not in ACTIVATIONS:
                raise UserError(f"{self.name}: unknown activation {name!r}: {nearest(name, list(ACTIVATIONS))}")
        return [
            f"{name}{self.activations[: position + 1].count(name)}" if self.activations.count(name) > 1 else name
            for position, name in enumerate(self.activations)
        ]

    def _scales(self) -> Sequence[float]:
        scales = self.scales or (1.0,) * len(self.activations)
        if len(scales) != len(self.activations):
            raise UserError(
                f"{self.name}: {len(scales)} scales for {len(self.activations)} activations; name one for each, or none"
            )
        if not all(scale and np.isfinite(scale) for scale in scales):
            raise UserError(f"{self.name}: a scale of 0 leaves nothing to learn; write numbers other than 0")
        return scales
