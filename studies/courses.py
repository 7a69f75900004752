"""What figures draw over epochs or numbers of tasks, as tables under results/tables.

*By epoch*: a quantity of each method, the mean over seeds. *By seed*: its mean over epochs, and how far it moved in
all, which is the sum of its steps, up and down. Methods without epochs are left out.
*By topic*: the norms of what a task has of its own in a topic of TOMATO at the end, and how many of them are zero.
*By task*: the gates and the task weights of DSMTL at the end.
*By number of tasks*: the errors of methods beside those of single-task models of the same seed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mtlscale.records import Epoch, RunRecord
from mtlscale.report.stats.statistics import half_width


def _loss_variance(epoch: Epoch) -> float:
    """Return the variance over tasks (1/T) of the training losses, times 10⁴."""
    return 1e4 * float(np.var(list(epoch.train_loss.values())))


def _weight_spread(epoch: Epoch) -> float:
    """Return the standard deviation over tasks (1/T) of the weights, in percent of their mean."""
    weights = np.array(list(epoch.weights.values()))
    return 100.0 * float(weights.std() / weights.mean()) if weights.size and weights.mean() > 0 else np.nan


def _relatedness(epoch: Epoch) -> float:
    """Return the mean over pairs of tasks of R, in percent."""
    return 100.0 * float(epoch.traces.get("R_mean", np.nan))


def _relatedness_spread(epoch: Epoch) -> float:
    """Return the standard deviation over tasks (1/T) of the mean R with the others, in percent."""
    return 100.0 * math.sqrt(epoch.traces.get("R_var", np.nan))


Quantity = Callable[[Epoch], float]
_OF_RELATEDNESS: dict[str, Quantity] = {"relatedness": _relatedness, "spread of relatedness": _relatedness_spread}
# Experiment -> what its figures draw by epoch.
DRAWN: dict[str, dict[str, Quantity]] = {
    "aamtrl_newsgroups": _OF_RELATEDNESS,
    "aamtrl_amazon": _OF_RELATEDNESS,
    "getmtl_traces_newsgroups": {"variance of losses": _loss_variance, "spread of weights": _weight_spread},
}


def by_epoch(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield three tables for each data set and quantity that the experiment's figures draw."""
    quantities = DRAWN.get(records[0].experiment, {}) if records else {}
    done = [record for record in records if record.status == "finished" and len(record.epochs) > 1]
    for dataset in dict.fromkeys(record.dataset for record in done):
        for title, quantity in quantities.items():
            values = pd.DataFrame(
                [
                    (record.method, record.seed, number, quantity(epoch))
                    for record in done
                    if record.dataset == dataset
                    for number, epoch in enumerate(record.epochs, 1)
                ],
                columns=["method", "seed", "epoch", "value"],
            ).dropna()
            if len(values):
                said = (quantity.__doc__ or "").removeprefix("Return ").partition("\n")[0]
                yield from _course(f"{dataset}, {title}", said, values)


def _course(title: str, said: str, values: pd.DataFrame) -> Iterator[str]:
    """Yield the tables of one quantity: its columns are method, seed, epoch and value."""
    wide = values.pivot_table(index=["method", "seed"], columns="epoch", values="value", sort=False)
    means = wide.groupby(level="method", sort=False).mean()
    yield f"### {title}, by epoch\n\n{said[:1].upper()}{said[1:]}\n"
    yield _table("method by epoch", means)
    for part, by_seed in (
        ("mean over epochs", wide.mean(axis=1)),
        ("moved in all", wide.diff(axis=1).abs().sum(axis=1)),
    ):
        yield f"### {title}, {part}\n"
        yield _table("method by seed", by_seed.unstack("seed").reindex(means.index))


def _table(head: str, frame: pd.DataFrame) -> str:
    """Return a table of numbers with a row for each method."""
    lines = [f"| {head} | {' | '.join(map(str, frame.columns))} |", f"| --- |{' ---: |' * frame.shape[1]}"]
    lines += [f"| {method} | {' | '.join(f'{value:.3f}' for value in row)} |" for method, row in frame.iterrows()]
    return "\n".join([*lines, ""])


def _cell(values: NDArray[np.float64], digits: int = 1) -> str:
    """Return mean ± half the 95 % interval of values, one of each seed."""
    half = float(half_width(np.std(values, ddof=1), len(values))) if len(values) > 1 else np.nan
    mean = f"{np.mean(values):.{digits}f}"
    return mean if np.isnan(half) else f"{mean} ± {half:.{digits}f}"


