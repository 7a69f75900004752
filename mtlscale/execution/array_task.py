"""One task of a job array: it trains runs in its own process, without Ray, until none is left for it.

Tasks divide the runs through the home folder, as drivers of different experiments do: each holds a lock and claims one
job at a time. What a killed task has claimed is free again, and another task resumes it from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from mtlscale.config import Experiment, UserError
from mtlscale.execution.events import Advanced, EpochEnded, Event, Noted, RunEnded
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.observer import Observer
from mtlscale.execution.ownership import LOOK_SECONDS, Owner, driving
from mtlscale.execution.planning.plan import light
from mtlscale.execution.runner import plan_runs, prepare_data
from mtlscale.execution.stopping import Counts
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import setup, sources
from mtlscale.records import Home, new_folders
from mtlscale.records.files import file_time

_STRIDE = 7919  # tasks begin at different runs, so that they seldom want the same one


def work(
    experiment: Experiment, home: Home, task: int, observer: Observer, *, source: Path | None, download: bool
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

    plugins = tuple(str(Path(plugin).absolute()) for plugin in experiment.plugins)
    options = Options(experiment.resources, plugins, experiment.tracking.models, home.storage, home.phases)
    ended_here = 0
    with (
        Counts() as counts,
        new_folders(home.root / "experiments"),
        driving(task_name(experiment, task), home, observer, wait=False) as me,
    ):
        data = prepare_data(experiment, home, source, download, observer)
        the_plan = plan_runs(experiment, list(experiment.runs(data.fingerprints)), home, data)
        observer.planned(the_plan, 1)
        records = the_plan.records()
        counts.begin(records, the_plan.distinct)
        run_of = {planned.run.run_id: planned.run for planned in the_plan.todo}
        setup(options.threads, sources(plugins))

        since = file_time(home.root) / 1e9
        for event, mine in _events(jobs_of(the_plan.todo, the_plan, home), task, me, options, since):
            me.check()
            match event:
                case EpochEnded(run_id, epoch):
                    observer.epoch(run_of[run_id], epoch)
                case Advanced(run_ids, epochs):
                    for run_id in run_ids:
                        observer.advanced(run_of[run_id], epochs)
                case Noted(_, text):
                    observer.note(text)
                case RunEnded(run_id, record):
                    records[run_id] = light(record)
                    observer.finished(run_of[run_id], record)
                    ended_here += mine
    return ended_here


def task_name(experiment: Experiment, task: int) -> str:
    """Return the name under which a task holds its lock; the same task of a later array takes it over."""
    return f"{experiment.name}.task{task}"


def _events(
    jobs: list[Job | Batched], task: int, owner: Owner, options: Options, since: float
) -> Iterator[tuple[Event, bool]]:
    """Yield the events of all runs, each with whether this task trains the run."""
    # A run that another task trains is looked at again until it has ended, or is free because that task has.
    first = task * _STRIDE % max(1, len(jobs))
    waiting = jobs[first:] + jobs[:first]
    while waiting:
        taken = []
        for job in waiting:
            free, elsewhere, ended = owner.claim_job(job, since)
            yield from ((event, False) for event in ended)
            for part in free:
                yield from ((event, True) for event in execute(part, options))
            if elsewhere:
                taken.append(job)
        owner.claim_nothing()
        waiting = taken
        time.sleep(LOOK_SECONDS if waiting else 0)
