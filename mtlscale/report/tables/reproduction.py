"""The comparison of a run with its repetition: metrics, chosen epoch, programs and machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mtlscale.records import Metrics, RunRecord


@dataclass(frozen=True)
class MetricDifference:
    """Metric whose value differs between a run and its repetition."""

    place: str  # the split, with "last " before it for metrics of the last epoch
    task: str
    metric: str
    before: float
    after: float

    @property
    def relative(self) -> float:
        """The difference over the larger magnitude; infinite where one of the values is no number."""
        ratio = abs(self.before - self.after) / max(abs(self.before), abs(self.after))
        return ratio if math.isfinite(ratio) else math.inf


@dataclass(frozen=True)
class Reproduction:
    """The pair of a run and its repetition."""

    before: RunRecord
    after: RunRecord

    @property
    def same(self) -> bool:
        """The verdict: true if metrics, to the last digit, status and chosen epoch are equal."""
        return not self.differences and self.before.status == self.after.status and not self.choice

    @property
    def differences(self) -> list[MetricDifference]:
        chosen_epoch_differences = list(_differences(self.before.metrics, self.after.metrics))
        return chosen_epoch_differences + list(_differences(self.before.last, self.after.last, "last "))

    @property
    def largest(self) -> tuple[float, str]:
        """The largest relative difference and its split, task and metric.

        It is infinite where the run ended with another status or chose another epoch.
        """
        if self.before.status != self.after.status or self.choice:
            return math.inf, self.choice or f"status {self.before.status}, now {self.after.status}"
        worst = max(self.differences, key=lambda one: one.relative, default=None)
        return (0.0, "") if worst is None else (worst.relative, f"{worst.place} {worst.task} {worst.metric}")

    @property
    def compared(self) -> int:
        """The number of compared values."""
        return sum(
            len(values)
            for part in (self.before.metrics, self.before.last)
            for tasks in part.values()
            for values in tasks.values()
        )

    @property
    def choice(self) -> str:
        """The difference of the chosen epochs in words; "" if there is none."""
        before, after = self.before.chosen_epoch, self.after.chosen_epoch
        if before == after and self.before.chosen_epochs == self.after.chosen_epochs:
            return ""
        return "chosen epoch" if before is None else f"chosen epoch {before}, now {after}"

    @property
    def parts_at(self) -> str:
        """The first epoch whose training loss differs; "" if there is none."""
        for before, after in zip(self.before.epochs, self.after.epochs, strict=False):
            if before.train_loss != after.train_loss:
                phase = f"{before.phase}, " if before.phase else ""
                return f"{phase}epoch {before.epoch}"
        return ""

    @property
    def surroundings(self) -> list[str]:
        """The differences of programs and machine, a text for each."""
        before, after = self.before, self.after

        names = sorted({*before.versions, *after.versions})
        pairs = [(name, before.versions.get(name, "none"), after.versions.get(name, "none")) for name in names]
        pairs += [("revision", before.revision or "none", after.revision or "none")]
        pairs += [("hardware", before.hardware, after.hardware), ("workers", str(before.workers), str(after.workers))]

        return [f"{name}: {old}, now {new}" for name, old, new in pairs if old != new]


def _differences(before: dict[str, Metrics], after: dict[str, Metrics], prefix: str = "") -> Iterator[MetricDifference]:
    for split in dict.fromkeys((*before, *after)):
        old, new = before.get(split, {}), after.get(split, {})
        for task in dict.fromkeys((*old, *new)):
            for metric in dict.fromkeys((*old.get(task, {}), *new.get(task, {}))):
                values = [metrics.get(task, {}).get(metric, math.nan) for metrics in (old, new)]
                if values[0] != values[1] and not all(map(math.isnan, values)):
                    yield MetricDifference(f"{prefix}{split}", task, metric, *values)
