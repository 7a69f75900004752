"""How often a leaderboard calls a difference real: where there is none, and where there is one.

    python studies/null_leaderboards.py                    # 10,000 for each kind of data and number of seeds
    python studies/null_leaderboards.py --boards 1000 --methods 20 --markdown

Every leaderboard has one reference and `--methods` others, all equally good: whatever is called better or worse is an
error. The family-wise error is the share of leaderboards with at least one. Scores differ by seed (a shared part, as
with a hard split) and by method and seed; on few test items they are shares of items, with ties. Target: at most
--target everywhere, which is the level of the tests and two standard errors of a simulation of 1,000. Exit status 1
where it is missed.

Power: the same, but one method is worse by one and by two standard deviations of its scores over seeds; the share of
leaderboards that call it worse. The last kind is no target: the scores of a method that fails now and then against a
steady reference. Their differences lean to one side, and no test on a few seeds tells that from a real one.

The verdicts are those of mtlscale/report/stats/statistics.py, over all leaderboards at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from mtlscale.report.stats.statistics import BETTER, WORSE, holm, judged, t_test

Shape = tuple[int, int, int]  # seeds, leaderboards, methods, the first of them the reference
Scores = NDArray[np.float64]
Draw = Callable[[np.random.Generator, Shape], Scores]
SHIFTS = (1.0, 2.0)  # standard deviations over seeds


@dataclass(frozen=True)
class Kind:
    """Scores of one kind. spread: their standard deviation over seeds; step: what they are multiples of."""

    draw: Draw
    spread: float
    step: float | None = None
    target: bool = True

    def shift(self, deviations: float) -> float:
        found = deviations * self.spread
        return found if self.step is None else self.step * max(1, round(found / self.step))


def normal(rng: np.random.Generator, shape: Shape) -> Scores:
    return 0.8 + 0.02 * rng.normal(size=(*shape[:2], 1)) + 0.01 * rng.normal(size=shape)


def heavy(rng: np.random.Generator, shape: Shape) -> Scores:
    """Student's t with two degrees of freedom: now and then a run goes wrong."""
    return 0.8 + 0.02 * rng.normal(size=(*shape[:2], 1)) + 0.01 * rng.standard_t(2, size=shape)


def skewed(rng: np.random.Generator, shape: Shape) -> Scores:
    return 0.8 - 0.02 * rng.exponential(size=shape)


def steady(rng: np.random.Generator, shape: Shape) -> Scores:
    """Skewed methods of the same mean as a reference that hardly varies."""
    scores = 0.8 - 0.02 * (rng.exponential(size=shape) - 1.0)
    scores[..., 0] = 0.8 + 0.001 * rng.normal(size=shape[:2])
    return scores


def items(count: int, chance: float, spread: float) -> Kind:
    """Shares of so many test items; a method's true share is `chance`, on the logit scale spread over its seeds."""

    def draw(rng: np.random.Generator, shape: Shape) -> Scores:
        logit = np.log(chance / (1 - chance)) + spread * rng.normal(size=shape)
        return rng.binomial(count, 1 / (1 + np.exp(-logit))) / count

    return Kind(draw, float(draw(np.random.default_rng(0), (1000, 10, 10)).std()), 1 / count)


KINDS: dict[str, Kind] = {
    "normal": Kind(normal, 0.01),
    "heavy tails": Kind(heavy, 0.01),  # the scale: there is no standard deviation
    "skewed": Kind(skewed, 0.02),
    "46 test items": items(46, 0.8, 0.1),
    "460 test items": items(460, 0.8, 0.1),
    "46 test items, near the ceiling": items(46, 0.97, 0.2),
    "460 test items, near the ceiling": items(460, 0.995, 0.2),
    "skewed, steady reference": Kind(steady, 0.02, target=False),
}


def verdicts(scores: Scores) -> NDArray[np.str_]:
    """[leaderboards, methods without the reference]"""
    differences = scores[..., 1:] - scores[..., :1]
    return judged(differences.mean(axis=0), holm(t_test(differences)))


def simulate(kind: Kind, shape: Shape, rng: np.random.Generator) -> list[float]:
    """Family-wise error, and the power for each of SHIFTS."""
    found = [float(np.isin(verdicts(kind.draw(rng, shape)), (BETTER, WORSE)).any(axis=-1).mean())]
    for deviations in SHIFTS:
        scores = kind.draw(rng, shape)
        scores[..., 1] -= kind.shift(deviations)
        found.append(float((verdicts(scores)[:, 0] == WORSE).mean()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=10_000)
    parser.add_argument("--methods", type=int, default=10, help="beside the reference")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--target", type=float, default=0.06)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as docs/methods.md shows it")
    options = parser.parse_args()
    rows, highest = [], 0.0
    for number, (name, kind) in enumerate(KINDS.items()):
        cells = []
        for seeds in options.seeds:
            rng = np.random.default_rng([options.seed, number, seeds])
            error, *power = simulate(kind, (seeds, options.boards, options.methods + 1), rng)
            cells.append(f"{error:.3f} ({', '.join(f'{share:.2f}' for share in power)})")
            highest = max(highest, error if kind.target else 0.0)
        rows.append((name, *cells))
    header = ("data", *(f"{seeds} seeds" for seeds in options.seeds))
    show(header, rows, markdown=options.markdown)
    verdict = "met" if highest <= options.target else "MISSED"
    print(f"highest family-wise error {highest:.3f}, the last row aside; target at most {options.target:g}: {verdict}")
    return int(highest > options.target)


def show(header: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, markdown: bool) -> None:
    if markdown:
        rule = ("---", *("---:" for _ in header[1:]))
        print(*(f"| {' | '.join(row)} |" for row in (header, rule, *rows)), sep="\n")
        return
    table = Table(*header, title="family-wise error (power for a difference of 1, of 2 standard deviations)")
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
