"""One task of a job array: it trains runs in its own process, without Ray, until none is left for it.

Tasks divide the runs through the home folder, as drivers of different experiments do: each holds a lock and claims one
job at a time. What a killed task has claimed is free again, and another task resumes it from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from mtlscale.config import Experiment, UserError
from mtlscale.execution.following import Begun
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.ownership import LOOK_SECONDS, Owner, driving
from mtlscale.execution.planning.check import plan_runs
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.stopping import DoneCount
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import setup, sources
from mtlscale.records import Home, new_folders
from mtlscale.records.events import Closed, Planned, RunEnded, RunEvent, Sink
from mtlscale.records.files import file_time

_STRIDE = 7919  # tasks begin at different runs, so that they seldom want the same one


def work(
    experiment: Experiment, home: Home, task: int, sinks: Iterable[Sink], *, source: Path | None, download: bool
) -> int:
    """Train what is left of an experiment beside other tasks; return how many runs this task has ended.

    Reports and MLflow are left to `mtlscale run`, which finds every run finished.

    Raises:
        UserError: If the experiment cannot be divided, or another process has the task's number.
        Interrupted: After Ctrl-C and SIGTERM.
    """
    if experiment.search is not None:
        raise UserError(f"{experiment.name} has a search, whose trials depend on each other; use `mtlscale run`")
    if experiment.resources.workers > 1:
        raise UserError("resources.workers: a task trains in one process; use `mtlscale run` for several workers")
    if experiment.resources.train:
        raise UserError("resources.train: a task trains without Ray; use `mtlscale run` for runs of Ray Train")

    tally, trained_here = DoneCount(), set[str]()
    audience, options = Sinks(tally, *sinks), Options.of(experiment, home)
    with (
        tally,
        new_folders(home.root / "experiments"),
        driving(task_name(experiment, task), home, audience, wait=False) as me,
    ):
        data = prepare_data(experiment, home, source, download, audience)
        plan = plan_runs(experiment, experiment.runs(data.fingerprints), home, data)
        audience.take(Planned(experiment.name, plan.board, 1 if plan.todo else 0, len(plan.board.distinct)))
        setup(options.threads, sources(options.plugins))

        jobs, since = jobs_of(plan.todo, plan, home), file_time(home.root) / 1e9
        begun = Begun(plan.board)
        for event in _events(jobs, task, me, options, since, trained_here):
            me.check()
            begun.say(event, audience)
            if isinstance(event, RunEnded):
                plan.board.know(event.record)
            audience.take(event)
        audience.take(Closed("FINISHED"))
    return len(trained_here)


def task_name(experiment: Experiment, task: int) -> str:
    """Return the name under which a task holds its lock; the same task of a later array takes it over."""
    return f"{experiment.name}.task{task}"


def _events(
    jobs: list[Job | Batched], task: int, owner: Owner, options: Options, since: float, trained_here: set[str]
) -> Iterator[RunEvent]:
    """Yield the events of all runs; add the ids of those that this task trains."""
    # A run that another task trains is looked at again until it has ended, or is free because that task has.
    first = task * _STRIDE % max(1, len(jobs))
    waiting = jobs[first:] + jobs[:first]
    while waiting:
        taken = []
        for job in waiting:
            free, elsewhere, ended = owner.claim_job(job, since)
            yield from ended
            for part in free:
                trained_here.update(one.run.run_id for one in part.jobs)
                yield from execute(part, options)
            if elsewhere:
                taken.append(job)
        owner.claim_nothing()
        waiting = taken
        time.sleep(LOOK_SECONDS if waiting else 0)
