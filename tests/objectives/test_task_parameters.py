"""Penalties on the tasks' tops against their definitions, and that they reach the tops on every way to an update."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mtlscale.config import Experiment, Run, Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.objectives import ProximalModule
from mtlscale.objectives.penalties.inter_task_l2 import pairwise
from mtlscale.objectives.penalties.mrn import MRNModule, flip_flop, whiten
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

SGD = "{epochs: 2, batch_size: 16, lr: 0.05, dtype: float64, optimizer: sgd}"


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def covariances() -> list[Tensor]:
    roots = [draw(size, size, seed=size) for size in (3, 4, 5)]
    return [root @ root.T + torch.eye(len(root), dtype=torch.float64) for root in roots]


def kron(matrices: list[Tensor]) -> Tensor:
    first, *others = matrices
    for other in others:
        first = torch.kron(first, other)
    return first


@pytest.mark.parametrize("name", components.names("objectives"))
def test_batchable_are_those_with_nothing_but_a_proximal_step(name: str) -> None:
    binary = name == "behavioral_calibrator"  # compares probabilities of the same samples
    loss, outputs = ("bce", 1) if binary else ("cross_entropy", 3)
    tasks = tuple(Task(name=task, loss=loss, outputs=outputs, metrics=("error",)) for task in "abc")
    inputs, unlabelled = ("shared", ()) if binary else ("per_task", ("more",))
    suite = TaskSuite(
        name="three", tasks=tasks, inputs=inputs, input_kind="vector", input_shape=(6,), unlabelled=unlabelled
    )
    cls, encoder = components.component("objectives", name), components.build("encoders", "mlp", {})
    model = components.build("architectures", cls.architecture, {}).build(suite, lambda: encoder.build(suite), 0.0)
    module = components.build("objectives", name, {}).build(suite, model)
    assert cls.batchable == isinstance(module, ProximalModule)


def test_inter_task_l2_counts_ordered_pairs() -> None:
    values = draw(4, 3, 2)
    expected = sum((values[i] - values[j]).square().sum() for i in range(4) for j in range(4))
    torch.testing.assert_close(pairwise(values), expected)


def test_whitening_is_the_quadratic_form_of_the_kronecker_product() -> None:
    """wᵀ(Σ₀ ⊗ Σ₁ ⊗ Σ₂)⁻¹w with w the entries in the order of the Kronecker product."""
    weight, sigmas = draw(3, 4, 5), covariances()
    factors = [torch.linalg.cholesky(sigma) for sigma in sigmas]
    flat = weight.flatten()
    torch.testing.assert_close(whiten(weight, factors).square().sum(), flat @ torch.linalg.solve(kron(sigmas), flat))


@pytest.mark.parametrize("unit_trace", [False, True])
def test_a_flip_flop_pass_fits_each_covariance_given_the_others(unit_trace: bool) -> None:
    weight, sigmas = draw(3, 4, 5), covariances()
    fitted = flip_flop(weight, [torch.linalg.cholesky(sigma) for sigma in sigmas], 0.1, unit_trace)
    for mode in range(3):
        others = [sigma for m, sigma in enumerate(sigmas) if m != mode]
        flat = weight.movedim(mode, 0).flatten(1)
        expected = flat @ torch.linalg.solve(kron(others), flat.T) / flat.shape[1]
        expected += 0.1 * expected.diagonal().mean() * torch.eye(len(expected), dtype=torch.float64)
        expected /= expected.trace() if unit_trace else expected.diagonal().mean()
        sigmas[mode] = fitted[mode] @ fitted[mode].T  # the next mode is given this one
        torch.testing.assert_close(sigmas[mode], expected)


def test_equal_weights_give_a_covariance_of_rank_one_and_the_ridge_keeps_it_regular() -> None:
    weight = draw(1, 4, 5).expand(3, 4, 5)
    start = [torch.eye(size, dtype=torch.float64) for size in (3, 4, 5)]
    task = flip_flop(weight, start, 0.1, False)[0]
    expected = (torch.ones(3, 3) + 0.1 * torch.eye(3)).double() / 1.1
    torch.testing.assert_close(task @ task.T, expected)
    for factor in flip_flop(torch.zeros(3, 4, 5), start, 0.1, False):
        torch.testing.assert_close(factor, torch.eye(len(factor), dtype=torch.float64))


def test_mrn_fits_its_covariances_every_so_many_steps(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven(shared=True)
    datasets = "[{name: uneven, options: {shared: true}}]"
    methods = "[{name: mrn, every: 3, architecture: {name: shared_bottom, top: 4}}]"
    trainer = Trainer(run_of(small(methods=methods, training=SGD, datasets=datasets), data), data)
    objective = trainer.objective
    assert isinstance(objective, MRNModule)
    weight = torch.stack(objective.rows[0])
    assert weight.shape == (3, 4, 8)
    assert len(objective.rows) == 1  # the logit layers of two, three and one output are no tensor
    start = objective.penalty()
    torch.testing.assert_close(start, 0.5 * 1e-4 * weight.square().sum())
    fitted = []
    for indices in trainer.session.main.sampler.epoch(1):
        trainer.session.step(trainer.session.main, trainer.batches.micros(indices, 1))
        fitted.append(not torch.equal(objective.factor00, torch.eye(3, dtype=torch.float64)))  # type: ignore[arg-type]
    assert fitted == [False, False, True, True]


@pytest.mark.parametrize("objective", ["{name: inter_task_l2, strength: 0.1}", "{name: mrn, strength: 0.1}"])
@pytest.mark.parametrize("balancer", ["equal", "uncertainty", "mgda", "mgda_ub", "{name: cagrad, c: 0.0}"])
@pytest.mark.parametrize("every", [1, 2])
def test_the_penalty_reaches_the_tops_on_every_way_to_an_update(
    objective: str, balancer: str, every: int, small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    """In the second step as well, where weights may be reused: gradient with the penalty less the one without."""
    data = uneven()
    gradients = []
    for what in (objective, "null"):
        methods = f"[{{label: x, architecture: shared_bottom, balancer: {balancer}, objective: {what}}}]"
        training = SGD.replace("}", f", gramian_every: {every}}}")
        trainer = Trainer(run_of(small(methods=methods, training=training), data), data)
        for group in trainer.session.main.optimizer.param_groups:
            group["lr"] = 0.0  # so that both stay where they started
        for indices, _ in zip(trainer.session.main.sampler.epoch(1), range(2), strict=False):
            trainer.session.step(trainer.session.main, trainer.batches.micros(indices, 1))
        gradients.append([p.grad for task in "abc" for p in trainer.model.task_parameters(task)])
        if what == objective:
            assert trainer.objective is not None
            penalty = trainer.objective.penalty()
            assert penalty is not None
            own = [p for task in "abc" for p in trainer.model.task_parameters(task)]
            expected = torch.autograd.grad(penalty, own, allow_unused=True)
    for with_penalty, without, difference in zip(*gradients, expected, strict=True):
        more = torch.zeros_like(without) if difference is None else difference
        torch.testing.assert_close(with_penalty, without + more, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["inter_task_l2", "mrn"])
def test_networks_without_tops_are_refused(name: str, small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven(shared=True)
    datasets = "[{name: uneven, options: {shared: true}}]"
    run = run_of(small(methods=f"[{{objective: {name}, architecture: hps, label: x}}]", datasets=datasets), data)
    with pytest.raises(UserError, match=f"{name} needs tasks with own parameters of one shape; use"):
        Trainer(run, data)
