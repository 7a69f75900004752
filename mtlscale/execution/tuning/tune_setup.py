"""Settings that the trials of a search by Ray Tune share, and the way from Tune's values to a run's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config import Dimension, Knobs, Run, SearchSpec, TaskSuite, space_of, whole_number
from mtlscale.execution.workers.jobs import Job, Options
from mtlscale.execution.workers.worker import Plugin, sources

Settings = dict[str, Any]  # what Tune sees of a trial: path -> number, or the index of a choice


@dataclass(frozen=True)
class Setup:
    """Settings that all trials of one method and data set share."""

    base: Run
    data: Path
    runs: Path  # below which the trials' folders are: that of all runs, or one for members of populations
    journal: Path  # settings of the trials that have begun, one JSON object a line
    space: dict[str, Dimension]
    integer_knobs: dict[str, bool]
    metric: str | None  # that decides; None: each task's main one
    main: dict[str, str]  # task -> its main metric
    plugins: tuple[Plugin, ...]
    options: Options
    scheduler: str

    @property
    def population(self) -> bool:
        """True if settings change within a trial."""
        return self.scheduler == "pbt"

    @property
    def lowest(self) -> dict[str, float]:
        """The least that each metric can be, of those that can be negative."""
        from mtlscale.metrics import lowest

        return lowest(sorted(self.directions.keys() - {"loss"}))

    @property
    def directions(self) -> dict[str, bool]:
        """The direction of each metric: True if higher is better."""
        from mtlscale.metrics import higher_is_better

        names = {*self.main.values(), *([self.metric] if self.metric else [])} - {"loss"}
        return {**{name: higher_is_better(name) for name in names}, "loss": False}

    def dump(self, run: Run) -> Path:
        """Return the file for thread dumps of a trial that hangs."""
        return self.journal.with_name(f"hung-{run.run_id}.txt")

    def job(self, settings: Settings) -> Job:
        run = self.base.tuned(self.knobs(settings))
        return Job(run, self.data, self.runs / run.run_id)

    def knobs(self, settings: Settings) -> Knobs:
        """Return what a run is tuned to: choices by their index, ranges to six digits."""
        knobs: Knobs = {}
        for path, dimension in self.space.items():
            value = settings[path]
            if dimension.numbers is not None:
                knobs[path] = value
            elif dimension.choices is not None:
                knobs[path] = dimension.choices[int(value)]
            else:
                clipped = min(max(value, dimension.low), dimension.high)
                knobs[path] = round(clipped) if self.integer_knobs[path] else float(f"{clipped:.6g}")
        return knobs

    def settings(self, knobs: Knobs) -> Settings:
        """Return what Tune has of a run's settings, which belong to the space."""
        settings: Settings = {}
        for path, dimension in self.space.items():
            if dimension.numbers is not None:
                settings[path] = knobs[path]
            elif dimension.choices is not None:
                settings[path] = dimension.choices.index(knobs[path])
            else:
                settings[path] = min(
                    max(knobs[path], dimension.low), dimension.high
                )  # six digits may lie beside an end
        return settings


def setup_of(
    base: Run, search: SearchSpec, data: Path, suite: TaskSuite, runs: Path, journal: Path, options: Options
) -> Setup:
    """Return the settings that the trials of a base share."""
    loss = search.metric is None and base.training.selection == "loss"
    space = space_of(search, base)

    return Setup(
        base=base,
        data=data,
        runs=runs,
        journal=journal,
        space=space,
        integer_knobs={path: whole_number(base, path) for path in space},
        metric="loss" if loss else search.metric,
        main={task.name: task.metrics[0] for task in suite.tasks},
        plugins=tuple(sources(options.plugins)),
        options=options,
        scheduler=search.scheduler,
    )
