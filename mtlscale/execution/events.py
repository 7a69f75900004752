"""Events that runs report while they are driven."""

from __future__ import annotations

from dataclasses import dataclass

from mtlscale.records import Epoch, RunRecord


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """The end of an epoch of a run."""

    run_id: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Advanced:
    """The number of epochs behind the runs of one batched model; their metrics come with the records."""

    run_ids: tuple[str, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Noted:
    """The note of a run, for whoever watches."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end of a run, whether it succeeded or not; the last of its events."""

    run_id: str
    record: RunRecord


Event = EpochEnded | Advanced | Noted | RunEnded
