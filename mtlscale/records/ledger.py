"""The append-only ledger of one experiment.

A record is written whole or not at all; a ledger line cut off by a crash is ignored and its run read again from its
own record.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mtlscale.config import Experiment
from mtlscale.records.home import Home
from mtlscale.records.record import RunRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run: its status, its time, and the byte of the ledger at which its record begins."""

    run_id: str
    status: str
    when: str
    offset: int


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
        return self.records()

    def records(self, *, epochs: bool = True) -> Iterator[RunRecord]:
        """Yield complete records in order of writing; a line cut off by a crash is skipped.

        Args:
            epochs: Whether to read the records' epochs, which take most of the time and memory.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    yield _record(line, epochs)

    def outcomes(self) -> Iterator[tuple[str, str, str]]:
        """Yield (run_id, status, end time) of complete records in order of writing, without reading all of them."""
        for outcome in self._lines():
            yield outcome.run_id, outcome.status, outcome.when

    def newest(self) -> dict[str, Outcome]:
        """Return run_id -> the outcome of its newest record, which `read` reads."""
        return {outcome.run_id: outcome for outcome in self._lines()}

    def read(self, outcome: Outcome, *, epochs: bool = True) -> RunRecord:
        """Return the complete record of an outcome.

        Raises:
            ValueError: If its line is damaged.
        """
        with self.path.open("rb") as file:
            file.seek(outcome.offset)
            return _record(file.readline(), epochs)

    def _lines(self) -> Iterator[Outcome]:
        if not self.path.exists():
            return
        position = 0
        with self.path.open("rb") as file:
            for line in file:
                if (outcome := _outcome(line, position)) is not None:
                    yield outcome
                position += len(line)

    def latest(self, *, epochs: bool = True) -> dict[str, RunRecord]:
        """Return run_id -> its newest record."""
        collecting = gc.isenabled()
        gc.disable()  # it would scan all records again and again, which takes half of the reading time
        try:
            return {record.run_id: record for record in self.records(epochs=epochs)}
        finally:
            if collecting:
                gc.enable()


def ledgers_of(experiment: Experiment, home: Home) -> list[Ledger]:
    """Return the ledgers of an experiment: that of its runs, and that of its trials if it has a search."""
    files = [home.ledger(experiment.name)]
    if experiment.search is not None:
        files.append(home.trials(experiment.name, experiment.search.ledger))
    return [Ledger(file) for file in files]


# The beginning and end of a line that `append` writes. Quotes within a label or an error are escaped: none looks like a
# key.
_BEGINS = re.compile(rb'\{"run_id":"([^"\\]*)",.*?"status":"(finished|failed|diverged)"')
_ENDS = b',"started":"'


def _outcome(line: bytes, offset: int) -> Outcome | None:
    """Return the outcome in a ledger line; None if the line is incomplete."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        begins, ends = _BEGINS.match(line), line.rfind(_ENDS)
        # As `append` writes them: the two ends suffice, and are faster.
        if begins is not None and ends >= 0:
            with contextlib.suppress(ValueError):  # the line was cut off within its end
                when = json.loads(b"{" + line[ends + 1 :])["finished"]
                return Outcome(begins[1].decode(), begins[2].decode(), when, offset)

        content = json.loads(line)
        return Outcome(content["run_id"], content["status"], content.get("finished", ""), offset)
    return None


def _record(line: bytes, epochs: bool) -> RunRecord:
    """Parse a ledger line; raise `ValueError` if it is no complete record."""
    if not epochs:
        with contextlib.suppress(ValueError):
            return RunRecord.model_validate_json(_without_epochs(line))
    return RunRecord.model_validate_json(line)


def _without_epochs(line: bytes) -> bytes:
    """Return a record's line with an empty list of epochs; unchanged unless `append` wrote it."""
    start = line.find(b',"epochs":[') + len(b',"epochs":[')
    end = line.rfind(b'],"phases":[')
    return line[:start] + line[end:] if start >= len(b',"epochs":[') and end >= start else line
