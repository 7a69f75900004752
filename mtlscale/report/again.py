"""A run and its repetition: whether every metric is the same, and what else is not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mtlscale.records import Metrics, RunRecord


@dataclass(frozen=True)
class Difference:
    """A metric that is not the same."""

    place: str  # a split; `last` before it where it is that of the last epoch
    task: str
    metric: str
    before: float
    after: float


@dataclass(frozen=True)
class Again:
    """What became of a run when it was run again."""

    before: RunRecord
    after: RunRecord

    @property
    def same(self) -> bool:
        """To the last digit."""
        return not self.differences and self.before.status == self.after.status and not self.choice

    @property
    def differences(self) -> list[Difference]:
        found = list(_differences(self.before.metrics, self.after.metrics))
        return found + list(_differences(self.before.last, self.after.last, "last "))

    @property
    def compared(self) -> int:
        """How many numbers were."""
        return sum(
            len(values)
            for part in (self.before.metrics, self.before.last)
            for s in part.values()
            for values in s.values()
        )

    @property
    def choice(self) -> str:
        """How the chosen epoch differs; "" where it does not."""
        before, after = self.before.chosen_epoch, self.after.chosen_epoch
        if before == after and self.before.chosen_epochs == self.after.chosen_epochs:
            return ""
        return "chosen epoch" if before is None else f"chosen epoch {before}, now {after}"

    @property
    def parts_at(self) -> str:
        """The epoch from which on training went another way; "" where it did not."""
        for before, after in zip(self.before.epochs, self.after.epochs, strict=False):
            if before.train_loss != after.train_loss:
                phase = f"{before.phase}, " if before.phase else ""
                return f"{phase}epoch {before.epoch}"
        return ""

    @property
    def surroundings(self) -> list[str]:
        """What is not the same of programs and machine."""
        before, after = self.before, self.after
        names = sorted({*before.versions, *after.versions})
        pairs = [(name, before.versions.get(name, "none"), after.versions.get(name, "none")) for name in names]
        pairs += [("revision", before.revision or "none", after.revision or "none")]
        pairs += [("hardware", before.hardware, after.hardware), ("workers", str(before.workers), str(after.workers))]
        return [f"{name}: {old}, now {new}" for name, old, new in pairs if old != new]


def _differences(before: dict[str, Metrics], after: dict[str, Metrics], prefix: str = "") -> Iterator[Difference]:
    for split in dict.fromkeys((*before, *after)):
        old, new = before.get(split, {}), after.get(split, {})
        for task in dict.fromkeys((*old, *new)):
            for metric in dict.fromkeys((*old.get(task, {}), *new.get(task, {}))):
                values = [found.get(task, {}).get(metric, math.nan) for found in (old, new)]
                if values[0] != values[1] and not all(map(math.isnan, values)):
                    yield Difference(f"{prefix}{split}", task, metric, *values)
