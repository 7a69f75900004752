"""The jobs that workers take from the queue: one run each, or several that are trained as one batched model."""

from __future__ import annotations

from collections.abc import Sequence

from mtlscale.config import Run
from mtlscale.execution.planning.plan import Plan
from mtlscale.execution.planning.reader_report import processes_per_node
from mtlscale.execution.workers.jobs import Batched, Job
from mtlscale.records import Home

_MANY = 16  # streams from which a run may be cheaper batched


def jobs_of(runs: Sequence[Run], the_plan: Plan, home: Home) -> list[Job | Batched]:
    """Return the jobs that workers take from the queue: the seeds of a method together where training asks for it."""
    jobs = [job_of(run, the_plan, home) for run in runs]
    batched = [job.jobs[0] for job in jobs if isinstance(job, Batched) and job.jobs[0].run.training.seeds_together]
    if not batched:
        return jobs

    from mtlscale.batched.eligibility import planning

    job_of_run = {job.run.run_id: job for job in batched}
    groups: list[Job | Batched] = []
    for group in planning.groups([job.run for job in batched]):
        size = planning.estimate(group[0], the_plan.data.manifests[group[0].data], len(group), 1).size
        groups += [Batched(tuple(job_of_run[run.run_id] for run in share)) for share in planning.shares(group, size)]
    return groups + [job for job in jobs if job.jobs[0].run.run_id not in job_of_run]


def job_of(run: Run, the_plan: Plan, home: Home) -> Job | Batched:
    """Return the job of one run: batched where its seeds are trained together, or where that is far cheaper."""
    job = Job(run, the_plan.data.folders[run.data], home.run(run.run_id))
    manifest, resources = the_plan.data.manifests[run.data], the_plan.experiment.resources
    if run.training.seeds_together and resources.workers == 1:
        from mtlscale.batched.eligibility.planning import obstacle

        return job if obstacle(run, manifest.suite) else Batched((job,))

    if len(manifest.suite.streams) < _MANY or the_plan.board.resumes(run.run_id) or resources.workers > 1:
        return job

    from mtlscale.batched.eligibility.decision import pays_alone

    steps, processes = the_plan.steps(run), processes_per_node(resources)
    alone = pays_alone(run, the_plan.data.on_disk(run.data), steps=steps, processes=processes)
    return Batched((job,)) if alone else job
