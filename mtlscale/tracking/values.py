"""Selection of a run's numbers for MLflow, each at its epoch.

By default they are so few that tables and charts stay legible; `tracking.detail: full` in the experiment file asks for
all.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Literal

from mtlscale.config import Run
from mtlscale.metrics import NETWORK
from mtlscale.records import Epoch, Metrics, RunRecord, read_epochs

Detail = Literal["summary", "full"]
Metric = tuple[str, float, int]  # key, value, step

MAX_METRICS = 25  # metrics of a run in a summary
_BY_TASK = 15  # of them by task; the remaining ones are those that every run has


def epoch_metrics(
    run: Run, epochs: Iterable[Epoch], written: Container[int], detail: Detail = "full"
) -> tuple[list[Metric], list[int]]:
    """Return the metrics of epochs whose steps are not written yet, and these steps."""
    values_of = _all_of_epoch if detail == "full" else _some_of_epoch
    news = {run.epochs_behind(epoch.phase, epoch.epoch): epoch for epoch in epochs}  # repeated after a resume: once
    steps = [step for step in news if step not in written]
    return [(key, float(value), step) for step in steps for key, value in values_of(news[step]).items()], steps


def end_metrics(record: RunRecord, step: int, detail: Detail = "full") -> list[Metric]:
    """Return results, cost and counters of a run that has ended, at the step of its last epoch.

    A mean over tasks is among them only if they share a main metric.
    """
    values = _all_of_end(record) if detail == "full" else _some_of_end(record)
    if record.chosen_epoch is not None:
        values["chosen_epoch"] = record.chosen_epoch
    return [(key, float(value), step) for key, value in values.items()]


def epochs_of(folder: Path, record: RunRecord) -> list[Epoch]:
    """Return the epochs of a run that has ended and left its files in this folder."""
    return record.epochs or read_epochs(folder)


def means(record: RunRecord) -> dict[str, float]:
    """Return split.mean -> mean over tasks of the main metric they share; for a transfer last_step.test.mean, too."""
    averages = {}
    last = {"last_step.test": record.last["test"]} if record.domains and "test" in record.last else {}
    for split, tasks in {**record.metrics, **last}.items():
        main_values = [tasks[task][metric] for task, metric in record.main_metrics.items() if task in tasks]
        if record.shared_metric is not None and main_values:
            averages[f"{split}.mean"] = sum(main_values) / len(main_values)
    return averages


def mains(record: RunRecord, split: str) -> dict[str, float]:
    """Return split.metric.task -> the main metric of each task, unless there are too many tasks."""
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
    """Return the mean training loss, validation's main metric, and by task as many groups as there is room for."""
    losses, tasks = list(epoch.train_loss.values()), max(1, len(epoch.train_loss))
    values = {"epoch_seconds": epoch.seconds}
    if losses:
        values["train.loss"] = sum(losses) / len(losses)

    # The main metric of a task is its first.
    main = {task: next(iter(task_metrics.items())) for task, task_metrics in epoch.val.items() if task_metrics}
    if main and len({metric for metric, _ in main.values()}) == 1:
        values["epoch_val_mean"] = sum(value for _, value in main.values()) / len(main)

    groups: tuple[dict[str, float], ...] = (
        {f"val.{metric}.{task}": value for task, (metric, value) in main.items()},
        {f"train.loss.{task}": value for task, value in epoch.train_loss.items()},
        {f"weight.{task}": value for task, value in epoch.weights.items()},
    )

    for group in groups[: max(0, _BY_TASK // tasks - 1)]:  # the results take the first share
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
    for scope, figures in record.figures.items():
        values |= {name if scope == NETWORK else f"{scope}.{name}": value for name, value in figures.items()}
    return values


def _by_task(split: str, tasks: Metrics | Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {
        f"{split}.{metric}.{task}": value
        for task, task_metrics in tasks.items()
        for metric, value in task_metrics.items()
    }


def _traces(epoch: Epoch) -> dict[str, float]:
    """Return traces that are numbers, and those by task; the record alone has lists."""
    values: dict[str, float] = {}
    for name, value in epoch.traces.items():
        if isinstance(value, int | float):
            values[f"trace.{name}"] = value
        elif isinstance(value, dict):
            values |= {
                f"trace.{name}.{task}": task_value
                for task, task_value in value.items()
                if isinstance(task_value, int | float)
            }
    return values
