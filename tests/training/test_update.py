"""One step against plain autograd, and what must not change it: micro-batches, workers, where the Gramian is taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mtlscale.config import Experiment, Run, UserError
from mtlscale.config.registry import components
from mtlscale.data import Losses, Workers
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.solvers import min_norm_weights
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

# Knobs without which a balancer cannot be built.
NEEDED = {"static": ", weights: [0.5, 0.3, 0.2]"}
BALANCERS = components.names("balancers")
EXACT = "{epochs: 4, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9%s}"


def method(name: str) -> str:
    return f"[{{name: {name}{NEEDED.get(name, '')}}}]"


def parameters_after(run: Run, data: PreparedData, workers: Workers | None = None) -> dict[str, Tensor]:
    trainer = Trainer(run, data, workers=workers)
    for _ in trainer.train():
        pass
    return trainer.model.state_dict()


def close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    for key, value in left.items():
        assert (value - right[key]).norm() <= 1e-9 * value.norm().clamp(min=1e-12), key


@pytest.mark.parametrize("shared", [False, True])
def test_mgda_is_the_min_norm_combination_of_the_mean_gradients(
    shared: bool, small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    data = uneven(shared=shared)
    options = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
    trainer = Trainer(run_of(small(methods="[mgda]", datasets=options, training=EXACT % ""), data), data)
    indices = next(trainer.session.main.sampler.epoch(1))
    rows = []
    losses = {"a": nn.CrossEntropyLoss(ignore_index=-1), "b": nn.CrossEntropyLoss()}
    for task in ("a", "b", "c"):
        stream = "all" if shared else task
        samples = trainer.batches.whole("this test")[stream].take(indices[stream])
        batch = trainer.batches.micros({stream: indices[stream]}, 1)[0][0]
        prediction = trainer.model(batch).predictions[task]
        target = samples.targets[task]
        there = ~target.isnan() if task == "c" else None
        loss = (
            (prediction[there, 0] - target[there]).square().mean() if task == "c" else losses[task](prediction, target)
        )
        grads = torch.autograd.grad(loss, trainer.model.shared_parameters())
        rows.append(torch.cat([g.reshape(-1) for g in grads]))
    jacobian = torch.stack(rows)
    expected = min_norm_weights(jacobian @ jacobian.T) @ jacobian
    trainer.session.step(trainer.session.main, trainer.batches.micros(indices, 1))
    found = torch.cat([p.grad.reshape(-1) for p in trainer.model.shared_parameters() if p.grad is not None])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_accumulation_at_the_representation_is_refused(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    run = run_of(small(methods="[mgda_ub]", training=EXACT % ", accumulate: 2"), data)
    with pytest.raises(UserError, match="accumulate"):
        parameters_after(run, data)


def test_reusing_weights_between_balancings_keeps_the_heads_rule(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    """With `gramian_every` larger than the run, only the first step balances; equal weights make that visible."""
    data = uneven()
    every = [
        parameters_after(
            run_of(small(methods="[{name: cagrad, c: 0.0}]", training=EXACT % f", gramian_every: {n}"), data), data
        )
        for n in (1, 1000)
    ]
    close(*every)


@pytest.mark.parametrize("name", ["equal", "mgda", "mgda_ub"])
def test_bf16_autocast_trains(name: str, small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    spec = "{epochs: 2, batch_size: 16, amp: bf16}"
    exact = "{epochs: 2, batch_size: 16}"
    low = parameters_after(run_of(small(methods=method(name), training=spec), data), data)
    full = parameters_after(run_of(small(methods=method(name), training=exact), data), data)
    for key, value in full.items():
        assert (value - low[key]).norm() <= 0.05 * value.norm(), key


def test_negative_losses_are_named_where_a_method_cannot_take_them(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    update = Trainer(run_of(small(methods="[gls]"), data), data).session.main.update
    sums = [torch.tensor(value, dtype=torch.float64) for value in (1.0, -2.0, 3.0)]
    with pytest.raises(UserError, match="gls needs losses ≥ 0, but task b"):
        update([[Losses([0, 1, 2], sums, [torch.tensor(1)] * 3)]])


@pytest.mark.parametrize("name", BALANCERS)
def test_steps_in_which_a_task_has_no_label_leave_it_out(
    name: str, small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    """One sample a step: every fifth step lacks a task, and what is learned stays finite."""
    data = uneven(shared=True)
    training = "{epochs: 1, batch_size: 1, lr: 1e-2, dtype: float64}"
    options = "[{name: uneven, options: {shared: true}}]"
    run = run_of(small(methods=method(name), datasets=options, training=training), data)
    trainer = Trainer(run, data)
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    for _ in trainer.train():
        pass
    after = trainer.model.state_dict()
    assert all(value.isfinite().all() for value in after.values())
    assert any(not torch.equal(before[key], after[key]) for key in before)
