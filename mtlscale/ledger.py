"""What a run leaves behind: its record, and the append-only ledger of one experiment.

A record is written whole or not at all; a ledger line cut off by a crash is ignored and its run read again from its
own record. Plain JSON, so results outlive this program.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Metrics = dict[str, dict[str, float]]  # task -> metric -> value


class Epoch(BaseModel):
    """One epoch of one run."""

    model_config = ConfigDict(ser_json_inf_nan="strings")  # JSON has no NaN; the default, null, cannot be read back

    epoch: int  # from 1
    train_loss: dict[str, float]  # task -> mean training loss over the epoch
    val: Metrics = Field(default_factory=dict)  # empty where validation was not evaluated in this epoch
    seconds: float
    weights: dict[str, float] = Field(default_factory=dict)  # task -> mean balancer weight over the epoch
    traces: dict[str, Any] = Field(default_factory=dict)  # objective's and balancer's own: lambda, R, alpha, …


class RunRecord(BaseModel):
    """One finished, failed or diverged run: everything the leaderboard, MLflow and the plots read."""

    model_config = ConfigDict(protected_namespaces=(), ser_json_inf_nan="strings")

    run_id: str
    experiment: str
    dataset: str  # the row's data set label
    method: str  # the row's method label
    seed: int
    status: Literal["finished", "failed", "diverged"]
    error: str | None = None  # one line, where not finished
    spec: dict[str, Any]  # the resolved run spec, as hashed into run_id
    fingerprint: str  # of the prepared data
    higher_is_better: dict[str, bool]  # metric -> direction
    main_metrics: dict[str, str]  # task -> its main metric
    metrics: dict[str, Metrics] = Field(default_factory=dict)  # split -> task -> metric -> value, at the chosen epoch
    last: dict[str, Metrics] = Field(default_factory=dict)  # the same after the last epoch
    chosen_epoch: int | None = None  # on validation, never on test; None where every task chose its own
    chosen_epochs: dict[str, int] = Field(default_factory=dict)  # task -> its epoch, where nothing is shared
    epochs: list[Epoch] = Field(default_factory=list)
    seconds: float = 0.0  # wall clock of training and validation
    train_seconds: float = 0.0  # of the steps alone
    steps: int = 0
    samples: int = 0  # training samples seen by the steps
    peak_memory_mb: float = 0.0
    parameters: int = 0
    shared_parameters: int = 0
    counters: dict[str, int] = Field(default_factory=dict)  # solver failures, clamps, skipped steps
    workers: int = 1
    hardware: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    revision: str = ""  # git revision of mtlscale, "" outside a checkout
    started: str = ""  # ISO 8601, UTC
    finished: str = ""
    trial: dict[str, Any] = Field(default_factory=dict)  # searched knobs of this run, where there was a search

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.train_seconds if self.train_seconds > 0 else 0.0


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: temporary neighbour, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o666 & ~_UMASK)  # mkstemp's files are the owner's alone
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _umask()  # read once: reading it means setting it, which threads would notice


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
