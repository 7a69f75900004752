"""Whether a diagnosis of several tasks tells which pairs of them gain from each other.

    mtlscale run sentences_pairs_cpu                  # all pairs, alone and together
    mtlscale diagnose sentences                       # the matrices of all six tasks, in outputs/diagnoses/sentences
    python studies/pairs.py sentences_pairs_cpu outputs/diagnoses/sentences/diagnosis.json

For each matrix of the diagnosis (covariance similarity, cosine of the gradients before and after an epoch, affinity),
the mean of both directions, its correlation over the pairs with what each method gains over the single tasks, in units
of the main metric, mean of both tasks and of the seeds: Pearson's and Spearman's with the 95 % interval of drawing
pairs with replacement. Pairs share tasks, so the interval is, if anything, too narrow. As Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from mtlscale.config import UserError, load_experiment
from mtlscale.execution.finding.own_board import own_board
from mtlscale.records import Home, RunRecord
from mtlscale.report.sections.similarity import FEWEST, correlation, format_correlation, mean_score
from mtlscale.report.stats.frames import newest

Tasks = frozenset[str]


def gains(records: Sequence[RunRecord], baseline: str) -> dict[str, dict[Tasks, float]]:
    """Method -> the two tasks of a data set -> mean over seeds of its gain over the baseline's run of that seed."""
    done = {(run.dataset, run.method, run.seed): run for run in newest(records) if run.status == "finished"}
    found: dict[str, dict[Tasks, list[float]]] = {}
    for (dataset, method, seed), run in done.items():
        other = done.get((dataset, baseline, seed))
        if method != baseline and other is not None and len(run.main_metrics) == 2:
            of_method = found.setdefault(method, {})
            of_method.setdefault(frozenset(run.main_metrics), []).append(mean_score(run) - mean_score(other))
    return {
        method: {tasks: float(np.mean(values)) for tasks, values in of.items()}
        for method, of in found.items()
        if len(of) >= FEWEST
    }


def symmetric(tasks: Sequence[str], rows: Sequence[Sequence[float | None]]) -> dict[Tasks, float]:
    """Two tasks -> the mean of both directions; those without a number are left out."""
    table = np.array(rows, dtype=float)
    means = (table + table.T) / 2
    return {
        frozenset((tasks[i], tasks[j])): float(means[i, j])
        for i in range(len(tasks))
        for j in range(i)
        if math.isfinite(means[i, j])
    }


def lines(gained: Mapping[str, Mapping[Tasks, float]], diagnosis: Mapping[str, object]) -> Iterator[str]:
    """A row for each matrix and method."""
    tasks, matrices = diagnosis["tasks"], diagnosis["matrices"]
    assert isinstance(tasks, list) and isinstance(matrices, dict)
    yield "| matrix | gain of | pairs | Pearson | Spearman |\n| --- | --- | ---: | --- | --- |"
    for matrix in matrices.values():
        known = symmetric(tasks, matrix["values"])
        for method, of in gained.items():
            both = [pair for pair in of if pair in known]
            if len(both) >= FEWEST:
                x, y = [known[pair] for pair in both], [of[pair] for pair in both]
                found = [format_correlation(correlation(kind, x, y)) for kind in ("pearson", "spearman")]
                yield f"| {matrix['title']} | {method} | {len(both)} | {' | '.join(found)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="whose data sets are pairs of tasks, run already")
    parser.add_argument("diagnosis", type=Path, help="diagnosis.json of a data set with these tasks")
    parser.add_argument("--home", type=Path, default=Path("outputs"), help="of the runs")
    options = parser.parse_args()
    experiment = load_experiment(options.experiment)
    gained = gains(own_board(experiment, Home.at(options.home)).records, experiment.baseline)
    if not gained:
        raise UserError(
            f"{experiment.name} has fewer than {FEWEST} pairs in {options.home} that {experiment.baseline} and another "
            f"method finished; start them with `mtlscale run {experiment.name}`"
        )
    if not options.diagnosis.is_file():
        raise UserError(f"{options.diagnosis} is no file; `mtlscale diagnose` writes one")
    print("\n".join(lines(gained, json.loads(options.diagnosis.read_text(encoding="utf-8")))))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"pairs: {error}")
