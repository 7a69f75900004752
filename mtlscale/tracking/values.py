"""Which numbers of a run MLflow is told, each at its epoch.

By default so few that tables and charts stay legible; `tracking.detail: full` in the experiment file asks for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from mtlscale.metrics import NETWORK
from mtlscale.records import Epoch, Metrics, RunRecord
from mtlscale.spec import Run

Detail = Literal["summary", "full"]
Metric = tuple[str, float, int]  # key, value, step

MOST = 25  # metrics of a run in a summary
_BY_TASK = 15  # of them: what is left beside those that every run has


def epoch_metrics(run: Run, epochs: Iterable[Epoch], last: int, detail: Detail = "full") -> tuple[list[Metric], int]:
    """Those of the epochs after the one that was written last, and the new last one."""
    metrics: list[Metric] = []
    values_of = _all_of_epoch if detail == "full" else _some_of_epoch
    for epoch in epochs:
        step = run.epochs_behind(epoch.phase, epoch.epoch)
        if step <= last:
            continue  # an epoch repeated after a resume
        last = step
        metrics += [(key, float(value), step) for key, value in values_of(epoch).items()]
    return metrics, last


def end_metrics(run: Run, record: RunRecord, detail: Detail = "full") -> list[Metric]:
    """Results, cost and counters of a run that has ended, at its last epoch; a mean over tasks where they share a main
    metric alone."""
    values = _all_of_end(record) if detail == "full" else _some_of_end(record)
    if record.chosen_epoch is not None:
        values["chosen_epoch"] = record.chosen_epoch
    last = 0 if not record.epochs else run.epochs_behind(record.epochs[-1].phase, record.epochs[-1].epoch)
    return [(key, float(value), last) for key, value in values.items()]


def means(record: RunRecord) -> dict[str, float]:
    """split.mean -> mean over tasks of the main metric they share; of a transfer last_step.test.mean, too."""
    found = {}
    last = {"last_step.test": record.last["test"]} if record.domains and "test" in record.last else {}
    for split, tasks in {**record.metrics, **last}.items():
        mains = [tasks[task][metric] for task, metric in record.main_metrics.items() if task in tasks]
        if record.shared_metric is not None and mains:
            found[f"{split}.mean"] = sum(mains) / len(mains)
    return found


def mains(record: RunRecord, split: str) -> dict[str, float]:
    """split.metric.task -> the main metric of each task, as long as there are not too many of them."""
    tasks = record.metrics.get(split, {})
    if len(record.main_metrics) > _BY_TASK:
        return {}
    return {
        f"{split}.{metric}.{task}": tasks[task][metric]
        for task, metric in record.main_metrics.items()
        if metric in tasks.get(task, ())
    }


def _all_of_epoch(epoch: Epoch) -> dict[str, float]:
    values = {"epoch_seconds": epoch.seconds}
    values |= {f"train.loss.{task}": value for task, value in epoch.train_loss.items()}
    values |= {f"weight.{task}": value for task, value in epoch.weights.items()}
    values |= _by_task("val", epoch.val)
    return values | _traces(epoch)


def _some_of_epoch(epoch: Epoch) -> dict[str, float]:
    """The mean training loss, validation's main metric, and by task as many groups of them as there is room for."""
    losses, tasks = list(epoch.train_loss.values()), max(1, len(epoch.train_loss))
    values = {"epoch_seconds": epoch.seconds}
    if losses:
        values["train.loss"] = sum(losses) / len(losses)
    # The main metric of a task is its first.
    main = {task: next(iter(found.items())) for task, found in epoch.val.items() if found}
    if main and len({metric for metric, _ in main.values()}) == 1:
        values["epoch_val_mean"] = sum(value for _, value in main.values()) / len(main)
    groups: tuple[dict[str, float], ...] = (
        {f"val.{metric}.{task}": value for task, (metric, value) in main.items()},
        {f"train.loss.{task}": value for task, value in epoch.train_loss.items()},
        {f"weight.{task}": value for task, value in epoch.weights.items()},
    )
    for group in groups[: max(0, _BY_TASK // tasks - 1)]:  # the first share is that of the results
        values |= group
    return values


def _all_of_end(record: RunRecord) -> dict[str, float]:
    values: dict[str, float] = {}
    for split, tasks in record.metrics.items():
        if split != "val":
            values |= _by_task(split, tasks)
    values |= means(record) | _costs(record)
    values["samples_per_second"] = record.samples_per_second
    values |= {f"counter.{name}": count for name, count in record.counters.items()}
    return values | {f"phase.{phase.name}.seconds": phase.seconds for phase in record.phases}


def _some_of_end(record: RunRecord) -> dict[str, float]:
    judged = "test" if record.metrics.get("test") else "val"
    values = {key: value for key, value in means(record).items() if not key.startswith("train")}
    if len(values) > 3:  # parts of test
        values = {
            key: value for key, value in values.items() if key in ("val.mean", "test.mean", "last_step.test.mean")
        }
    return values | _costs(record) | (mains(record, judged) if judged == "test" else {})


def _costs(record: RunRecord) -> dict[str, float]:
    values: dict[str, float] = {
        "seconds": record.seconds,
        "peak_memory_mb": record.peak_memory_mb,
        "parameters": record.parameters,
    }
    for where, figures in record.figures.items():
        values |= {name if where == NETWORK else f"{where}.{name}": value for name, value in figures.items()}
    return values


def _by_task(split: str, tasks: Metrics | Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{split}.{metric}.{task}": value for task, found in tasks.items() for metric, value in found.items()}


def _traces(epoch: Epoch) -> dict[str, float]:
    """Numbers, and those by task; lists are in the record alone."""
    values: dict[str, float] = {}
    for name, value in epoch.traces.items():
        if isinstance(value, int | float):
            values[f"trace.{name}"] = value
        elif isinstance(value, dict):
            values |= {f"trace.{name}.{task}": of for task, of in value.items() if isinstance(of, int | float)}
    return values
