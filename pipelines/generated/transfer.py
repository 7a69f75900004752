"""Synthetic study of information transfer: a target task, and source tasks with equal or other input covariance."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import SPLITS, UserError, knob
from pipelines._steps.features import Vectors, regressions
from pipelines.contract import Pipeline, PrepareContext, Prepared

TARGET, SOURCE = "target", "source"


class Transfer(Pipeline):
    """Study of transfer between tasks on Gaussian inputs: does a source task help the target, and from which size on?

    Task i has y = θ_i·x + noise, or relu(θ_i·x) + noise, with |θ_i| = 1 and a source's θ at the given cosine with the
    target's, and inputs X_i = R_i D_i Q: R_i is standard normal, Q is orthogonal, D_i is diagonal with κ = `condition`
    on `rank` of d coordinates and 1 on the others, divided so that the features' mean variance is 1. `covariance` says
    what sources have: D and Q of the target (`same`), κ on other coordinates (`disjoint`), or another Q (`rotated`). Q
    is on the right of D; on the left, as printed, it would be lost in Gaussian samples. `split` draws everything anew;
    the target is the same for all choices of sources. `delta: [target.rmse]` in an experiment makes Δ the target's
    alone.
    """

    name: ClassVar[str] = "transfer"
    source: ClassVar[str] = "Wu, Zhang & Ré, ICLR 2020, section 2.3"
    needs_source: ClassVar[bool] = False
    delta: ClassVar[tuple[str, ...]] = ("rmse",)

    samples: int = knob(9000, low=2, help="training samples of the target")
    source_samples: int = knob(9000, low=2, help="training samples of each source")
    sources: int = knob(1, low=1, help="number of source tasks")
    held_out: int = knob(1000, low=2, help="samples of every task in val, and as many in test")
    covariance: str = knob("same", choices=("same", "disjoint", "rotated"), help="of the sources' inputs")
    cosine: float = knob(0.96, low=-1.0, high=1.0, help="of the target's and a source's weights θ")
    link: str = knob("linear", choices=("linear", "relu"), help="from θ·x to the label")
    features: int = knob(100, low=2, help="size of the input d")
    rank: int = knob(10, low=1, help="coordinates that vary more")
    condition: float = knob(100.0, low=1.0, help="deviation of these over that of the others, κ")
    noise: float = knob(1.0, low=0.0, help="deviation of the noise on labels; that of θ·x is about 1")
    seed: int = knob(0, low=0, help="of the data")
    split: int = knob(0, low=0, help="which draw of the data")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank > self.features:
            raise UserError(f"{self.name}: rank = {self.rank} is above the {self.features} features there are")
        if self.covariance == "disjoint" and 2 * self.rank > self.features:
            raise UserError(
                f"{self.name}: two disjoint subspaces of rank {self.rank} do not fit into {self.features} features; "
                "lower `rank` or choose covariance: rotated"
            )

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        return regressions(self.name, self.features, self.vectors())

    def vectors(self) -> dict[str, Vectors]:
        """Return the samples of every task, the target's first."""
        common = self._rng(0)
        theta = _unit(common.normal(size=self.features))
        deviations = np.where(np.arange(self.features) < self.rank, self.condition, 1.0)
        deviations /= np.sqrt(np.square(deviations).mean())
        rotation = _orthogonal(common, self.features)

        samples = {TARGET: self._task(TARGET, self._rng(1), self.samples, theta, deviations[:, None] * rotation)}

        if self.covariance == "disjoint":
            deviations = np.roll(deviations, self.rank)
        elif self.covariance == "rotated":
            rotation = _orthogonal(self._rng(2), self.features)

        for number in range(self.sources):
            name = SOURCE if self.sources == 1 else f"{SOURCE}{number + 1}"
            rng = self._rng(3, number)
            source_theta = _at_cosine(rng, theta, self.cosine)
            samples[name] = self._task(name, rng, self.source_samples, source_theta, deviations[:, None] * rotation)

        return samples

    def _rng(self, *stream: int) -> np.random.Generator:
        """Return a stream of its own, so that changing one option leaves the other data as they are."""
        return np.random.default_rng((self.seed, self.split, *stream))

    def _task(self, name: str, rng: np.random.Generator, train: int, theta: np.ndarray, root: np.ndarray) -> Vectors:
        """Draw the samples of a task from weights `theta` [d] and a root [d, d] of the inputs' covariance."""
        count = 2 * self.held_out + train
        # Held-out samples first: they are the same for every size.
        rows = np.split(np.arange(count), [self.held_out, 2 * self.held_out])
        draws = rng.normal(size=(count, self.features + 1))

        inputs = draws[:, :-1] @ root
        labels = inputs @ theta
        if self.link == "relu":
            labels = np.maximum(labels, 0.0)

        ids = np.array([f"{name}/{row:06d}" for row in range(count)])
        splits = dict(zip(("val", "test", "train"), rows, strict=True))
        return Vectors(ids, inputs, labels + self.noise * draws[:, -1], {split: splits[split] for split in SPLITS})


def _unit(vector: np.ndarray) -> np.ndarray:
    unit_vector: np.ndarray = vector / np.linalg.norm(vector)
    return unit_vector


def _at_cosine(rng: np.random.Generator, theta: np.ndarray, cosine: float) -> np.ndarray:
    """Draw a random unit vector at the given cosine with theta [d], which has length 1."""
    direction = rng.normal(size=theta.shape)
    vector: np.ndarray = cosine * theta + np.sqrt(1.0 - cosine**2) * _unit(direction - (direction @ theta) * theta)
    return vector


def _orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw a matrix [size, size] that is uniform over orthogonal matrices except for signs."""
    matrix: np.ndarray = np.linalg.qr(rng.normal(size=(size, size)))[0]
    return matrix
