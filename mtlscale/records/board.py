"""The join of wanted runs and known records, which plans, statuses, leaderboards, searches and pages are queries of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from mtlscale.config import Run
from mtlscale.records.home import Home
from mtlscale.records.ledger import Ledger
from mtlscale.records.record import Ending, RunRecord, read_record

State = Literal["done", "resume", "retry", "new", "same"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run that an experiment consists of, under the labels that it has there."""

    run_id: str
    dataset: str
    method: str
    seed: int
    run: Run | None = None  # None where only its id and labels were noted
    same_as: str = ""  # the method that wants the same run before, under another label

    @classmethod
    def of(cls, run: Run) -> Wanted:
        return cls(run.run_id, run.dataset, run.method, run.seed, run)

    def labelled(self, record: RunRecord) -> RunRecord:
        """Return the record under these labels: the same run may have others in this experiment or another."""
        labels: dict[str, Any] = {"dataset": self.dataset, "method": self.method}
        if self.run is not None:
            labels |= {"experiment": self.run.experiment, "trial": self.run.trial}
        if all(getattr(record, key) == value for key, value in labels.items()):
            return record
        return record.model_copy(update=labels)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of the wanted runs there are in all, have finished, failed and diverged, and when the last one ended."""

    total: int
    finished: int
    failed: int
    diverged: int
    last: str = ""  # ISO 8601; "" before the first

    @classmethod
    def of(cls, run_ids: Collection[str], known: Mapping[str, RunRecord] | Mapping[str, Ending]) -> Counts:
        """Count the runs by what is known of them, run_id -> its newest record or how it ended."""
        ended = [known[run_id] for run_id in run_ids if run_id in known]
        states = Counter(ending.status for ending in ended)
        last = max((ending.finished for ending in ended), default="")
        return cls(len(run_ids), states["finished"], states["failed"], states["diverged"], last)

    @property
    def left(self) -> int:
        return self.total - self.finished - self.failed - self.diverged


class Board:
    """The runs that are wanted, and the newest record of each that has ended, wherever the home has it.

    Args:
        wanted: The runs in their order; the same one may come under several labels.
        ledger: The ledger that lists them, read once.
        home: The home whose run folders have what other experiments and the tasks of job arrays have finished; None
            where the ledger has everything.
        rows: run_id -> the ledger's newest row, of runs that are not wanted, too, where it has been read.
        unsettled: Data set -> why none of its runs are wanted although the ledger may have some, in a line.
    """

    def __init__(
        self,
        wanted: Iterable[Wanted],
        ledger: Ledger,
        home: Home | None = None,
        rows: dict[str, RunRecord] | None = None,
        unsettled: Mapping[str, str] | None = None,
    ) -> None:
        self.ledger, self.home = ledger, home
        self.rows = ledger.latest() if rows is None else rows
        self.wanted, self.unsettled = list(_marked(wanted)), unsettled or {}
        self._runs = {planned.run_id: planned.run for planned in self.distinct if planned.run is not None}
        self._known: dict[str, RunRecord] = {}
        for planned in self.distinct:
            record = self.rows.get(planned.run_id)
            if record is None or record.status == "failed":
                record = self._in_folder(planned.run_id) or record
            if record is not None:
                self._known[planned.run_id] = planned.labelled(record)

    def _in_folder(self, run_id: str) -> RunRecord | None:
        """Return the complete record that a run has left in its own folder."""
        record = None if self.home is None else read_record(self.home.run(run_id))
        return None if record is None or record.status == "failed" else record

    @property
    def distinct(self) -> list[Wanted]:
        """The wanted runs, one under several labels once."""
        return [planned for planned in self.wanted if not planned.same_as]

    @property
    def missing(self) -> list[Wanted]:
        """The runs that have no result yet; one that failed is tried again."""
        return [planned for planned in self.distinct if not self.is_done(planned.run_id)]

    def is_done(self, run_id: str) -> bool:
        record = self._known.get(run_id)
        return record is not None and record.status != "failed"

    def resumes(self, run_id: str) -> bool:
        """Return whether a run has a checkpoint to go on from."""
        return self.home is not None and (self.home.run(run_id) / "checkpoint.pt").exists()

    def state(self, wanted: Wanted) -> State:
        """Return where a run stands: `done` is never run again, `resume` has a checkpoint, `retry` failed before."""
        if wanted.same_as:
            return "same"
        if self.is_done(wanted.run_id):
            return "done"
        if self.resumes(wanted.run_id):
            return "resume"
        return "retry" if wanted.run_id in self._known else "new"

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """The records of the wanted runs that have ended, in their order, each under its labels."""
        return tuple(
            planned.labelled(self._known[planned.run_id]) for planned in self.wanted if planned.run_id in self._known
        )

    @property
    def ended(self) -> Iterator[RunRecord]:
        """The listed records of the wanted runs, each under its first labels, in the order in which they ended."""
        return (self._known[run_id] for run_id in self.rows if run_id in self._known)

    @property
    def others(self) -> tuple[RunRecord, ...]:
        """The rows of the ledger that are of no wanted run: of other settings or data."""
        wanted_ids = {planned.run_id for planned in self.wanted}
        return tuple(record for run_id, record in self.rows.items() if run_id not in wanted_ids)

    @property
    def counts(self) -> Counts:
        return Counts.of([planned.run_id for planned in self.distinct], self._known)

    def unlisted(self) -> Iterator[RunRecord]:
        """Yield the results that the ledger lacks: finished in another experiment, or just before a crash."""
        for run_id, record in self._known.items():
            listed = self.rows.get(run_id)
            if record.status != "failed" and (listed is None or listed.status == "failed"):
                yield record

    def list_unlisted(self) -> None:
        """Add those results to the ledger."""
        for record in list(self.unlisted()):
            self.take(record)

    def run(self, run_id: str) -> Run | None:
        """Return a wanted run; None if it is not wanted, or no more than its id is known."""
        return self._runs.get(run_id)

    def want(self, run: Run) -> None:
        """Add a run that nobody knew of before: a search that adapts to results finds its trials on the way."""
        if run.run_id not in self._runs:
            self._runs[run.run_id] = run
            self.wanted.append(Wanted.of(run))

    def take(self, record: RunRecord) -> None:
        """Add the record of a run that has ended to the ledger, and to what is known."""
        self.ledger.append(record)
        self.know(record)

    def know(self, record: RunRecord) -> None:
        """Add the record of a run that has ended to what is known alone: somebody else lists it."""
        self.rows[record.run_id] = self._known[record.run_id] = record


def _marked(wanted: Iterable[Wanted]) -> Iterator[Wanted]:
    """Yield the wanted runs; one that has come before says under which method."""
    first: dict[str, str] = {}
    for planned in wanted:
        yield replace(planned, same_as=first[planned.run_id]) if planned.run_id in first else planned
        first.setdefault(planned.run_id, planned.method)
