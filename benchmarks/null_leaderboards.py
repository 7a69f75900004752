"""How often a leaderboard calls a difference real where there is none: the verdicts on simulated null leaderboards.

    python benchmarks/null_leaderboards.py                    # 1,000 for each kind of data and number of seeds
    python benchmarks/null_leaderboards.py --boards 10000 --methods 20

Every leaderboard has one reference and `--methods` others, all equally good: whatever is called better or worse is an
error. The family-wise error is the share of leaderboards with at least one. Scores differ by seed (a shared part, as
with a hard split) and by method and seed; on few test items they are shares of items, with ties. Target: at most
--target everywhere, which is the level of the tests and two standard errors of a simulation of this size. Exit status 1
where it is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mtlscale.report.statistics import BETTER, WORSE, paired_tests

Scores = NDArray[np.float64]  # [seeds, methods]
Draw = Callable[[np.random.Generator, int, int], Scores]


def normal(rng: np.random.Generator, seeds: int, methods: int) -> Scores:
    return 0.8 + 0.02 * rng.normal(size=(seeds, 1)) + 0.01 * rng.normal(size=(seeds, methods))


def heavy(rng: np.random.Generator, seeds: int, methods: int) -> Scores:
    """Student's t with two degrees of freedom: now and then a run goes wrong."""
    return 0.8 + 0.02 * rng.normal(size=(seeds, 1)) + 0.01 * rng.standard_t(2, size=(seeds, methods))


def skewed(rng: np.random.Generator, seeds: int, methods: int) -> Scores:
    return 0.8 - 0.02 * rng.exponential(size=(seeds, methods))


def items(count: int, chance: float, spread: float) -> Draw:
    """Shares of so many test items; a method's true share is `chance`, on the logit scale spread over its seeds."""

    def draw(rng: np.random.Generator, seeds: int, methods: int) -> Scores:
        logit = np.log(chance / (1 - chance)) + spread * rng.normal(size=(seeds, methods))
        return rng.binomial(count, 1 / (1 + np.exp(-logit))) / count

    return draw


KINDS: dict[str, Draw] = {
    "normal": normal,
    "heavy tails": heavy,
    "skewed": skewed,
    "46 test items": items(46, 0.8, 0.1),
    "460 test items": items(460, 0.8, 0.1),
    "46 test items, near the ceiling": items(46, 0.97, 0.2),
    "460 test items, near the ceiling": items(460, 0.995, 0.2),
}


def wrong(scores: Scores) -> bool:
    """Whether any method is called better or worse than the reference."""
    frame = pd.DataFrame(scores, columns=["reference", *(f"m{n}" for n in range(1, scores.shape[1]))])
    return bool(paired_tests(frame, "reference")["verdict"].isin([BETTER, WORSE]).any())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=1000)
    parser.add_argument("--methods", type=int, default=10, help="beside the reference")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--target", type=float, default=0.06)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = Table("data", *(f"{seeds} seeds" for seeds in options.seeds), title="family-wise error")
    highest = 0.0
    jobs = [(name, seeds) for name in KINDS for seeds in options.seeds]
    found: dict[tuple[str, int], float] = {}
    for number, (name, seeds) in enumerate(track(jobs, "leaderboards", console=Console(stderr=True))):
        rng = np.random.default_rng([options.seed, number])
        boards = (KINDS[name](rng, seeds, options.methods + 1) for _ in range(options.boards))
        found[name, seeds] = sum(map(wrong, boards)) / options.boards
        highest = max(highest, found[name, seeds])
    for name in KINDS:
        table.add_row(name, *(f"{found[name, seeds]:.3f}" for seeds in options.seeds))
    console = Console(width=100)
    console.print(table)
    verdict = "met" if highest <= options.target else "MISSED"
    console.print(f"highest {highest:.3f}, target at most {options.target:g}: {verdict}")
    return int(highest > options.target)


if __name__ == "__main__":
    sys.exit(main())
