"""Summary of a run in lines and small tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mtlscale.cli.output.grid import grid

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtlscale.records import Epoch, RunRecord

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 60
_MOST_EPOCHS = 8
_MOST_ROWS = 40  # of the table of metrics
_MOST_CHARACTERS = 200  # of a structure


def title(record: RunRecord) -> str:
    """Return the headline of a run."""
    return f"run {record.run_id}: {record.dataset} · {record.method} · seed {record.seed}, {record.status}"


def summary_parts(record: RunRecord) -> Iterator[RenderableType]:
    """Yield lines and tables, from what the run is to what it took."""
    if record.error is not None:
        yield f"cause: {record.error}"
    if record.started:
        yield f"from {record.started} to {record.finished} on {_where(record)}"
    yield from _spec(record)
    yield from _epochs(record)
    if record.metrics:
        yield _metrics(record)
        if _metric_count(record) > _MOST_ROWS:
            yield f"and {_metric_count(record) - _MOST_ROWS} more; --json has all"
    yield from _cost(record)


def _where(record: RunRecord) -> str:
    names = ("mtlscale", "torch", "python")
    versions = ", ".join(f"{name} {record.versions[name]}" for name in names if name in record.versions)
    revision = f", revision {record.revision}" if record.revision else ""
    workers = f"{record.workers} workers of " if record.workers > 1 else ""
    return f"{workers}{record.hardware} ({versions}{revision})"


def _spec(record: RunRecord) -> Iterator[str]:
    from mtlscale.config import differences

    settings = differences(record.spec)
    for part in ("dataset", "architecture", "balancer", "objective", "encoder", "training"):
        options = ", ".join(
            f"{key.partition('.')[2]}={_short(value)}" for key, value in settings.items() if key.startswith(f"{part}.")
        )
        if part in settings or options:
            yield f"  {part:<12} {' '.join(filter(None, (settings.get(part, ''), options)))}"
    if "dropout" in settings:
        yield f"  {'dropout':<12} {settings['dropout']}"
    if record.trial:
        yield f"  {'searched':<12} {', '.join(f'{key}={_short(value)}' for key, value in record.trial.items())}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


# -- epochs ------------------------------------------------------------------------------------------------------------


def sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, a dot for what is no number.

    Many values are reduced to evenly spaced ones, the last among them.
    """
    if len(values) > _MOST_BARS:
        step = (len(values) - 1) / (_MOST_BARS - 1)
        values = [values[round(index * step)] for index in range(_MOST_BARS)]
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if math.isfinite(value) else "·" for value in values)


def _epochs(record: RunRecord) -> Iterator[RenderableType]:
    epochs = record.epochs
    if not epochs:
        return
    metric = record.shared_metric or "loss"
    evaluated = [epoch for epoch in epochs if epoch.val]
    lines = {"train loss": [_mean(epoch.train_loss.values()) for epoch in epochs]}
    lines[f"val {metric}"] = [_val(epoch, metric) for epoch in evaluated]

    width = max(map(len, lines))
    for name, values in lines.items():
        if len(values) > 1:
            yield f"  {name:<{width}}  {sparkline(values)}  {values[0]:.4g} to {values[-1]:.4g}"

    headers, rows = ("epoch", *lines, "seconds"), []
    for epoch in _shown_epochs(record):
        mark = f"{epoch.phase} {epoch.epoch}".strip()
        last = epoch.phase == epochs[-1].phase
        mark += " (chosen)" if last and epoch.epoch == record.chosen_epoch else ""
        val_text = f"{_val(epoch, metric):.4g}" if epoch.val else ""
        rows.append((mark, f"{_mean(epoch.train_loss.values()):.4g}", val_text, f"{epoch.seconds:.2f}"))
    yield grid(headers, rows, right=headers)

    if record.chosen_epochs:
        chosen = [f"{task} {epoch}" for task, epoch in record.chosen_epochs.items()]
        remainder = f" and {len(chosen) - 12} more" if len(chosen) > 12 else ""
        yield f"each task chose its own epoch: {', '.join(chosen[:12])}{remainder}"


def _shown_epochs(record: RunRecord) -> list[Epoch]:
    """Return the first, the last and the chosen epoch, and some between."""
    epochs, count = record.epochs, len(record.epochs)
    positions = {round(index * (count - 1) / max(1, _MOST_EPOCHS - 1)) for index in range(_MOST_EPOCHS)}
    last = epochs[-1].phase
    positions |= {i for i, epoch in enumerate(epochs) if epoch.phase == last and epoch.epoch == record.chosen_epoch}
    return [epochs[position] for position in sorted(positions)]


def _val(epoch: Epoch, metric: str) -> float:
    return _mean([task_metrics[metric] for task_metrics in epoch.val.values() if metric in task_metrics])


def _mean(values: Any) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else math.nan


# -- what came of it ---------------------------------------------------------------------------------------------------


def _metric_count(record: RunRecord) -> int:
    return len(
        {
            (task, name)
            for split_metrics in record.metrics.values()
            for task in split_metrics
            for name in split_metrics[task]
        }
    )


def _metrics(record: RunRecord) -> RenderableType:
    """Return the table of the tasks' metrics by split at the chosen epoch, and of their test after the last one."""
    from rich.text import Text

    splits = [split for split in record.metrics if split != "train"]
    last_headers = ["last step test" if record.domains else "last test"] if record.last.get("test") else []

    pairs = [
        (task, name)
        for split_metrics in record.metrics.values()
        for task in split_metrics
        for name in split_metrics[task]
    ]
    rows = []
    for task, name in list(dict.fromkeys(pairs))[:_MOST_ROWS]:
        values = [record.metrics[split].get(task, {}).get(name) for split in splits]
        values += [record.last["test"].get(task, {}).get(name)] if last_headers else []
        metric = Text(name, "bold" if record.main_metrics.get(task) == name else "")
        rows.append((task, metric, *("" if value is None else f"{value:.4g}" for value in values)))

    numbers = (*splits, *last_headers)
    return grid(("task", "metric", *numbers), rows, title="at the chosen epoch", right=numbers)


def _cost(record: RunRecord) -> Iterator[str]:
    task_parameters = record.parameters - record.shared_parameters
    yield (
        f"cost: {record.seconds:.1f} s ({record.train_seconds:.1f} s of steps), {record.steps:,} steps, "
        f"{record.samples_per_second:,.0f} samples/s, {record.peak_memory_mb:,.0f} MiB, "
        f"{record.parameters:,} parameters ({record.shared_parameters:,} shared, {task_parameters:,} of tasks)"
    )

    for phase in record.phases:
        reused = ", of another run" if phase.reused else ""
        yield f"phase {phase.name}: {phase.epochs} epochs, {phase.steps:,} steps, {phase.seconds:.1f} s{reused}"

    counted = [f"{name} {count:,}" for name, count in record.counters.items() if count]
    if counted:
        yield f"counted: {', '.join(counted)}"
    if record.structure:
        text = json.dumps(record.structure, ensure_ascii=False)
        ellipsis = "… (--json has all)" if len(text) > _MOST_CHARACTERS else ""
        yield f"structure: {text[:_MOST_CHARACTERS]}{ellipsis}"
