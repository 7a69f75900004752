"""The newest rules once more, from their papers' equations in plain numpy, and random steps to compare them on.

Quadratic programs are solved by trying every set of active constraints, groups by trying every grouping.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
KINDS = ("gaussian", "zeros", "equal", "opposed", "missing", "graded", "few parameters", "one task", "no gradient")


@dataclass(frozen=True)
class Step:
    """One step: gradients [T, P], those of another batch, losses [T], and the tasks that have labels, bool [T]."""

    jacobian: Array
    other: Array
    losses: Array
    present: NDArray[np.bool_]


def steps(seed: int, count: int = 2) -> Iterator[Step]:
    """Yield the steps of a case; the kinds follow each other with the seed."""
    generator, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    tasks = 1 if kind == "one task" else int(generator.integers(2, 6))
    parameters = int(generator.integers(1, tasks)) if kind == "few parameters" else tasks + 3
    scale = 10.0 ** generator.integers(-2, 3)
    for _ in range(count):
        jacobian = scale * generator.standard_normal((tasks, parameters))
        present = np.ones(tasks, dtype=bool)
        if kind == "zeros":
            jacobian[generator.integers(tasks)] = 0.0
        elif kind == "equal":
            jacobian[1:] = jacobian[0]
        elif kind == "opposed":
            jacobian[1:] = -0.5 * jacobian[0]
        elif kind == "missing":
            present = generator.random(tasks) < 0.6
            present[generator.integers(tasks)] = True
        elif kind == "graded":
            jacobian *= np.logspace(-2, 2, tasks)[:, None]
        elif kind == "no gradient":
            jacobian *= 0.0
        other = jacobian + 0.3 * scale * generator.standard_normal(jacobian.shape)
        yield Step(jacobian, other, np.exp(generator.standard_normal(tasks)), present)


class Rule:
    """A rule's memory over steps: settings as attributes, one value per task in arrays [T]."""

    def __init__(self, tasks: int, **settings: Any) -> None:
        self.tasks = tasks
        self.__dict__.update(settings)
        self.start()

    def start(self) -> None:
        """Set the memory before the first step."""

    def __call__(self, step: Step) -> Array:
        """Return the update [P]."""
        raise NotImplementedError

    def end_epoch(self, losses: Array) -> None:
        """Take note of an epoch's mean losses [T]."""


class Weighting(Rule):
    """A rule that returns weights [T], of tasks without labels zero."""

    def __call__(self, step: Step) -> Array:
        there = step.present
        weights = np.zeros(self.tasks)
        weights[there] = 1.0 if there.sum() == 1 and self.alone() else self.weights(step, np.flatnonzero(there))
        return step.jacobian.T @ weights

    def alone(self) -> bool:
        """Return whether a single task weighs 1 by convention."""
        return True

    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        """Return the weights of the tasks `there`."""
        raise NotImplementedError


class DBMTL(Rule):
    beta, sigma = 0.9, 0.0

    def start(self) -> None:
        self.mean: Any = 0.0
        self.count = 0

    def __call__(self, step: Step) -> Array:
        there = np.flatnonzero(step.present)
        if len(there) == 1:
            return step.jacobian[there[0]]
        self.mean = self.mean + np.zeros_like(step.jacobian)
        self.count += 1
        decay = self.beta / self.count**self.sigma
        for t in there:
            self.mean[t] = decay * self.mean[t] + (1 - decay) * step.jacobian[t] / (step.losses[t] + 1e-8)
        lengths = [np.linalg.norm(self.mean[t]) for t in there]
        parts = [max(lengths) / n * self.mean[t] for t, n in zip(there, lengths, strict=True) if n > 0]
        return np.sum(parts, axis=0) if parts else np.zeros(step.jacobian.shape[1])


