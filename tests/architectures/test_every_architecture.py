"""What holds for every architecture: whose parameters are whose, and that a task's prediction is its own affair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from mtlscale.architectures import Hooks, MultiTaskModule
from mtlscale.config.registry import components
from mtlscale.data import Batch, Outputs

Build = Callable[..., MultiTaskModule]
MakeBatch = Callable[..., Batch]

# Architectures whose options change what is shared; of all others the defaults.
MORE: list[tuple[str, dict[str, Any]]] = [
    ("cross_stitch", {"units": "channel", "bottom": "own"}),
    ("bmtas", {"warmup": 0.0}),
    ("branched", {"points": [1, 2, 2]}),
    ("conal", {"private": "partial"}),
    ("conal", {"splitting": "whole"}),
    ("dmtrl", {"warmup": 0}),
    ("dsmtl_al", {"task_weights": "equal"}),
    ("dsmtl_jl", {"alpha": 0.5}),
    ("dsmtl_jl", {"alpha": 1.0}),
    ("ple", {"layers": 1}),
    ("ple", {"layers": 3, "own": 2}),
    ("tomato", {"layers": 2, "task_layer": False}),
    ("tomato", {"layers": 2}),
    ("tomato", {"layers": 1, "task_layer": False}),
    ("aitm", {"chain": ["c", "a", "b"]}),
    ("pepnet", {"hidden": [4, 3]}),
    ("stem", {"own": 2, "shared": 3}),
    ("topicwise", {"within": "stl"}),
    ("topicwise", {"within": "mmoe", "options": {"experts": 2}}),
]
ALL = components.names("architectures")
# Of one task; of words alone; of yes and no alone (test_recommenders.py); of environments.
OWN_TESTS = ("aaspc", "esmm", "frequent_tag", "random_actions", "sac", "sac_conal", "scripted_expert", "soft_modules")
# Last parts of the names of buffers that no step moves: the rate of dropout, positions of columns, a preference.
CONSTANT = ("rate", "domain", "personal")
# Settings without which an architecture does not fit three tasks.
NEEDED: dict[str, dict[str, Any]] = {"conditioned_hps": {"grid": 3}, "palora": {"grid": 3}}
# Those that work between an encoder's stages are tested on images, in test_staged_architectures.py.
EVERY = [
    (name, NEEDED.get(name, {}))
    for name in ALL
    if name not in OWN_TESTS and not components.component("architectures", name).needs_stages
] + MORE
every = pytest.mark.parametrize(("name", "options"), EVERY, ids=[f"{n}{list(o.values()) or ''}" for n, o in EVERY])


def gradients(model: MultiTaskModule, batch: Batch, task: str) -> dict[str, Tensor | None]:
    """Parameter -> gradient of one task's loss."""
    loss = F.cross_entropy(model(batch).predictions[task], batch.samples.targets[task])
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True))


@every
def test_parameters_are_shared_or_of_one_task(name: str, options: dict[str, Any], build: Build) -> None:
    model = build(name, **options)
    groups = [model.shared_parameters(), *(model.task_parameters(task) for task in "abc")]
    ids = [id(p) for group in groups for p in group]
    assert len(set(ids)) == len(ids)
    assert set(ids) == {id(p) for p in model.parameters()}


@every
def test_a_loss_moves_nothing_of_another_task(
    name: str, options: dict[str, Any], build: Build, batch: MakeBatch
) -> None:
    model = build(name, **options)
    names = {id(p): key for key, p in model.named_parameters()}
    for task in "abc":
        moved = {key for key, g in gradients(model, batch(), task).items() if g is not None and bool((g != 0).any())}
        others = {names[id(p)] for other in "abc" if other != task for p in model.task_parameters(other)}
        assert not moved & others


@every
def test_what_is_shared_is_moved_by_more_than_one_task(
    name: str, options: dict[str, Any], build: Build, batch: MakeBatch
) -> None:
    model = build(name, **options)
    found = [gradients(model, batch(), task) for task in "abc"]
    shared = {id(p) for p in model.shared_parameters()}
    for key, parameter in model.named_parameters():
        if id(parameter) in shared:
            moving = [g[key] is not None and bool((g[key] != 0).any()) for g in found]  # type: ignore[union-attr]
            assert sum(moving) > 1 or (
                options == NEEDED.get(name, {}) and (name, key.rpartition(".")[2]) in OTHERWISE
            ), key


# Tucker factors, not in use before the factorisation; weights of losses, which no prediction depends on; one factor of
# an adapter whose other factor starts at zero.
OTHERWISE = (("dmtrl", "inputs"), ("dmtrl", "outputs"), ("dsmtl_al", "importance"), ("palora", "down"))


@every
def test_a_prediction_does_not_depend_on_the_other_tasks_of_the_batch(
    name: str, options: dict[str, Any], build: Build, batch: MakeBatch
) -> None:
    model = build(name, **options)
    together = model(batch()).predictions
    assert set(together) == set("abc")
    for task in "abc":
        alone = model(batch(task)).predictions
        assert set(alone) == {task} and alone[task].shape == (9, 4)
        torch.testing.assert_close(alone[task], together[task], rtol=1e-12, atol=1e-14)


@every
def test_networks_of_several_trials_run_as_one_batched_network(
    name: str, options: dict[str, Any], build: Build, batch: MakeBatch
) -> None:
    models = [build(name, seed, **options) for seed in (0, 1)]
    if getattr(models[0], "joint_backward", False):
        pytest.skip("has a backward pass of its own; its trials run one by one")
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    given = batch()

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> dict[str, Tensor]:
        outputs: Outputs = functional_call(models[0], (parameters, buffers), (given,))
        return outputs.predictions

    stacked = vmap(run)(parameters, buffers)
    for index, model in enumerate(models):
        for task, prediction in model(given).predictions.items():
            torch.testing.assert_close(stacked[task][index], prediction, rtol=1e-10, atol=1e-12)


@every
def test_every_parameter_travels_in_the_state(
    name: str, options: dict[str, Any], build: Build, batch: MakeBatch
) -> None:
    one, other = build(name, 0, **options), build(name, 1, **options)
    other.load_state_dict(one.state_dict())
    for task, prediction in one(batch()).predictions.items():
        assert torch.equal(other(batch()).predictions[task], prediction)


@pytest.mark.parametrize("name", ["separate", "shared_bottom", "single"])
def test_dropout_reaches_the_tops(name: str, suite: Any, batch: MakeBatch) -> None:
    encoder = components.build("encoders", "mlp", {"hidden": [5]})
    model: nn.Module = components.build("architectures", name).build(suite, lambda: encoder.build(suite), 0.5)
    first, second = (model(batch()).predictions["a"] for _ in range(2))
    assert not torch.equal(first, second)
    model.eval()
    first, second = (model(batch()).predictions["a"] for _ in range(2))
    assert torch.equal(first, second)


@every
def test_batchable_are_those_that_an_optimiser_alone_moves(name: str, options: dict[str, Any], build: Build) -> None:
    model = build(name, **options)
    moving = (*(name for name in vars(Hooks) if not name.startswith("_")), "extra_parameter_count", "traces")
    plain = all(getattr(type(model), name) is getattr(MultiTaskModule, name) for name in moving)
    buffers = [key for key, _ in model.named_buffers() if not key.endswith(CONSTANT)]
    at_once = len(components.build("architectures", name, options).phases_for(2)) == 1
    assert components.component("architectures", name).batchable == (plain and at_once and not buffers)
