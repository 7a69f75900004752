"""Networks of trees: what they share, what they equal at both ends, and mistakes in trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import ENCODERS, TASKS, batch, suite

from mtlscale.architectures.trees import BranchedModule, checked, tree_of_points
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples


def build(name: str, encoder: str, **options: Any) -> Any:
    torch.manual_seed(0)
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    return components.build("architectures", name, options).build(of, lambda: recipe.build(of), 0.2)


def predictions(model: Any, encoder: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    found: dict[str, torch.Tensor] = model(batch(encoder)).predictions
    return found


@pytest.mark.parametrize("encoder", ENCODERS)
def test_all_points_last_are_hard_sharing(encoder: str) -> None:
    stages = components.build("encoders", encoder, ENCODERS[encoder]).stage_count
    one, other = build("branched", encoder, points=[stages + 1] * 3), build("hps", encoder)
    assert [p.shape for p in one.shared_parameters()] == [p.shape for p in other.shared_parameters()]
    assert len(one.shared_modules()) == len(other.shared_modules()) == stages
    for task, found in predictions(other, encoder).items():
        assert torch.equal(predictions(one, encoder)[task], found)


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "mlp"])  # whose input dropout draws once
def test_all_points_first_are_single_task_networks(encoder: str) -> None:
    one, other = build("branched", encoder, points=[1, 1, 1]), build("stl", encoder)
    assert one.independent and not one.shared_parameters()
    for task, found in predictions(other.eval(), encoder).items():
        assert torch.equal(predictions(one.eval(), encoder)[task], found)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_loss_moves_the_stages_of_its_own_path(encoder: str) -> None:
    stages = components.build("encoders", encoder, ENCODERS[encoder]).stage_count
    model = build("branched", encoder, points=[1, 3, stages])
    owner = {id(p): task for task in TASKS for p in model.task_parameters(task)}
    shared = {id(p) for p in model.shared_parameters()}
    assert owner.keys() | shared == {id(p) for p in model.parameters()} and not owner.keys() & shared
    found = model(batch(encoder)).predictions
    for task in TASKS:
        parameters = dict(model.named_parameters())
        grads = torch.autograd.grad(
            found[task].square().sum(), parameters.values(), allow_unused=True, retain_graph=True
        )
        for (key, p), grad in zip(parameters.items(), grads, strict=True):
            if owner.get(id(p), task) != task or (id(p) in shared and task == "a"):
                assert grad is None, key
            else:
                assert grad is not None, key
    # Two stages of three tasks' first network, and what b and c share.
    modules = model.shared_modules()
    assert [bool(module) for module in modules] == [True, True] + [False] * (stages - 2)


def test_stages_run_once_for_all_who_share_them() -> None:
    model, calls = build("branched", "resnet18", points=[2, 4, 4]), []
    for segment in model.parts():
        for stage in range(segment.first, segment.last):
            hook: Callable[..., None] = lambda *_, stage=stage: calls.append(stage)  # noqa: E731
            segment.encoder.stages[stage].register_forward_hook(hook)
    model(batch("resnet18"))
    assert sorted(calls) == [0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4]


def test_what_a_stage_remembers_is_of_its_own_path() -> None:
    """Here b passes stages of its own between a and c, who share some that remember places for later ones."""
    model, given = build("branched", "segnet", points=[9, 2, 9]).eval(), batch("segnet")
    together = model(given).predictions
    for task in TASKS:
        alone = Batch("all", Samples(given.inputs, {task: given.samples.targets[task]}), 9)
        assert torch.equal(model(alone).predictions[task], together[task]), task


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_parameters_are_those_of_the_stages_in_use(points: list[int]) -> None:
    tasks = tuple(Task(name=str(i), loss="mse", outputs=1, metrics=("mse",)) for i in range(len(points)))
    of = TaskSuite(name="any", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(2,))
    recipe = components.build("encoders", "mlp", {"hidden": [2, 3, 4, 5, 6]})
    tree = tree_of_points(points, 5)
    model = BranchedModule(of, lambda: recipe.build(of), tree, 0.0)
    sizes = model.structure()["stage_parameters"]
    expected = sum(size * len(set(nodes)) for size, nodes in zip(sizes, tree, strict=True)) + 7 * len(points)
    assert sum(p.numel() for p in model.parameters()) == expected
    assert [len(set(nodes)) for nodes in tree] == [
        sum(p <= stage for p in points) + any(p > stage for p in points) for stage in range(1, 6)
    ]


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"points": [1, 2, 7]}, r"branch point 7 is outside 1\.\.6"),
        ({"points": [1, 2]}, "points has 2 entries; give one to each task of three: a, b, c"),
        ({"points": [1, 1, 1], "tree": ["0 0 0"]}, "drop one of them"),
        ({"tree": ["0 0 0"] * 4}, "tree has 4 stages, the encoder 5; write one entry for each"),
        ({"tree": ["0 0 0 1"] * 5}, "tree, stage 1 has 4 entries; give one to each task of three: a, b, c"),
        ({"tree": ["0 0 x"] * 5}, "should be whole numbers"),
        ({"tree": ["0 0 1"] + ["0 1 1"] * 4}, "apart at stage 1 share stage 2; give them different nodes there"),
        ({"groups": ["a, b, d"]}, "groups name 'd', which is no task"),
        ({"groups": ["a, b", "b, c"]}, "groups name b twice"),
        ({"groups": ["a, b"]}, "groups leave out c"),
        ({"groups": ["a, b, c"], "points": [1, 1, 1]}, "drop one of them"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], mistake: str) -> None:
    with pytest.raises(UserError, match=mistake):
        build("branched", "resnet18", **options)


def test_an_encoder_without_stages_is_refused() -> None:
    of = suite("mlp")
    recipe = components.build("encoders", "mlp", {"hidden": []})
    with pytest.raises(UserError, match="branches between the stages of an encoder"):
        components.build("architectures", "branched").build(of, lambda: recipe.build(of), 0.0)


def test_nodes_are_numbered_in_the_order_of_tasks() -> None:
    assert checked([[5, 5, 2], [7, 9, 7 + 1]]) == [[0, 0, 1], [0, 1, 2]]
