"""Whether a run can draw its batches as its settings say."""

from __future__ import annotations

from mtlscale.spec.errors import UserError
from mtlscale.spec.run import Run
from mtlscale.spec.tasks import TaskSuite


def check_batches(run: Run, suite: TaskSuite) -> None:
    """`UserError` where a share of the training samples or `training.batches: pooled` does not go with the data, the
    reader or the method of a run."""
    training = run.training
    if run.share != 1 and training.reader == "stream":
        raise UserError(
            f"train: the reader stream has all of {suite.name} pass by; set training.reader to mapped, memory or "
            "device, or drop `train`"
        )
    if training.batches == "per_task":
        return
    said, mend = "training.batches pooled", "set it to per_task"
    if suite.inputs == "shared":
        raise UserError(f"{said}: every sample of {suite.name} has the labels of all tasks; {mend}")
    if suite.unlabelled:
        raise UserError(f"{said}: {suite.name} has streams without labels ({', '.join(suite.unlabelled)}); {mend}")
    if training.reader == "stream":
        raise UserError(f"{said}: the reader stream has no sample out of its turn; {mend}, or choose another reader")
    for turn in (turn for phase in run.parts.phases for turn in phase.turns):
        balancer = turn.balancer or run.parts.balancer
        if balancer.needs == "validation" or turn.share != "whole":
            name = balancer.name if balancer.needs == "validation" else run.parts.architecture.name
            raise UserError(f"{said}: {name} halves the training data task by task; {mend}")
