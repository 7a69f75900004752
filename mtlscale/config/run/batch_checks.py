"""Checks of a run's batch settings against its data, reader and method."""

from __future__ import annotations

from mtlscale.config.errors import UserError
from mtlscale.config.run.run import Run
from mtlscale.config.tasks import TaskSuite


def check_batches(run: Run, suite: TaskSuite) -> None:
    """Raise `UserError` if `train` or `training.batches: pooled` does not fit a run's data, reader or method.

    `train` is the run's share of the training samples.
    """
    training = run.training
    if run.share != 1 and training.reader == "stream":
        raise UserError(
            f"train: the reader stream has all of {suite.name} pass by; set training.reader to mapped, memory or "
            "device, or drop `train`"
        )

    if training.batches == "per_task":
        return

    setting, remedy = "training.batches pooled", "set it to per_task"
    if suite.inputs == "shared":
        raise UserError(f"{setting}: every sample of {suite.name} has the labels of all tasks; {remedy}")
    if suite.unlabelled:
        raise UserError(f"{setting}: {suite.name} has streams without labels ({', '.join(suite.unlabelled)}); {remedy}")
    if training.reader == "stream":
        raise UserError(
            f"{setting}: the reader stream has no sample out of its turn; {remedy}, or choose another reader"
        )

    for turn in (turn for phase in run.parts.phases for turn in phase.turns):
        balancer = turn.balancer or run.parts.balancer
        if balancer.needs == "validation" or turn.share != "whole":
            name = balancer.name if balancer.needs == "validation" else run.parts.architecture.name
            raise UserError(f"{setting}: {name} halves the training data task by task; {remedy}")
