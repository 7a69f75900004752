"""CoNAL's synthetic study: tasks apply equal or different activations to one product of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import SPLITS, UserError, knob, nearest
from pipelines._steps.features import Vectors, regressions, standardise
from pipelines.contract import Pipeline, PrepareContext, Prepared

FEATURES = 200
INPUT_SPREAD, TASK_SPREAD = 10.0, 2.0  # of x ~ N(0, 10) and δ_t ~ N(0, 2): variances or deviations
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sinc": lambda z: np.sinc(z / np.pi),  # sin z / z
    "sinc_pi": np.sinc,  # sin πz / πz
    "bent": lambda z: (np.sqrt(z**2 + 1) - 1) / 2 + z,  # the bent identity
    "square": np.square,
}


class Activations(Pipeline):
    """CoNAL's synthetic study: y = A((x + δ_t)·Z / 200) for each task t, without noise.

    x, δ_t and Z are drawn once per `seed` and `split`. All tasks share x, and δ_t shifts it: by default in the inputs
    too, so that each task has inputs of its own; with `inputs: shared` in the targets alone. The paper's study has
    training samples only; here validation and test get as many each, drawn the same way with the same Z.

    The paper does not say several things that decide its outcome; each is an option. `spread`: whether 10 and 2 of
    N(0, 10) and N(0, 2) are variances. With them, `divisor: 200` as printed leaves a product with a standard deviation
    of about ¼, where sinc is nearly constant and the bent identity nearly linear. `standardise`: the scale of the
    numbers that the networks see. Standardised targets no longer have the factors of `scales`.
    """

    name: ClassVar[str] = "activations"
    source: ClassVar[str] = "CoNAL (Yue's thesis), section 5.4.11"
    needs_source: ClassVar[bool] = False
    delta: ClassVar[tuple[str, ...]] = ("rmse",)

    activations: tuple[str, ...] = knob(("sinc", "bent", "square"), help=f"of the tasks: {', '.join(ACTIVATIONS)}")
    scales: tuple[float, ...] = knob((), help="factors of the activations, one each; default: 1")
    samples: int = knob(100, low=2, help="of each task in train, and as many in val and in test")
    divisor: float = knob(200.0, low=0.0, open_low=True, help="what the product of features is divided by")
    spread: str = knob(
        "variance", choices=("variance", "deviation"), help="what 10 and 2 of the inputs are", later=True
    )
    inputs: str = knob(
        "own", choices=("own", "shared"), help="whether a task's shift is in its inputs, too", later=True
    )
    standardise: str = knob(
        "none", choices=("none", "inputs", "all"), help="what has mean 0 and deviation 1 over training", later=True
    )
    seed: int = knob(0, low=0, help="of the data")
    split: int = knob(0, low=0, help="which draw of the data", later=True)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        tasks = list(zip(self._names(), self.activations, self._scales(), strict=True))
        rng = np.random.default_rng([self.seed, self.split] if self.split else self.seed)
        weights = rng.normal(size=FEATURES)

        count = self.samples * len(SPLITS)
        rows = dict(zip(SPLITS, np.split(np.arange(count), len(SPLITS)), strict=True))
        common = rng.normal(scale=self._deviation(INPUT_SPREAD), size=(count, FEATURES))

        samples = {}
        for name, activation, scale in tasks:
            shifted = common + rng.normal(scale=self._deviation(TASK_SPREAD), size=common.shape)
            targets = scale * ACTIVATIONS[activation](shifted @ weights / self.divisor)
            inputs = shifted if self.inputs == "own" else common

            if self.standardise != "none":
                inputs = standardise(inputs, rows["train"])
            if self.standardise == "all":
                targets = standardise(targets[:, None], rows["train"])[:, 0]

            owner = name if self.inputs == "own" else "all"
            samples[name] = Vectors(np.array([f"{owner}/{row:06d}" for row in range(count)]), inputs, targets, rows)
        return regressions(self.name, FEATURES, samples, shared=self.inputs == "shared")

    def _deviation(self, spread: float) -> float:
        return float(np.sqrt(spread)) if self.spread == "variance" else spread

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
