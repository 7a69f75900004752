"""Records of runs, in plain JSON so that results outlive this program.

A run's folder has its record, `record.json`, and its epochs, one a line of `epochs.jsonl`, written as they end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mtlscale.config import Run
from mtlscale.records.files import write_atomically

EPOCHS = "epochs.jsonl"  # in a run's folder

Count = Annotated[int, Field(ge=-(2**53), le=2**53)]  # what a float holds, too
Metrics = dict[str, dict[str, float]]  # task -> metric -> value


class Epoch(BaseModel):
    """The results of one epoch of one run."""

    model_config = ConfigDict(ser_json_inf_nan="strings")  # JSON has no NaN; the default, null, cannot be read back

    epoch: int  # from 1
    train_loss: dict[str, float]  # task -> mean training loss over the epoch
    val: Metrics = Field(default_factory=dict)  # empty where validation was not evaluated in this epoch
    seconds: float
    weights: dict[str, float] = Field(default_factory=dict)  # task -> mean balancer weight over the epoch
    traces: dict[str, Any] = Field(default_factory=dict)  # objective's and balancer's own: lambda, R, alpha, …
    phase: str = ""  # the phase, for a method that has several


class PhaseCost(BaseModel):
    """The cost of a method's earlier phase, such as a search."""

    name: str
    phase_id: str
    epochs: int
    steps: int
    seconds: float
    reused: bool = False  # taken over from another run


class ItemErrors(BaseModel):
    """Sampling errors of a run's score from the items of its test split.

    They come from a bootstrap over the items, whose replicate r draws the same items for all runs on the same data.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings")

    errors: dict[str, float] = Field(default_factory=dict)  # task -> standard error of its main metric
    means: list[float] = Field(default_factory=list)  # replicate -> mean over tasks, where they share one metric
    count: int = Field(0, exclude_if=lambda count: count == 0)  # items of the task with the most; 0: not recorded


class FrontPoint(BaseModel):
    """The metrics of a network that is given a preference, for one of them."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    preference: list[float]  # one share per task
    metrics: dict[str, Metrics] = Field(default_factory=dict)  # split -> task -> metric -> value, at the chosen epoch


Status = Literal["finished", "failed", "diverged"]


class Ending(BaseModel):
    """What of a record says how its run ended, and when."""

    run_id: str
    status: Status
    finished: str = ""  # ISO 8601, UTC