def by_topic(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield for each data set the norms of the first seed, and the share of zeros by seed."""
    norms = {
        (record.dataset, record.method, record.seed): np.array(record.epochs[-1].traces["topic_norms"])
        for record in records
        if record.status == "finished" and record.epochs and "topic_norms" in record.epochs[-1].traces
    }
    for dataset in dict.fromkeys(dataset for dataset, _, _ in norms):
        of_set = {(method, seed): matrix for (where, method, seed), matrix in norms.items() if where == dataset}
        first_seeds = dict(reversed(of_set))
        methods = list(dict.fromkeys(method for method, _ in of_set))
        yield f"### {dataset}, norms by topic\n"
        yield "The norm of what each task has of its own in a topic, tasks in their order, in the first seed.\n"
        width = max(matrix.shape[1] for matrix in of_set.values())
        yield f"| norms by topic | topic | {' | '.join(f'task {task}' for task in range(width))} |"
        yield f"| --- | ---: |{' ---: |' * width}"
        for method in methods:
            for topic, row in enumerate(of_set[method, first_seeds[method]]):
                cells = [f"{norm:.3f}" for norm in row] + ["–"] * (width - len(row))
                yield f"| {method} | {topic} | {' | '.join(cells)} |"
        yield ""
        zeros = pd.Series({key: 100.0 * float(np.mean(matrix == 0)) for key, matrix in of_set.items()})
        yield f"### {dataset}, pairs at zero\n"
        yield "Pairs of a topic and a task without anything of their own, in percent.\n"
        yield _table("method by seed", zeros.unstack().reindex(methods))


def by_task(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield tables of the gates, and of the weights of tasks that a search found, at the end of each run."""
    ended = [record for record in records if record.status == "finished" and record.epochs]
    for trace, title in (
        ("gates", "Gates at the end, of the private features"),
        ("task_weights", "Weights of the tasks"),
    ):
        values = pd.DataFrame(
            [
                (record.dataset, record.method, task, value)
                for record in ended
                for task, value in record.epochs[-1].traces.get(trace, {}).items()
            ],
            columns=["dataset", "method", "task", "value"],
        )
        for dataset, of_set in values.groupby("dataset", sort=False):
            tasks = list(dict.fromkeys(of_set["task"]))
            name = trace.replace("_", " ")
            yield f"### {dataset}, {name} by task\n\n{title}, means over seeds with half the interval.\n"
            yield f"| {name} | {' | '.join(tasks)} |\n| --- |{' ---: |' * len(tasks)}"
            for method, of_method in of_set.groupby("method", sort=False):
                of_task = {task: group["value"].to_numpy() for task, group in of_method.groupby("task")}
                cells = [_cell(of_task[task], 3) if task in of_task else "–" for task in tasks]
                yield f"| {method} | {' | '.join(cells)} |"
            yield ""


def by_number_of_tasks(records: Sequence[RunRecord], baseline: str) -> Iterator[str]:
    """Yield tables over data sets that are named `2 tasks`, `4 tasks`, …; none where they are not.

    The first has the mean error as a share of the baseline's of the same seed, in percent; the second that of the task
    that is in every set. Their last column is the largest set less the smallest.
    """
    done = [record for record in records if record.status == "finished"]
    sets = list(dict.fromkeys(record.dataset for record in done))
    if len(sets) < 2 or not all(re.fullmatch(r"\d+ tasks", name) for name in sets):
        return

    yield "### Number of tasks\n"
    tested = {record.dataset: list(record.main_metrics) for record in done}
    first = next(task for task in tested[sets[0]] if all(task in tasks for tasks in tested.values()))
    for title, tasks in (
        ("mean of all tasks", tested),
        (f"`{first}`, which is in every set", {dataset: [first] for dataset in sets}),
    ):
        errors = pd.DataFrame(
            [(run.method, run.seed, run.dataset, _error(run, tasks[run.dataset])) for run in done],
            columns=["method", "seed", "dataset", "error"],
        ).pivot_table(index=["method", "seed"], columns="dataset", values="error")[sets]
        shares = 100.0 * errors / errors.loc[baseline].reindex(errors.index, level="seed")
        shares = shares.drop(index=baseline, level="method").dropna()
        change = f"{sets[-1]} − {sets[0]}"
        shares[change] = shares[sets[-1]] - shares[sets[0]]
        yield f"Error, {title}, as a share of {baseline}'s of the same seed, in percent:\n"
        yield f"| method by number of tasks | {' | '.join(map(str, shares.columns))} |"
        yield f"| --- |{' ---: |' * shares.shape[1]}"
        for method, seeds in shares.groupby(level="method", sort=False):
            yield f"| {method} | {' | '.join(_cell(seeds[column].to_numpy()) for column in shares)} |"
        yield ""


def _error(run: RunRecord, tasks: Sequence[str]) -> float:
    """Return the mean error on test of some tasks, in percent of their samples."""
    test = run.metrics["test"]
    return float(np.mean([100.0 - test[task][run.main_metrics[task]] for task in tasks]))
