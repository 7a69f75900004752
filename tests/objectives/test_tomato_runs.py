"""Whole runs of TOMATO and its rivals: interruptions and workers must not show."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from two_workers import two_workers

from mtlscale.data import Workers
from mtlscale.data.prepared import PreparedData
from mtlscale.spec import Experiment, Run
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

SGD = "{epochs: 4, batch_size: 16, lr: 0.1, dtype: float64, optimizer: sgd, weight_decay: 1e-3%s}"
RIVALS = [
    "{name: tomato_el, strength: 0.3, architecture: {name: tomato, topics: 2}}",
    "{name: tomato_ex, strength: 0.3, architecture: {name: tomato, topics: 3, layers: 2}}",
    "{name: tomato_ex, strength: 0.3, groups: layer, balancer: mgda}",
    "{name: dmtrl, warmup: 2}",
    "{name: mrn, strength: 1e-2, every: 3}",
    "{name: inter_task_l2, strength: 1e-2, balancer: getmtl}",
    "{name: cross_stitch, balancer: {name: equal, reduction: sum}}",
    "{name: ple, balancer: pcgrad}",
    "{name: topicwise, within: mmoe}",
]


def state(trainer: Trainer) -> dict[str, Tensor]:
    own = {} if trainer.objective is None else trainer.objective.state_dict(prefix="objective.")
    return {**trainer.model.state_dict(), **own}


def state_after(run: Run, data: PreparedData, workers: Workers | None = None) -> dict[str, Tensor]:
    trainer = Trainer(run, data, workers=workers)
    for _ in trainer.train():
        pass
    return state(trainer)


def _trained(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Tensor]:
    return state_after(*job, workers)


def test_two_workers_end_where_one_does(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    """Gradients are averaged first, then every worker takes the same proximal step."""
    jobs = []
    for shared, methods in ((False, RIVALS), (True, RIVALS[:2])):
        data = uneven(shared=shared)
        datasets = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
        for method in methods:
            training = SGD.replace("epochs: 4", "epochs: 3") % ", clip: 1.0, evaluate_every: 3"
            run = run_of(small(methods=f"[{method}]", training=training, datasets=datasets), data)
            jobs.append((run, data))
    for (run, data), found in zip(jobs, two_workers(_trained, jobs)[0], strict=True):
        for key, value in state_after(run, data).items():
            error = (value.double() - found[key].double()).norm() / value.double().norm().clamp(min=1e-12)
            assert error <= 1e-9, f"{run.method}: {key} differs by {error:.1e}"


@pytest.mark.parametrize("method", RIVALS)
def test_a_run_cut_off_after_any_epoch_ends_as_if_it_had_not_been(
    method: str, small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path
) -> None:
    data = uneven()
    training = SGD % ", checkpoint_seconds: 0, schedule: exponential, decay_steps: 5"
    run = run_of(small(methods=f"[{method}]", training=training), data)
    whole = Trainer(run, data)
    epochs = list(whole.train())
    for cut in (1, 2, 3):
        folder = tmp_path / str(cut)
        list(itertools.islice(Trainer(run, data, folder=folder).train(), cut + 1))
        resumed = Trainer(run, data, folder=folder)
        again = list(resumed.train())
        for key, value in state(whole).items():
            assert torch.equal(value, state(resumed)[key]), key
        assert again[-1].val == epochs[-1].val and again[-1].traces == epochs[-1].traces


@pytest.mark.parametrize("method", RIVALS)
def test_gradient_accumulation_is_exact(method: str, small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    one, three = (
        state_after(run_of(small(methods=f"[{method}]", training=SGD % f", accumulate: {parts}"), data), data)
        for parts in (1, 3)
    )
    for key, value in one.items():
        torch.testing.assert_close(three[key], value, rtol=1e-9, atol=1e-12, msg=key)
