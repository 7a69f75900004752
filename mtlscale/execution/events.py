"""What runs say while they are driven: one small class for each thing there is to say."""

from __future__ import annotations

from dataclasses import dataclass

from mtlscale.records import Epoch, RunRecord


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """A run has an epoch behind it."""

    run_id: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Advanced:
    """Runs that are one batched model have so many epochs behind them; what those were like comes with the records."""

    run_ids: tuple[str, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Noted:
    """Something of a run that whoever watches should hear."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run has come to its end, whichever; the last of its events."""

    run_id: str
    record: RunRecord


Event = EpochEnded | Advanced | Noted | RunEnded
