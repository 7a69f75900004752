"""Exactness and speed of the min-norm solver, beside TorchJD's Frank-Wolfe in the same run, on one thread.

Gramians are random and degenerate: of every rank, with duplicated, opposed, nearly parallel, zero and very unequal
gradients, points that are Pareto stationary, at scales from 1e-12 to 1e12. Suboptimality is a certificate, not a
comparison: the distance of βᵀKβ to a lower bound that our β proves, in units of the largest K_ii. Times are medians
over the Gramians of a size, one after the other.

Example:
    python benchmarks/min_norm.py --gramians 10000
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torchjd.aggregation import MGDAWeighting

from mtlscale.solvers import min_norm_weights, solve_min_norm

SIZES = (2, 3, 5, 10, 20, 50)
SCALES = (1e-12, 1e-6, 1.0, 1e6, 1e12)
TARGET_SUBOPTIMALITY = 1e-6
TARGET_SECONDS = {10: 0.5e-3, 50: 5e-3}
TIMED = 200


def gramians(count: int, seed: int) -> Iterator[Tensor]:
    """K [T, T], float64; sizes, kinds, ranks and scales take turns."""
    generator = torch.Generator().manual_seed(seed)
    kinds = (plain, duplicated, opposed, nearly_parallel, zeros, unequal, stationary, agreeing)
    for index in range(count):
        tasks = SIZES[index % len(SIZES)]
        kind = kinds[(index // len(SIZES)) % len(kinds)]
        rank = int(torch.randint(1, 2 * tasks + 1, (), generator=generator))
        jacobian = torch.randn(tasks, rank, dtype=torch.float64, generator=generator)
        half = int(torch.randint(1, tasks, (), generator=generator))
        scale = SCALES[int(torch.randint(len(SCALES), (), generator=generator))]
        jacobian = scale * kind(jacobian, half)
        yield jacobian @ jacobian.T


def plain(jacobian: Tensor, half: int) -> Tensor:
    return jacobian


def duplicated(jacobian: Tensor, half: int) -> Tensor:
    return torch.cat([jacobian[:half], jacobian[:1].expand(len(jacobian) - half, -1)])


def opposed(jacobian: Tensor, half: int) -> Tensor:
    return torch.cat([jacobian[:half], -0.3 * jacobian[:1].expand(len(jacobian) - half, -1)])


def nearly_parallel(jacobian: Tensor, half: int) -> Tensor:
    return jacobian[:1] + 1e-4 * jacobian


def zeros(jacobian: Tensor, half: int) -> Tensor:
    return torch.cat([jacobian[:half], torch.zeros_like(jacobian[half:])])


def unequal(jacobian: Tensor, half: int) -> Tensor:
    return jacobian * torch.logspace(-6, 0, len(jacobian), dtype=torch.float64).unsqueeze(1)


def stationary(jacobian: Tensor, half: int) -> Tensor:
    return torch.cat([jacobian[:-1], -jacobian[:-1].mean(0, keepdim=True)])


def agreeing(jacobian: Tensor, half: int) -> Tensor:
    return jacobian.abs()


def lower_bound(gramian: Tensor, weights: Tensor) -> float:
    """No point of the simplex has a smaller βᵀKβ: by convexity, and by ⟨g_i, m⟩ <= ‖g_i‖ ‖m‖ in the hull."""
    square, worst = float(weights @ gramian @ weights), float((gramian @ weights).min())
    return max(2.0 * worst - square, max(worst, 0.0) ** 2 / square if square > 0 else 0.0, 0.0)


def excess(gramian: Tensor, weights: Tensor, bound: float) -> float:
    return (float(weights @ gramian @ weights) - bound) / max(float(gramian.diagonal().max()), 1e-300)


def median_seconds(solve: Callable[[Tensor], Tensor], problems: list[Tensor]) -> float:
    for gramian in problems[:5]:
        solve(gramian)
    times = []
    for gramian in problems:
        start = time.perf_counter()
        solve(gramian)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gramians", type=int, default=10_000, help="how many problems (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the problems (default: 0)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    theirs = MGDAWeighting()
    problems: dict[int, list[Tensor]] = {size: [] for size in SIZES}
    worst = {size: [0.0, 0.0] for size in SIZES}
    unproved = 0
    for gramian in gramians(options.gramians, options.seed):
        size = len(gramian)
        problems[size].append(gramian)
        weights, converged = solve_min_norm(gramian)
        unproved += not bool(converged)
        bound = lower_bound(gramian, weights)
        for index, answer in enumerate((weights, theirs(gramian))):
            worst[size][index] = max(worst[size][index], excess(gramian, answer, bound))

    table = Table(title=f"min-norm point, {options.gramians} Gramians, one thread")
    for column in ("T", "Gramians", "worst excess", "TorchJD's", "median time", "TorchJD's", "TorchJD's / ours"):
        table.add_column(column, justify="right")
    slow = []
    for size in SIZES:
        if not problems[size]:
            continue
        sample = problems[size][:TIMED]
        ours, their_time = median_seconds(min_norm_weights, sample), median_seconds(theirs, sample)
        if ours > TARGET_SECONDS.get(size, float("inf")):
            slow.append(size)
        table.add_row(
            str(size),
            str(len(problems[size])),
            f"{worst[size][0]:.1e}",
            f"{worst[size][1]:.1e}",
            f"{1e3 * ours:.3f} ms",
            f"{1e3 * their_time:.3f} ms",
            f"{their_time / ours:.1f}",
        )
    console = Console()
    console.print(table)
    overall = max(value[0] for value in worst.values())
    met = overall <= TARGET_SUBOPTIMALITY and not slow and not unproved
    console.print(
        f"worst excess {overall:.1e} max K_ii (target {TARGET_SUBOPTIMALITY:.0e}), not proved optimal: {unproved}; "
        f"time targets {', '.join(f'{1e3 * seconds:g} ms at T = {size}' for size, seconds in TARGET_SECONDS.items())}: "
        f"{'met' if not slow else f'missed at T = {slow}'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
