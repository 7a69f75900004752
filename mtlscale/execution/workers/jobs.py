"""Input of a worker: one run or several, and the options that all runs of an experiment share."""

from __future__ import annotations

from collections.abc import Collection
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

    @property
    def title(self) -> str:
        """The name of the run as Ray's users see it: "digits · mgda · seed 0"."""
        run = self.run
        return f"{run.dataset} · {run.method} · seed {run.seed}" + (f" · trial {run.run_id}" if run.trial else "")


@dataclass(frozen=True)
class Batched:
    """Group of runs on the same data that are trained together as one batched model."""

    jobs: tuple[Job, ...]

    @property
    def title(self) -> str:
        """The name of the runs as Ray's users see it: "digits · mgda · 12 trials"."""
        if len(self.jobs) == 1:
            return self.jobs[0].title
        runs = [job.run for job in self.jobs]
        datasets, methods = (dict.fromkeys(getattr(run, part) for run in runs) for part in ("dataset", "method"))
        kind = "trials" if any(run.trial for run in runs) else "seeds" if len(methods) == 1 else "runs"
        return " · ".join(
            [_one_or_count(datasets, "data sets"), _one_or_count(methods, "methods"), f"{len(runs)} {kind}"]
        )


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


def _one_or_count(names: Collection[str], noun: str) -> str:
    return next(iter(names)) if len(names) == 1 else f"{len(names)} {noun}"
