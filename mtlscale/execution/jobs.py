"""What a worker is given: a run or several, and what is the same for all runs of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mtlscale.spec import ResourceSpec, Run


@dataclass(frozen=True)
class Job:
    """A run, where its prepared data are and where its files go."""

    run: Run
    data: Path
    folder: Path

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (self,)


@dataclass(frozen=True)
class Batched:
    """Runs on the same data that are trained together as one batched model."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Options:
    """What is the same for every run of an experiment."""

    resources: ResourceSpec
    plugins: tuple[str, ...] = ()
    models: bool = True  # whether a finished run leaves the parameters of its chosen epoch
    storage: str | None = None  # of `mtlscale.records.Storage`, where nodes have no folder in common
    phases: Path | None = None  # where finished phases are kept for all runs; None: in each run's own folder

    @property
    def threads(self) -> int:
        """Of each worker."""
        return max(1, int(self.resources.cpus_per_worker))

    @property
    def use_gpu(self) -> bool:
        return self.resources.gpus_per_worker > 0
