"""TOMATO against what is known: the planted sparsity of its synthetic data, and the published table 3.

    python benchmarks/tomato.py --recovery               # norms of θˢ against the planted topics and tasks
    python benchmarks/tomato.py --grid                   # what TOMATO's grid on School costs, extrapolated
    python benchmarks/tomato.py --table3 [--home DIR]    # ours, after `mtlscale run tomato_table3`, beside the printed

`--recovery` trains TOMATO-el and -ex on the synthetic set with K = 2 and with K = 1 topics and prints the area under
the ROC curve of the learned norms over the topic x task cells, with the topics matched to the planted ones by the best
permutation; with K = 1 the one row stands for every topic. Settings are those of experiments/tomato_recovery.yaml.

`--table3` pools errors over the test samples of all tasks, as the printed ones are pooled (docs/methods.md), and also
gives the task-wise improvement over Separate; intervals are 95 % t-intervals over the random splits.

`--grid` says what the whole grid of experiments/tomato_school_grid.yaml would cost: two steps of a small batch of
trials of each of its shapes are taken, the second one is timed (CPU time, one thread). Evaluations are not in it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.metrics import roc_auc_score

from mtlscale.batched import planning
from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.data.prepared import PreparedData, load_prepared, read_manifest
from mtlscale.execution.plan import records_of
from mtlscale.execution.prepare import prepare
from mtlscale.metrics import taskwise_improvement
from mtlscale.records import Home, RunRecord
from mtlscale.spec import Experiment, UserError, load_experiment, trials
from mtlscale.training import train

ENOUGH = 0.95
PRINTED = {  # Zhang & Lee, CIKM 2020, table 3: misclassification in %
    "separate": (16.55, 2.59, 50.95),
    "shared_bottom": (14.51, 2.68, 50.01),
    "single": (14.24, 49.98, 51.80),
    "inter_task_l2": (14.21, 2.49, 50.41),
    "dmtrl": (15.08, 2.60, 49.34),
    "mrn": (14.47, 2.68, 51.06),
    "cross_stitch": (14.69, 2.68, 50.22),
    "mmoe": (14.40, 2.59, 48.18),
    "tomato_el": (14.09, 2.44, 45.00),
    "tomato_ex": (14.10, 2.32, 46.72),
}
SETS = ("synthetic", "mnist_mtl", "school")


def matched_auc(norms: np.ndarray, planted: np.ndarray) -> float:
    """norms [K or 1, T], planted [K, T] -> area under the ROC curve over the cells, for the best order of topics."""
    rows = np.broadcast_to(norms, planted.shape)
    orders = itertools.permutations(range(len(planted)))
    return max(float(roc_auc_score(planted[list(order)].ravel(), rows.ravel())) for order in orders)


def recovery(console: Console) -> bool:
    experiment = load_experiment("tomato_recovery")
    table = Table("data", "method", "AUC", "≥ 0.95", "largest norm", "exact zeros", "test error %", "s")
    areas: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as home:
        data = _prepared(experiment, Path(home))
        prints = {name: found.manifest.fingerprint for name, found in data.items()}
        for run in experiment.runs(prints):
            if run.parts.objective is None:
                continue
            started = time.perf_counter()
            record = train(run, data[run.data])
            norms = np.array(record.epochs[-1].traces["topic_norms"])
            area = matched_auc(norms, np.array(data[run.data].suite.extras["special"]))
            areas.setdefault(run.method, []).append(area)
            error = np.mean([values["soft_error"] for values in record.metrics["test"].values()])
            table.add_row(
                run.data,
                run.method,
                f"{area:.3f}",
                "yes" if area >= ENOUGH else "no",
                f"{norms.max():.2f}",
                f"{(norms == 0).sum()} of {norms.size}",
                f"{error:.2f}",
                f"{time.perf_counter() - started:.0f}",
            )
    console.print(table)
    two, one = (min(a) if k == 2 else max(a) for k, a in ((2, _of(areas, "K=2")), (1, _of(areas, "K=1"))))
    console.print(f"K = 2: at least {two:.3f}; K = 1: at most {one:.3f}")
    return two >= ENOUGH > one


def _of(areas: dict[str, list[float]], topics: str) -> list[float]:
    return [area for method, found in areas.items() if topics in method for area in found]


def _prepared(experiment: Experiment, home: Path) -> dict[str, PreparedData]:
    return {
        name: load_prepared(prepare(dataset.name, dataset.options, None, home))
        for name, (dataset, _) in experiment.data().items()
    }


def table3(console: Console, home: Home) -> None:
    experiment = load_experiment("tomato_table3")
    records = [record for record in records_of(experiment, home) if record.status == "finished"]
    if not records:
        raise UserError(f"no finished run of tomato_table3 in {home.root}; start with `mtlscale run tomato_table3`")
    sizes = {
        manifest.fingerprint: {task: counts["test"] for task, counts in manifest.counts.items()}
        for manifest in (read_manifest(path.parent) for path in home.root.glob("data/*/*/manifest.json"))
    }
    for place, dataset in enumerate(SETS):
        table = Table("model", "printed", "ours, pooled", "task-wise improvement", "splits", title=dataset)
        separate = {r.seed: _errors(r) for r in records if r.dataset == dataset and r.method == "separate"}
        for method, printed in PRINTED.items():
            runs = [r for r in records if r.dataset == dataset and r.method == method]
            pooled = [_pooled(_errors(r), sizes[r.fingerprint]) for r in runs]
            gains = [taskwise_improvement(_errors(r), separate[r.seed], "accuracy") for r in runs if r.seed in separate]
            table.add_row(method, f"{printed[place]:.2f}", _interval(pooled), _interval(gains), str(len(runs)))
        console.print(table)


GRID, TRIALS = 9600, 8  # points; trials that are timed together


def grid(console: Console, home: Home) -> None:
    experiment = load_experiment("tomato_school_grid", (f"search.budget={GRID}",))
    assert experiment.search is not None
    dataset = experiment.datasets[0]
    data = load_prepared(prepare(dataset.name, dataset.options, None, home.root))
    (base,) = experiment.bases(dict.fromkeys(experiment.data(), data.manifest.fingerprint))
    table, hours = Table("topics", "top", "points", "s of a trial's step", title=experiment.name), 0.0
    for group in planning.groups(trials(experiment.search, base)):
        trainer = BatchedTrainer(group[:TRIALS], data)
        trainer._epoch(1)
        started = time.process_time()
        trainer._epoch(2)  # a task's batch is its whole train part: an epoch is a step
        seconds = (time.process_time() - started) / TRIALS
        hours += seconds * len(group) * base.training.epochs / 3600
        shape = group[0].spec["architecture"]
        table.add_row(str(shape["topics"]), str(shape["top"]), str(len(group)), f"{seconds:.4f}")
    console.print(table)
    console.print(f"{GRID} points: {hours:.1f} hours of one core; two cores do {min(1, 4 / hours):.0%} in two hours")


def _errors(record: RunRecord) -> dict[str, float]:
    return {task: record.metrics["test"][task][metric] for task, metric in record.main_metrics.items()}


def _pooled(errors: dict[str, float], sizes: dict[str, int]) -> float:
    return sum(error * sizes[task] for task, error in errors.items()) / sum(sizes[task] for task in errors)


def _interval(values: list[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return f"{np.mean(values):.2f} ± {half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recovery", action="store_true", help="planted sparsity of the synthetic data")
    parser.add_argument("--table3", action="store_true", help="ours beside the printed table 3")
    parser.add_argument("--grid", action="store_true", help="the cost of the grid on School")
    parser.add_argument("--home", type=Path, help="folder of the results (default: that of mtlscale)")
    options = parser.parse_args()
    if not (options.recovery or options.table3 or options.grid):
        parser.error("say --recovery, --table3 or --grid")
    torch.set_num_threads(1)
    console = Console(width=110)
    home = Home.at(options.home)
    if options.table3:
        table3(console, home)
    if options.grid:
        grid(console, home)
    if options.recovery and not recovery(console):
        sys.exit("the planted sparsity was not recovered as it should be")


if __name__ == "__main__":
    main()