class GO4Align(Weighting):
    lr, groups = 1e-4, 2

    def start(self) -> None:
        self.p = np.full(self.tasks, 1 / self.tasks)

    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        losses, mass = step.losses[there], self.p[there].sum()
        shares = self.p[there] * np.exp(-self.lr * losses)
        shares = shares / shares.sum()
        self.p[there] = mass * shares
        values = shares * losses.sum() / losses

        order, best, answer = np.argsort(values), np.inf, values.copy()
        for cuts in itertools.combinations(range(1, len(values)), min(self.groups, len(values)) - 1):
            means = np.empty_like(values)
            for members in np.split(order, cuts):
                means[members] = values[members].mean()
            distance = ((values - means) ** 2).sum()
            if distance < best:
                best, answer = distance, means
        return answer


class IGB(Weighting):
    def start(self) -> None:
        self.base: Array | None = None

    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        losses = step.losses[there]
        if self.base is None:
            return 1 / losses
        powers = np.exp(losses / self.base[there])
        return len(there) * powers / powers.sum() / losses

    def end_epoch(self, losses: Array) -> None:
        self.base = losses if self.base is None else self.base


class LDCMTL(Weighting):
    lam, lr = 0.05, 1e-3

    def start(self) -> None:
        self.logits, self.mean, self.square = np.zeros((3, self.tasks))
        self.first, self.count = np.zeros(self.tasks), 0

    def alone(self) -> bool:
        return False

    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        losses = step.losses[there]
        self.first[there] = np.where(self.first[there] > 0, self.first[there], losses)
        ratios = self.first[there] / self.first[there].min()

        shares = np.exp(self.logits[there]) / np.exp(self.logits[there]).sum()
        gaps = np.diff(shares * losses / ratios)
        signs = np.where(np.abs(gaps) > 1e-9 * (losses / ratios).max(), np.sign(gaps), 0.0)  # the slopes of |·|

        def objective(logits: Any, losses: Any) -> Any:
            a = np.exp(logits) / np.exp(logits).sum() * losses / ratios
            return a.sum() + self.lam * (signs * np.diff(a)).sum()

        # Derivatives by complex steps, which round nothing off.
        size, unit = len(there), 1e-30j * np.eye(len(there))
        weights = np.array([objective(self.logits[there], losses + unit[k]).imag / 1e-30 for k in range(size)])
        slope = np.array([objective(self.logits[there] + unit[k], losses).imag / 1e-30 for k in range(size)])

        self.count += 1
        self.mean[there] = 0.9 * self.mean[there] + 0.1 * slope
        self.square[there] = 0.999 * self.square[there] + 0.001 * slope**2
        mean, square = self.mean[there] / (1 - 0.9**self.count), self.square[there] / (1 - 0.999**self.count)
        self.logits[there] -= self.lr * mean / (np.sqrt(square) + 1e-8)
        return weights


class PIVRG(Weighting):
    single_task: tuple[float, ...] = ()

    def start(self) -> None:
        self.drops = np.zeros(self.tasks)

    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        drops = self.drops[there]
        temperature = max((drops.max() - drops.min()) / np.log(2), 10.0)
        powers = np.exp((drops - drops.max()) / temperature)
        favour = len(there) * powers / powers.sum()
        return self.scale(there) * fair(step.jacobian[there], np.sqrt(favour))

    def scale(self, there: NDArray[np.int64]) -> float:
        return float(len(there))

    def end_epoch(self, losses: Array) -> None:
        if self.single_task:
            self.drops = 100 * (losses / np.array(self.single_task) - 1)


class ConsMTL(PIVRG):
    def scale(self, there: NDArray[np.int64]) -> float:
        return 1.0


class NTKMTL(Weighting):
    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        lengths = np.array([np.linalg.norm(step.jacobian[t]) for t in there])
        total = np.sqrt((lengths**2).sum())
        if total == 0:
            return np.ones(len(there))
        return np.array([total / length if length > 0 else 0.0 for length in lengths])