class RunRecord(BaseModel):
    """The record of a finished, failed or diverged run: everything the leaderboard, MLflow and the plots read."""

    model_config = ConfigDict(protected_namespaces=(), ser_json_inf_nan="strings")

    run_id: str
    experiment: str
    dataset: str  # the row's data set label
    method: str  # the row's method label
    seed: Count
    status: Status
    error: str | None = None  # one line, where not finished
    spec: dict[str, Any]  # the resolved run spec, as hashed into run_id
    fingerprint: str  # of the prepared data
    higher_is_better: dict[str, bool]  # metric -> direction
    main_metrics: dict[str, str]  # task -> its main metric
    # task -> the deviation that its targets were divided by, for errors in the units of the data
    deviations: dict[str, float] = Field(default_factory=dict, exclude_if=lambda deviations: not deviations)
    lowest: dict[str, float] = Field(default_factory=dict)  # metric -> the least it can be, where that is not 0
    metrics: dict[str, Metrics] = Field(default_factory=dict)  # split -> task -> metric -> value, at the chosen epoch
    items: ItemErrors | None = None  # of test, at the chosen epoch; None where none were measured
    # split, or "network" -> what an evaluation measured, by the names of `mtlscale.metrics.FIGURES`
    figures: dict[str, dict[str, float]] = Field(default_factory=dict, exclude_if=lambda figures: not figures)
    # of a network that is given preferences: what it reaches for each of an even grid of them
    front: list[FrontPoint] = Field(default_factory=list, exclude_if=lambda front: not front)
    last: dict[str, Metrics] = Field(default_factory=dict)  # the same after the last epoch
    # The labelled source and the target, of a transfer: what `last` has of test is the "last step" score of its papers.
    domains: list[str] = Field(default_factory=list, exclude_if=lambda domains: not domains)
    chosen_epoch: Count | None = None  # on validation, never on test; None where every task chose its own
    chosen_epochs: dict[str, int] = Field(default_factory=dict)  # task -> its epoch, where nothing is shared
    # Of a run that has just been trained, and where `with_epochs` has read them; rows and `record.json` have none.
    epochs: list[Epoch] = Field(default_factory=list, exclude=True, repr=False)
    phases: list[PhaseCost] = Field(default_factory=list)  # those before the one the metrics belong to
    structure: dict[str, Any] = Field(default_factory=dict)  # what was learned of the network's shape, if any was
    seconds: float = 0.0  # wall clock of training and validation
    train_seconds: float = 0.0  # wall clock of the steps alone
    steps: Count = 0
    samples: Count = 0  # training samples seen by the steps
    peak_memory_mb: float = 0.0
    parameters: Count = 0
    shared_parameters: Count = 0
    # The largest of all steps of |T ω_t / Σω − 1|, how far the weights were from equal ones; None where there are none.
    departure: float | None = None
    # Means over epochs of the cosines in the trace `survival`: what balancing changed in the optimiser's steps.
    survival: dict[str, float] = Field(default_factory=dict, exclude_if=lambda cosines: not cosines)
    # The smallest and the largest sum over tasks of an epoch's mean weights; empty where there are none.
    weight_sums: list[float] = Field(default_factory=list, exclude_if=lambda sums: not sums)
    kappa: float | None = Field(None, exclude_if=lambda kappa: kappa is None)  # the largest |κ| of GetMTL's epochs
    counters: dict[str, int] = Field(default_factory=dict)  # solver failures, clamps, skipped steps
    workers: Count = 1
    hardware: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    revision: str = ""  # git revision of mtlscale, "" outside a checkout
    started: str = ""  # ISO 8601, UTC
    finished: str = ""
    trial: dict[str, Any] = Field(default_factory=dict)  # searched knobs of this run, where there was a search

    @property
    def shared_metric(self) -> str | None:
        """The main metric of all tasks; None if they have different ones, whose mean would be meaningless."""
        names = set(self.main_metrics.values())
        return names.pop() if len(names) == 1 else None

    def as_run(self) -> Run:
        """Return the run that left this record."""
        return Run(
            experiment=self.experiment,
            dataset=self.dataset,
            data=self.dataset,
            method=self.method,
            seed=self.seed,
            fingerprint=self.fingerprint,
            spec=self.spec,
            trial=self.trial,
        )

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.train_seconds if self.train_seconds > 0 else 0.0


def weights_of_epochs(epochs: Sequence[Epoch]) -> dict[str, Any]:
    """Return a record's entries on the weights of its epochs: their sums, and the largest |κ|."""
    sums = [sum(epoch.weights.values()) for epoch in epochs if epoch.weights]
    traces = (epoch.traces.get("kappa") for epoch in epochs)
    kappas = [abs(float(kappa)) for kappa in traces if isinstance(kappa, int | float) and math.isfinite(kappa)]
    return {"weight_sums": [min(sums), max(sums)] if sums else [], "kappa": max(kappas) if kappas else None}


class EpochFile:
    """The file of a run's epochs, which grows by a line as each ends: what a crash leaves can be read."""

    def __init__(self, folder: Path) -> None:
        self._path, self._written = folder / EPOCHS, 0

    def take(self, epochs: Sequence[Epoch | dict[str, Any]]) -> None:
        """Write those of a run's epochs that are new; the first call begins the file anew, as a resumed run needs."""
        lines = [Epoch.model_validate(epoch).model_dump_json() + "\n" for epoch in epochs[self._written :]]
        if self._written == 0:
            write_atomically(self._path, "".join(lines).encode())
        elif lines:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        self._written = len(epochs)


def read_epochs(folder: Path) -> list[Epoch]:
    """Return the epochs in a run's folder, also of a run that goes on; a line that is cut off ends them."""
    try:
        with (folder / EPOCHS).open("rb") as file:
            return parsed_epochs(file)
    except OSError:
        return []


def parsed_epochs(lines: Iterable[bytes]) -> list[Epoch]:
    """Return the epochs in the lines of such a file."""
    epochs: list[Epoch] = []
    with suppress(ValueError):
        epochs.extend(map(Epoch.model_validate_json, lines))
    return epochs


def read_record(folder: Path) -> RunRecord | None:
    """Return the record in a run's folder; None if the run has not ended."""
    try:
        return RunRecord.model_validate_json((folder / "record.json").read_bytes())
    except (OSError, ValueError):
        return None
