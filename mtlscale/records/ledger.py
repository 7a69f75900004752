"""The append-only ledger of one experiment: a row for each run that has ended, small enough to read all of them.

A row is written whole or not at all; one cut off by a crash is ignored and its run read again from its own record.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from mtlscale.config import Experiment
from mtlscale.records.home import Home
from mtlscale.records.record import Ending, RunRecord

_Row = TypeVar("_Row", RunRecord, Ending)


class Ledger:
    """The append-only list of an experiment's records: one JSON object a line, one writer (the driver)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: RunRecord) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

        with self.path.open("ab+") as file:
            # A line cut off by a crash gets its end first, so that the new one starts on its own.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(record.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def __iter__(self) -> Iterator[RunRecord]:
        """Yield complete records in order of writing."""
        return self.after(0)

    def after(self, start: int) -> Iterator[RunRecord]:
        """Yield complete records in order of writing, from this byte on."""
        return self._rows(RunRecord, start)

    def _rows(self, kind: type[_Row], start: int = 0) -> Iterator[_Row]:
        """Yield the rows from a byte on, as far as this kind reads them."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(start)
            for line in file:
                with contextlib.suppress(ValueError):  # cut off by a crash, or damaged
                    yield kind.model_validate_json(line)

    def latest(self, start: int = 0) -> dict[str, RunRecord]:
        """Return run_id -> its newest record, of those from a byte on."""
        return {record.run_id: record for record in self.after(start)}

    def endings(self) -> dict[str, Ending]:
        """Return run_id -> how it ended last: a small part of its record, for those who count tens of thousands."""
        return {ending.run_id: ending for ending in self._rows(Ending)}


def ledgers_of(experiment: Experiment, home: Home) -> list[Ledger]:
    """Return the ledgers of an experiment: that of its runs, and that of its trials if it has a search."""
    files = [home.ledger(experiment.name)]
    if experiment.search is not None:
        files.append(home.trials(experiment.name, experiment.search.ledger))
    return [Ledger(file) for file in files]
