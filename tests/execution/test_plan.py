"""How much there is to do: epochs and steps of a run with all its phases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.data import PreparedData
from mtlscale.execution import Plan
from mtlscale.records import Epoch
from mtlscale.spec import Experiment, Run, load_plugin
from mtlscale.training import train

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize(
    ("method", "epochs"),
    [
        ("equal", 3),
        ("meta_weighting", 3),  # works on one half of the training data
        ("{architecture: gated, balancer: equal}", 3),  # so do both turns of this one
        ("{architecture: {name: searched_sharing, search_epochs: 4}, balancer: equal}", 7),
    ],
)
def test_epochs_and_steps_are_those_of_all_phases(
    method: str,
    epochs: int,
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
) -> None:
    for name in ("bilevel", "two_phases"):
        load_plugin(EXAMPLES / f"{name}.py")
    data = uneven(shared=True)
    experiment = small(
        methods=f"[{method}]",
        datasets="[{name: uneven, options: {shared: true}}]",
        training="{epochs: 3, batch_size: 16}",
    )
    run = run_of(experiment, data)
    plan = Plan(experiment, (), {}, {run.data: data.manifest})
    record = train(run, data)
    assert (run.epochs, plan.steps(run)) == (epochs, record.steps) and record.status == "finished"
    assert [run.epochs_behind(epoch.phase, epoch.epoch) for epoch in record.epochs] == list(range(1, epochs + 1))


def test_an_epoch_without_a_phase_is_of_the_only_one(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Callable[..., Run]
) -> None:
    run = run_of(small(methods="[equal]"), uneven())
    epoch = Epoch(epoch=2, train_loss={}, seconds=0.0)
    assert run.epochs_behind(epoch.phase, epoch.epoch) == 2