class MoDo(Weighting):
    gamma, rho = 1e-3, 0.1

    def start(self) -> None:
        self.w = np.full(self.tasks, 1 / self.tasks)

    def weights(self, step: Step, there: NDArray[np.int64]) -> Array:
        mass, w = self.w[there].sum(), self.w[there]
        moved = w - self.gamma * (step.jacobian[there] @ (step.other[there].T @ w) + self.rho * w)
        shares = on_simplex(moved / mass) if mass > 0 else np.full(len(w), 1 / len(w))
        self.w[there] = mass * shares
        return shares

    def alone(self) -> bool:
        return False


class ConFIG(Rule):
    def __call__(self, step: Step) -> Array:
        jacobian = step.jacobian[step.present]
        return jacobian[0] if len(jacobian) == 1 else equal_cosines(jacobian)


class MConFIG(Rule):
    beta = 0.9

    def start(self) -> None:
        self.mean: Any = 0.0
        self.turns, self.latest = np.zeros((2, self.tasks), dtype=int)
        self.count = 0

    def __call__(self, step: Step) -> Array:
        there = np.flatnonzero(step.present)
        if len(there) == 1:
            return step.jacobian[there[0]]
        self.mean = self.mean + np.zeros_like(step.jacobian)
        turn = min(there, key=lambda t: (self.latest[t], t))
        self.count += 1
        self.turns[turn] += 1
        self.latest[turn] = self.count
        self.mean[turn] = self.beta * self.mean[turn] + (1 - self.beta) * step.jacobian[turn]
        unbiased = [self.mean[t] / (1 - self.beta ** self.turns[t]) if self.turns[t] else self.mean[t] for t in there]
        return equal_cosines(np.array(unbiased))


class DualProj(Rule):
    def __call__(self, step: Step) -> Array:
        jacobian = step.jacobian[step.present]
        return nearest(jacobian.mean(0), jacobian, np.zeros(len(jacobian)))


class PCD(Rule):
    main, tau, beta, eps = 0, 0.02, 0.999, 1e-8

    def start(self) -> None:
        self.squares, self.counts = np.zeros((2, self.tasks))

    def __call__(self, step: Step) -> Array:
        there = np.flatnonzero(step.present)
        if len(there) == 1:
            self._observe(step, there)
            return step.jacobian[there[0]]
        sizes = self._observe(step, there)
        if self.main not in there:
            return step.jacobian[there].mean(0)

        first = step.jacobian[self.main]
        if not first.any():
            return first
        others = [(step.jacobian[t], sizes[t]) for t in there if t != self.main and step.jacobian[t].any()]
        rows = np.array([row / size for row, size in others]).reshape(-1, len(first))
        target = first / sizes[self.main]
        update = nearest(target, rows, self.tau * (rows**2).sum(1))
        length = np.linalg.norm(update)
        scale = sum(np.linalg.norm(row) for row in rows) + np.linalg.norm(target)
        return update * 0 if length <= 1e-9 * scale else np.linalg.norm(first) / length * update

    def _observe(self, step: Step, there: NDArray[np.int64]) -> Array:
        self.counts[there] += 1
        norms = (step.jacobian[there] ** 2).sum(1)
        self.squares[there] = self.beta * self.squares[there] + (1 - self.beta) * norms
        sizes = np.ones(self.tasks)
        sizes[there] = np.sqrt(self.squares[there] / (1 - self.beta ** self.counts[there]) + self.eps)
        return sizes


RULES: dict[str, Callable[..., Rule]] = {
    "db_mtl": DBMTL, "go4align": GO4Align, "pivrg": PIVRG, "consmtl": ConsMTL, "ldc_mtl": LDCMTL, "ntkmtl": NTKMTL,
    "ntkmtl_sr": NTKMTL, "modo": MoDo, "config": ConFIG, "m_config": MConFIG, "dual_proj": DualProj, "pcd": PCD,
    "igb": IGB,
}  # fmt: skip


# -- problems ------------------------------------------------------------------------------------------------------


