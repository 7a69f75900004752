"""The exact Pareto front of `fonseca`, beside the fronts that methods found: `python studies/exact_front.py HOME`.

Prints the hypervolume of the whole front, that of its best points at the same number of even rays, and that of each row
of the experiment `fronts_toy_cpu` in the home folder, all in percent of the unit square as on the leaderboard.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from mtlscale.config import load_experiment
from mtlscale.config.preferences import rays
from mtlscale.execution.finding.own_records import own_records
from mtlscale.records import Home
from mtlscale.report import Leaderboard
from mtlscale.report.stats.pareto import hypervolume
from pipelines.generated.fonseca import exact_front

POINTS = 20_001


def whole_front() -> float:
    """Return the hypervolume of the front, from below: the area that its points leave above them."""
    front = exact_front(POINTS)
    return float(((1.0 - front[:-1, 1]) * np.diff(front[:, 0])).sum() + (1.0 - front[-1, 1]) * (1.0 - front[-1, 0]))


def at_rays(count: int) -> float:
    """Return the hypervolume of the points of the front at even rays."""
    front = exact_front(POINTS)
    points = [front[np.abs(front @ np.array([ray[0], -ray[1]])).argmin()] for ray in rays("fonseca", 2, count)]
    return hypervolume(np.array(points), np.ones(2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path, nargs="?", help="the home folder with the runs of fronts_toy_cpu")
    parser.add_argument("--rays", type=int, default=9)
    arguments = parser.parse_args()
    print(f"whole front          {100 * whole_front():6.2f} %")
    print(f"exact points, {arguments.rays} rays {100 * at_rays(arguments.rays):6.2f} %")
    if arguments.home is not None:
        experiment = load_experiment("fronts_toy_cpu")
        table = Leaderboard.from_records(own_records(experiment, Home(arguments.home)).records).tables["fonseca"]
        for method, row in table.rows.dropna(subset=["hypervolume"]).iterrows():
            print(f"{method:20s} {row['hypervolume']:6.2f} ± {row['hypervolume_ci']:.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
