"""The comparison of a run with its repetition: metrics, chosen epoch, programs and machine."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mtlscale.records import Metrics, RunRecord

Outcome = Literal["the same to the last digit", "the same within what seeds differ by", "different"]
SAME: Outcome = "the same to the last digit"
WITHIN: Outcome = "the same within what seeds differ by"
DIFFERENT: Outcome = "different"

# In standard deviations over seeds. Of 596 runs of the standing study that were repeated with another instruction set,
# 566 took the same course: half of their values moved by less than SAME_COURSE, and no value of the chosen epoch by
# more than MOST. The others were as far off as another seed is: the mean of their main metrics by 2.2 at most.
SAME_COURSE, MOST, MOST_OF_ANOTHER_COURSE = 0.01, 1.0, 3.0
_UNKNOWN_SPREAD = 1e-3  # relative to the value, where no other seed is known

Key = tuple[str, str, str]  # split, with "last " before it for metrics of the last epoch; task; metric


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
    """The pair of a run and its repetition.

    `spread` has the standard deviations over seeds of the run's values; see `among`.
    """

    before: RunRecord
    after: RunRecord
    spread: Mapping[Key, float] = field(default_factory=dict, repr=False)

    def among(self, records: Iterable[RunRecord]) -> Reproduction:
        """Return the pair with the spread over seeds that these records of the run's experiment show."""
        return replace(self, spread=spread_over_seeds(self.before, records))

    @property
    def outcome(self) -> Outcome:
        """The verdict. Rounding of another processor is no difference, and neither is another epoch that it chose.

        A run that takes the same course is compared value by value. A chaotic run takes another course on another
        processor; it is compared as another seed would be, by the mean of its main metrics.
        """
        if self.same:
            return SAME
        if self.before.status != self.after.status:
            return DIFFERENT
        deviations = self._deviations("last " if self.choice else "")
        if not self.takes_another_course:
            return WITHIN if max(deviations.values(), default=0.0) <= MOST else DIFFERENT
        return WITHIN if self._mean_deviation() <= MOST_OF_ANOTHER_COURSE else DIFFERENT

    @property
    def takes_another_course(self) -> bool:
        """True if half of the values moved by more than rounding explains: the training itself went elsewhere."""
        deviations = self._deviations("last " if self.choice else "").values()
        return bool(deviations) and statistics.median(deviations) > SAME_COURSE

    def _deviations(self, prefix: str) -> dict[Key, float]:
        """Return how far each value moved, in standard deviations over seeds."""
        before, after = (dict(_values(record, prefix)) for record in (self.before, self.after))
        return {key: self._in_units(key, before.get(key), after.get(key)) for key in {**before, **after}}

    def _in_units(self, key: Key, before: float | None, after: float | None) -> float:
        if before == after or (before != before and after != after):
            return 0.0
        if before is None or after is None or not math.isfinite(before - after):
            return math.inf
        unit = self.spread.get(key) or _UNKNOWN_SPREAD * max(abs(before), abs(after))
        return abs(before - after) / unit

    def _mean_deviation(self) -> float:
        before, after = (_main_mean(record) for record in (self.before, self.after))
        return self._in_units(_MEAN, before, after)

    @property
    def same(self) -> bool:
        """The verdict: true if metrics, to the last digit, status and chosen epoch are equal."""
        return not self.differences and self.before.status == self.after.status and not self.choice

    @property
    def differences(self) -> list[MetricDifference]:
        chosen_epoch_differences = list(_differences(self.before.metrics, self.after.metrics))
        return chosen_epoch_differences + list(_differences(self.before.last, self.after.last, "last "))

    @property
    def explanation(self) -> str:
        """What moved most, in standard deviations over seeds, and which other epoch was chosen."""
        if self.before.status != self.after.status:
            return f"status {self.before.status}, now {self.after.status}"
        if self.takes_another_course:
            moved = f"training took another course from {self.parts_at or 'an early epoch'} on: the mean over tasks"
            return "; ".join(filter(None, (f"{moved} moved by {self._mean_deviation():.2g} sd of seeds", self.choice)))
        deviations = self._deviations("last " if self.choice else "")
        key = max(deviations, key=deviations.__getitem__, default=None)
        most = "" if key is None else f"{' '.join(key)} moved most, by {deviations[key]:.2g} sd of seeds"
        return "; ".join(filter(None, (most, self.choice)))

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


_MEAN: Key = ("test", "", "main metric, mean over tasks")


def spread_over_seeds(run: RunRecord, records: Iterable[RunRecord]) -> dict[Key, float]:
    """Return the standard deviation over seeds of each value of a run.

    It is that of the run's own row. A row whose seeds agree by chance, or that has one seed alone, takes half of what
    the rows of the data set have together.
    """
    rows: dict[str, list[dict[Key, float]]] = defaultdict(list)
    for record in records:
        if record.dataset == run.dataset and record.status == "finished":
            values = {**dict(_values(record)), **dict(_values(record, "last ")), _MEAN: _main_mean(record)}
            rows[record.method].append(values)

    variances: dict[Key, dict[str, float]] = defaultdict(dict)
    for method, seeds in rows.items():
        for key in seeds[0] if len(seeds) > 1 else ():
            numbers = [values[key] for values in seeds if math.isfinite(values.get(key, math.nan))]
            if len(numbers) > 1:
                variances[key][method] = statistics.variance(numbers)

    return {
        key: math.sqrt(max(by_method.get(run.method, 0.0), statistics.fmean(by_method.values()) / 4))
        for key, by_method in variances.items()
    }


def _main_mean(record: RunRecord) -> float:
    test = record.metrics.get("test", {})
    values = [test.get(task, {}).get(metric, math.nan) for task, metric in record.main_metrics.items()]
    return statistics.fmean(values) if values else math.nan


def _values(record: RunRecord, prefix: str = "") -> Iterator[tuple[Key, float]]:
    for split, tasks in (record.last if prefix else record.metrics).items():
        for task, metrics in tasks.items():
            for metric, value in metrics.items():
                yield (f"{prefix}{split}", task, metric), value


def _differences(before: dict[str, Metrics], after: dict[str, Metrics], prefix: str = "") -> Iterator[MetricDifference]:
    for split in dict.fromkeys((*before, *after)):
        old, new = before.get(split, {}), after.get(split, {})
        for task in dict.fromkeys((*old, *new)):
            for metric in dict.fromkeys((*old.get(task, {}), *new.get(task, {}))):
                values = [metrics.get(task, {}).get(metric, math.nan) for metrics in (old, new)]
                if values[0] != values[1] and not all(map(math.isnan, values)):
                    yield MetricDifference(f"{prefix}{split}", task, metric, *values)