def stationary(jacobian: Array) -> bool:
    """Return whether some convex combination of the non-zero gradients is zero."""
    rows = [row / np.linalg.norm(row) for row in jacobian if row.any()]
    if len(rows) < 2:
        return False
    for chosen in subsets(len(rows)):
        if len(chosen) > 1:
            part = np.array([[*rows[k], 1.0] for k in chosen]).T
            shares, *_ = np.linalg.lstsq(part, np.eye(len(part))[-1], rcond=None)
            if np.abs(part @ shares - np.eye(len(part))[-1]).max() < 1e-10 and shares.min() >= -1e-10:
                return True
    return False


def fair(jacobian: Array, factors: Array) -> Array:
    """Return the w > 0 with (K w)_t = f_t / √w_t by Newton's method on the convex problem; 0 for a zero gradient."""
    live = jacobian.any(axis=1)
    if not live.any():
        return np.full(len(live), 1 / len(live))
    if stationary(jacobian):
        return np.full(len(live), np.nan)
    scale = np.linalg.norm(jacobian[live], axis=1)
    angles = (jacobian[live] / scale[:, None]) @ (jacobian[live] / scale[:, None]).T
    pull = factors[live] / np.sqrt(scale)  # y = scale w: angles y = f / (scale √w) = pull / √y

    y = pull ** (2 / 3)
    for _ in range(25):
        slope = angles @ y - pull / np.sqrt(y)
        move = np.linalg.solve(angles + np.diag(pull / 2 * y**-1.5), slope)
        if np.abs(move / y).max() <= 1e-14:
            break
        length = 1.0
        while (y - length * move).min() <= 0 or _value(angles, pull, y - length * move) > _value(angles, pull, y):
            length /= 2
            if length < 1e-6:  # nothing is left to gain
                length = 1.0
                break
        y = y - length * move
    weights = np.zeros(len(jacobian))
    weights[live] = y / scale
    return weights


def _value(angles: Array, pull: Array, y: Array) -> float:
    return float(y @ angles @ y / 2 - 2 * pull @ np.sqrt(y))


def equal_cosines(jacobian: Array) -> Array:
    """Return ConFIG's update by the pseudo-inverse of the unit gradients."""
    lengths = np.linalg.norm(jacobian, axis=1)
    units = np.array([row / n if n > 0 else row for row, n in zip(jacobian, lengths, strict=True)])
    direction = np.linalg.pinv(units, rcond=1e-10) @ np.ones(len(units))
    size = np.linalg.norm(direction)
    if size < 1e-9:
        return np.zeros(jacobian.shape[1])
    return (jacobian @ direction).sum() * direction / size**2


def nearest(target: Array, rows: Array, bounds: Array) -> Array:
    """Return the d nearest to the target with rows d >= bounds; the target where there is none."""
    lengths = np.linalg.norm(rows, axis=1)
    rows, bounds = rows[lengths > 0] / lengths[lengths > 0, None], bounds[lengths > 0] / lengths[lengths > 0]
    tolerance = 1e-9 * max(1e-300, np.linalg.norm(target), np.abs(bounds).max(initial=0))
    for chosen in subsets(len(rows)):
        part = rows[list(chosen)]
        update = target + np.linalg.pinv(part, rcond=1e-10) @ (bounds[list(chosen)] - part @ target)
        forces = np.linalg.pinv(part.T, rcond=1e-10) @ (update - target)
        if (rows @ update - bounds).min(initial=0) >= -tolerance and forces.min(initial=0) >= -tolerance:
            return update
    return target


def subsets(size: int) -> Iterator[tuple[int, ...]]:
    """Yield all subsets of the numbers below `size`, small ones first."""
    for count in range(size + 1):
        yield from itertools.combinations(range(size), count)


def on_simplex(point: Array) -> Array:
    """Return the nearest point of the simplex: the best of the projections onto its faces."""
    best, answer = np.inf, point
    for chosen in subsets(len(point)):
        if chosen:
            shares = np.zeros(len(point))
            part = point[list(chosen)]
            shares[list(chosen)] = part + (1 - part.sum()) / len(part)
            distance = ((shares - point) ** 2).sum()
            if shares.min() >= 0 and distance < best:
                best, answer = distance, shares
    return answer
