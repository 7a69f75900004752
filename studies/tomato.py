"""TOMATO against what is known: the planted sparsity of its synthetic data, and the published table 3.

    python studies/tomato.py --recovery [--home DIR]  # norms of θˢ against the planted topics and tasks
    python studies/tomato.py --strengths              # the strengths that --recovery takes, chosen on other draws
    python studies/tomato.py --grid                   # what TOMATO's grid on School costs, extrapolated
    python studies/tomato.py --table3 [--home DIR]    # ours, after `mtlscale run tomato_table3`, beside the printed

`--recovery` trains TOMATO-el and -ex on ten draws of the synthetic set with K = 2 and with K = 1 topics and prints the
area under the ROC curve of the learned norms over the topic x task cells, with the topics matched to the planted ones
by the best permutation; with K = 1 the one row stands for every topic. Settings are those of
experiments/tomato_recovery.yaml, every draw of it is shown, means have 95 % t-intervals.

`--strengths` does the same with K = 2 and a range of strengths on draws that `--recovery` does not show, and prints the
mean areas, of which the largest is taken (of equal ones the least strength).

`--table3` pools errors over the test samples of all tasks, as the printed ones are pooled (docs/methods.md), and also
gives the task-wise improvement over Separate; intervals are 95 % t-intervals over the random splits.

`--grid` says what the whole grid of TOMATO-ex in experiments/tomato_table3_full.yaml would cost on School: of each of
its shapes a small batch of trials is trained for two epochs, of which the second is timed (CPU time, one thread).
Evaluations are not in it, and no run ends early.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.metrics import roc_auc_score

from mtlscale.batched.eligibility import planning
from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.config import DatasetSpec, Experiment, Run, UserError, load_experiment, trials
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_manifest
from mtlscale.execution.finding.own_records import own_records
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.metrics import taskwise_improvement
from mtlscale.records import Home, RunRecord, write_atomically

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


def recovery(console: Console) -> None:
    experiment = load_experiment("tomato_recovery")
    methods = [method.label for method in experiment.methods if method.objective is not None]
    areas: dict[str, dict[str, float]] = {}
    both: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as home:
        data = _prepared(experiment, Path(home))
        prints = {name: found.manifest.fingerprint for name, found in data.items()}
        for run in experiment.runs(prints):
            if run.method in methods:
                areas.setdefault(run.dataset, {}).update({run.method: _areas([run], data[run.data])[run.run_id]})
                both[run.dataset] = int((_planted(data[run.data]).sum(0) > 1).sum())
    table = Table("draw", "tasks special in both topics", *methods, box=box.MARKDOWN)
    for draw, found in areas.items():
        table.add_row(draw, str(both[draw]), *(f"{found[method]:.3f}" for method in methods))
    columns = {method: [found[method] for found in areas.values()] for method in methods}
    table.add_row("mean", "", *(_interval(columns[method], 3) for method in methods))
    table.add_row(f"≥ {ENOUGH}", "", *(str(sum(a >= ENOUGH for a in columns[method])) for method in methods))
    console.print(table)
    for form in ("el", "ex"):
        gains = [two - one for two, one in zip(columns[f"{form} K=2"], columns[f"{form} K=1"], strict=True)]
        p = stats.ttest_rel(columns[f"{form} K=2"], columns[f"{form} K=1"]).pvalue
        console.print(f"{form}: K = 2 - K = 1 {_interval(gains, 3)}, p = {p:.2g} (paired t-test)")


STRENGTHS = {"el K=2": (0.02, 0.04, 0.08, 0.16), "ex K=2": (0.03, 0.1, 0.3, 1.0)}
OTHER_DRAWS = (10, 11)


def strengths(console: Console) -> None:
    experiment = load_experiment("tomato_recovery")
    draws = tuple(DatasetSpec(name="synthetic", label=f"draw{draw}", options={"seed": draw}) for draw in OTHER_DRAWS)
    experiment = experiment.model_copy(update={"datasets": draws})
    table = Table("method", "strength", *(draw.label for draw in draws), "mean", box=box.MARKDOWN)
    with tempfile.TemporaryDirectory() as home:
        data = _prepared(experiment, Path(home))
        prints = {name: found.manifest.fingerprint for name, found in data.items()}
        found: dict[tuple[str, float], list[float]] = {}
        for run in experiment.runs(prints):
            if run.method in STRENGTHS:
                tuned = [run.tuned({"objective.strength": strength}) for strength in STRENGTHS[run.method]]
                areas = _areas(tuned, data[run.data])
                for trial, strength in zip(tuned, STRENGTHS[run.method], strict=True):
                    found.setdefault((run.method, strength), []).append(areas[trial.run_id])
    for (method, strength), values in found.items():
        table.add_row(method, f"{strength:g}", *(f"{area:.3f}" for area in values), f"{np.mean(values):.3f}")
    console.print(table)


def _areas(runs: list[Run], data: PreparedData) -> dict[str, float]:
    """Run id -> the area of each of these runs, which differ in their strength at most."""
    ended = (event for event in BatchedTrainer(runs, data).train() if not isinstance(event, int))
    return {
        run.run_id: matched_auc(np.array(record.epochs[-1].traces["topic_norms"]), _planted(data))
        for run, record in ended
    }


def _planted(data: PreparedData) -> np.ndarray:
    return np.array(data.suite.extras["special"])


def _prepared(experiment: Experiment, home: Path) -> dict[str, PreparedData]:
    return {
        name: load_prepared(prepare(dataset.name, dataset.options, None, home))
        for name, (dataset, _) in experiment.data().items()
    }


def table3(console: Console, home: Home) -> None:
    experiment = load_experiment("tomato_table3")
    records = [record for record in own_records(experiment, home).records if record.status == "finished"]
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


TRIALS = 8  # that are timed together


def grid(console: Console, home: Home) -> None:
    experiment = load_experiment("tomato_table3_full")
    assert experiment.search is not None
    dataset = next(dataset for dataset in experiment.datasets if dataset.name == "school")
    options = {**dataset.options, "split": experiment.search.seed % dataset.splits}
    data = load_prepared(prepare(dataset.name, options, None, home.root))
    bases = experiment.bases(dict.fromkeys(experiment.data(), data.manifest.fingerprint))
    base = next(run for run in bases if (run.dataset, run.method) == (dataset.label, "tomato_ex"))
    table, hours, points = Table("topics", "top", "points", "s of a trial's epoch", title=experiment.name), 0.0, 0
    for group in planning.groups(trials(experiment.search, base)):
        trainer = BatchedTrainer(group[:TRIALS], data)
        trainer._epoch(1)
        started = time.process_time()
        trainer._epoch(2)
        seconds = (time.process_time() - started) / max(1, len(trainer.runs))
        hours += seconds * len(group) * base.training.epochs / 3600
        points += len(group)
        shape = group[0].spec["architecture"]
        table.add_row(str(shape["topics"]), str(shape["top"]), str(len(group)), f"{seconds:.4f}")
    console.print(table)
    console.print(f"{points} points: {hours:.1f} hours of one core; two cores do {min(1, 4 / hours):.0%} in two hours")


def _errors(record: RunRecord) -> dict[str, float]:
    return {task: record.metrics["test"][task][metric] for task, metric in record.main_metrics.items()}


def _pooled(errors: dict[str, float], sizes: dict[str, int]) -> float:
    return sum(error * sizes[task] for task, error in errors.items()) / sum(sizes[task] for task in errors)


def _interval(values: list[float], digits: int = 2) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recovery", action="store_true", help="planted sparsity of the synthetic data")
    parser.add_argument("--strengths", action="store_true", help="the strengths of --recovery, on other draws")
    parser.add_argument("--table3", action="store_true", help="ours beside the printed table 3")
    parser.add_argument("--grid", action="store_true", help="the cost of the grid on School")
    parser.add_argument("--home", type=Path, help="folder of the results (default: that of mtlscale)")
    options = parser.parse_args()
    if not (options.recovery or options.strengths or options.table3 or options.grid):
        parser.error("say --recovery, --strengths, --table3 or --grid")
    torch.set_num_threads(1)
    console = Console(width=110)
    home = Home.at(options.home)
    if options.table3:
        table3(console, home)
    if options.grid:
        grid(console, home)
    if options.strengths:
        strengths(console)
    if options.recovery:
        page = Console(width=110, record=True)
        recovery(page)
        # `studies/results.py` takes it into the tables under results/tables.
        write_atomically(home.experiment("tomato_recovery") / "page.md", page.export_text().encode())


if __name__ == "__main__":
    main()
