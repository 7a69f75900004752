"""Events of an experiment, which sinks take.

A way to follow an experiment is one class with `take`: the progress bar, the JSON lines, the log, MLflow, TensorBoard
and Weights & Biases are sinks, and so is a user's (docs/own_sink.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from mtlscale.records.files import is_full

if TYPE_CHECKING:
    from mtlscale.config import Run, SearchSpec
    from mtlscale.records.board import Board, Counts
    from mtlscale.records.record import Epoch, RunRecord
    from mtlscale.records.scores import Score


@dataclass(frozen=True, slots=True)
class Preparing:
    """A data set is being prepared, and a stage of it is so far."""

    dataset: str
    stage: str
    rows: int
    total: int  # of rows; 0 where it is not known yet
    size: int = 0  # bytes that the stage has read, computed or written


@dataclass(frozen=True, slots=True)
class DatasetPrepared:
    """The data set is prepared."""

    dataset: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Watching:
    """Another process runs the experiment, which is so far."""

    experiment: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class Planned:
    """The runs, or with `search` the trials, that are to follow; the board says which of them are done."""

    experiment: str
    board: Board
    slots: int  # that train at once; 0 if nothing is missing
    total: int  # of runs or trials when all are over
    search: SearchSpec | None = None
    lines: tuple[str, ...] = ()  # how trials are executed, and how the data are read
    trial_epochs: int = 0  # of a trial that the search has not chosen yet


@dataclass(frozen=True, slots=True)
class RunBegun:
    """The run is heard of for the first time since the start; before its other events."""

    run: Run
    is_trial: bool = False


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch of a run has ended."""

    run_id: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Advanced:
    """Runs of one batched model have so many epochs behind them; their metrics come with the records."""

    run_ids: tuple[str, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Noted:
    """A message for whoever watches, about a run or, without an id, about the experiment."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run has ended, successfully or not: the last of its events. `score` is that of a trial on validation."""

    run_id: str
    record: RunRecord
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing follows: the experiment is over, or was told to stop and will be killed within seconds."""

    status: Literal["FINISHED", "FAILED", "KILLED"]
    board: Board | None = None  # of all runs, where it is finished
    trials: Mapping[tuple[str, str], tuple[RunRecord, ...]] | None = None  # by data set and method, of a search

    @classmethod
    def by(cls, error: BaseException) -> Closed:
        """Return the end by an error: an interruption and a full disk leave no time for much."""
        return cls("KILLED" if isinstance(error, KeyboardInterrupt | SystemExit) or is_full(error) else "FAILED")


RunEvent = EpochEnded | Advanced | Noted | RunEnded  # what a worker reports of its runs
Event = Preparing | DatasetPrepared | Watching | Planned | RunBegun | RunEvent | Closed


class Sink(Protocol):
    """Whoever takes the events of an experiment."""

    def take(self, event: Event) -> None: ...
