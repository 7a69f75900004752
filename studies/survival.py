"""Does balancing survive the optimiser? The traces of an experiment as a table: data set, optimiser, balancer.

mtlscale run survival_cpu
python studies/survival.py                    # of the home folder's experiment survival_cpu
python studies/survival.py --home HOME --experiment NAME
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from mtlscale.records import read_record

NAMES = ("gradient_to_equal", "step_to_equal", "step_to_gradient")


def means(home: Path, experiment: str) -> dict[tuple[str, str, str], list[float]]:
    """Return (data set, optimiser, balancer) -> the mean of each cosine over runs and epochs."""
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for file in sorted(home.rglob("record.json")):
        record = read_record(file.parent)
        if record is None or record.status != "finished" or record.experiment != experiment:
            continue
        looks = [entry.traces["survival"] for entry in record.epochs if "survival" in entry.traces]
        if looks:
            balancer = record.spec["balancer"]["name"]
            key = (record.dataset, record.spec["training"]["optimizer"], balancer)
            found.setdefault(key, []).append([statistics.mean(look[name] for look in looks) for name in NAMES])
    return {key: [statistics.mean(column) for column in zip(*rows, strict=True)] for key, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    parser.add_argument("--experiment", default="survival_cpu")
    options = parser.parse_args()
    print("| data set | optimiser | balancer | gradient to equal | step to equal | step to gradient |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (dataset, optimizer, balancer), row in sorted(means(options.home, options.experiment).items()):
        print(f"| {dataset} | {optimizer} | {balancer} | " + " | ".join(f"{value:.3f}" for value in row) + " |")


if __name__ == "__main__":
    main()
