"""TAG: what it gathers of affinities, and the networks of the groups it finds, on encoders with stages and without."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from staged import ENCODERS, TASKS, batch
from staged import suite as suite_of

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components

# Affinities that group a with c.
PLANTED = [[None, -0.1, 0.3], [-0.2, None, 0.0], [0.2, -0.1, 0.1]]
WITHOUT_STAGES: dict[str, dict[str, Any]] = {
    "textcnn": {"dimensions": 4, "filters": 3, "widths": [2, 3]},
    "lstm": {"dimensions": 4, "hidden": 3},
}
EVERY = {**ENCODERS, **WITHOUT_STAGES}


def suite(encoder: str) -> TaskSuite:
    return suite_of("textcnn_mlp" if encoder in WITHOUT_STAGES else encoder)


def predictions(model: Any, encoder: str, *tasks: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    given = batch("textcnn_mlp" if encoder in WITHOUT_STAGES else encoder)
    if tasks:
        given.samples.targets = {task: given.samples.targets[task] for task in tasks}
    found: dict[str, torch.Tensor] = model(given).predictions
    return found


def build(name: str, encoder: str, affinity: list[list[float | None]] | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    recipe, of = components.build("encoders", encoder, EVERY[encoder]), suite(encoder)
    architecture, make = components.build("architectures", name, options), lambda: recipe.build(of)
    if affinity is None:
        return architecture.build(of, make, 0.0)
    return architecture.build_next("retrain", {"affinity": affinity}, of, make, 0.0)


@pytest.mark.parametrize("encoder", EVERY)
def test_the_tasks_of_a_group_share_an_encoder_and_no_others_do(encoder: str) -> None:
    model, one = build("tag", encoder, PLANTED), build("hps", encoder)
    stages = max(1, components.build("encoders", encoder, EVERY[encoder]).stage_count)
    assert model.structure()["tree"] == [[0, 1, 0]] * stages and model.structure()["tasks"] == list(TASKS)
    [size] = {sum(p.numel() for p in segment.parameters()) for segment in model.parts()}
    assert size == sum(p.numel() for p in one.encoder.parameters()) and len(model.parts()) == 2
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in one.parameters()) + size
    names = {id(p): key for key, p in model.named_parameters()}
    assert {names[id(p)] for p in model.shared_parameters()} == {
        k for k in names.values() if k.startswith("segments.0")
    }
    found = predictions(model.eval(), encoder)
    for task, mine in zip(TASKS, ("segments.0", "segments.1", "segments.0"), strict=True):
        grads = torch.autograd.grad(
            found[task].square().sum(), list(model.parameters()), allow_unused=True, retain_graph=True
        )
        reached = {key for key, grad in zip(names.values(), grads, strict=True) if grad is not None}
        assert {key.rpartition(".encoder")[0] for key in reached if key.startswith("segments")} == {mine}
        torch.testing.assert_close(predictions(model, encoder, task)[task], found[task])


@pytest.mark.parametrize("encoder", [*WITHOUT_STAGES, "resnet18"])
def test_one_group_is_hard_sharing_and_groups_of_one_are_single_tasks(encoder: str) -> None:
    for groups, name in ((1, "hps"), (3, "stl")):
        model, other = build("tag", encoder, [[-1.0] * 3] * 3, groups=groups), build(name, encoder)
        assert model.independent == (name == "stl")
        for task, found in predictions(other.eval(), encoder).items():
            assert torch.equal(predictions(model.eval(), encoder)[task], found)


def test_affinities_are_means_of_what_was_measured() -> None:
    model = build("tag", "mlp", every=7)
    assert model.every == 7 and model.traces() == {"affinity": [[None] * 3] * 3}
    model.add_affinity(torch.tensor([[1.0, 0.5, math.nan], [0.1, 1.0, math.nan], [math.nan] * 3]))
    model.add_affinity(torch.tensor([[0.0, 0.7, -0.2], [math.inf, 1.0, -math.inf], [0.4, 0.2, 0.5]]))
    other = build("tag", "mlp")
    other.load_state_dict(model.state_dict())  # as after a resume
    found = other.phase_output()["affinity"]
    assert found[0] == pytest.approx([0.5, 0.6, -0.2]) and found[2] == pytest.approx([0.4, 0.2, 0.5])
    assert found[1] == [pytest.approx(0.1), 1.0, None]


def test_what_cannot_be_grouped_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="tag: groups is 4, three has 3 tasks; ask for fewer"):
        build("tag", "mlp", groups=4)
    task = Task(name="a", loss="mse", outputs=1, metrics=("mse",))
    of = TaskSuite(name="one", tasks=(task,), inputs="shared", input_kind="vector", input_shape=(2,))
    recipe = components.build("encoders", "mlp")
    with pytest.raises(UserError, match="tag groups tasks, one has one; use hps"):
        components.build("architectures", "tag").build(of, lambda: recipe.build(of), 0.0)
