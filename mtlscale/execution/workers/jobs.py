"""Input of a worker: one run or several, and the options that all runs of an experiment share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mtlscale.config import Experiment, ResourceSpec, Run
from mtlscale.records import Home


@dataclass(frozen=True)
class Job:
    """Run with the folder of its prepared data and the folder that its files go to."""

    run: Run
    data: Path
    folder: Path

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (self,)


@dataclass(frozen=True)
class Batched:
    """Group of runs on the same data that are trained together as one batched model."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Options:
    """Options that all runs of an experiment share."""

    resources: ResourceSpec
    plugins: tuple[str, ...] = ()
    models: bool = True  # whether a finished run leaves the parameters of its chosen epoch
    storage: str | None = None  # of `mtlscale.records.Storage`, where nodes have no folder in common
    phases: Path | None = None  # where finished phases are kept for all runs; None: in each run's own folder

    @classmethod
    def of(cls, experiment: Experiment, home: Home) -> Options:
        plugins = tuple(str(Path(plugin).absolute()) for plugin in experiment.plugins)
        return cls(experiment.resources, plugins, experiment.tracking.models, home.storage, home.phases)

    @property
    def threads(self) -> int:
        """The CPU threads of each worker."""
        return max(1, int(self.resources.cpus_per_worker))

    @property
    def use_gpu(self) -> bool:
        return self.resources.gpus_per_worker > 0
