"""The append-only ledger of one experiment.

A record is written whole or not at all; a ledger line cut off by a crash is ignored and its run read again from its
own record.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from mtlscale.records.record import RunRecord


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
        """Whole records in order of writing; a line cut off by a crash is skipped. Without their epochs, which most of
        the time of reading and of the memory goes to, where nobody asks for them."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                for text in (line,) if epochs else (_without_epochs(line), line):
                    with contextlib.suppress(ValueError):
                        yield RunRecord.model_validate_json(text)
                        break

    def outcomes(self) -> Iterator[tuple[str, str, str]]:
        """(run_id, status, when it ended) of whole records in order of writing, without reading the rest of them."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    content = json.loads(line)
                    yield content["run_id"], content["status"], content.get("finished", "")

    def latest(self, *, epochs: bool = True) -> dict[str, RunRecord]:
        """run_id -> its newest record."""
        return {record.run_id: record for record in self.records(epochs=epochs)}


def _without_epochs(line: bytes) -> bytes:
    """A record's line with an empty list of epochs; the line as it is, where it was not written by `append`."""
    start, end = line.find(b',"epochs":[') + len(b',"epochs":['), line.rfind(b'],"seconds":')
    return line[:start] + line[end:] if start >= len(b',"epochs":[') and end >= start else line
