"""The network a search mixes branch points in: what it equals at both ends, what it runs, and whose what is."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from staged import ENCODERS, TASKS, batch, suite
from torch import Tensor

from mtlscale.architectures.branching._paths import passed
from mtlscale.architectures.branching._supernet import SHARED, Supernet, mixtures, path_of
from mtlscale.config.registry import components
from mtlscale.encoders import StagedModule

PLACES = range(len(TASKS))


@pytest.fixture(autouse=True)
def _exactly() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def supernet(encoder: str, points: tuple[int, ...] = (), apart: bool = True) -> Supernet:
    """With private encoders unlike the shared one, as after some training, unless not `apart`."""
    torch.manual_seed(0)
    options = {**ENCODERS[encoder], **({"dropout": 0.0} if encoder == "mlp" else {})}
    recipe, of = components.build("encoders", encoder, options), suite(encoder)
    model = Supernet(of, lambda: recipe.build(of), 0.0, "conal", points)
    if apart:
        with torch.no_grad():
            for place in PLACES:
                for parameter in model.encoder_of(place).parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def inputs(encoder: str) -> Tensor:
    found = batch(encoder).inputs
    return found.double() if found.is_floating_point() else found


def far(model: Supernet, point: int) -> None:
    """All tasks at one branch point."""
    with torch.no_grad():
        for alpha in model.alpha:
            alpha.copy_(torch.where(torch.tensor(model.points) == point, 1e6, 0.0))


def by_hand(model: Supernet, place: int, x: Tensor) -> Tensor:
    """Σ_p softmax(α)_p h(f_S(x, p), p), one path at a time."""
    total, stages = torch.zeros(()), len(model.shared.stages)
    for point, share in zip(model.points, model.alpha[place].softmax(0), strict=True):
        features, memory = model.shared.prepare(x), {}  # type: ignore[var-annotated]
        for stage in range(stages):
            owner = model.shared if stage + 1 < point else model.encoder_of(place)
            features = owner.stage(stage, features, memory)
        total = total + share * model.shared.finish(features)
    return total


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_features_are_the_mean_over_branch_points(encoder: str, train: bool) -> None:
    model, x = supernet(encoder).train(train), inputs(encoder)
    with torch.no_grad():
        for alpha in model.alpha:
            alpha.normal_()
    found = model.features(x, list(PLACES))
    for place in PLACES:
        assert (found[place] - by_hand(model, place, x)).abs().max() < 1e-12


@pytest.mark.parametrize("encoder", ENCODERS)
def test_at_both_ends_it_is_hard_sharing_and_single_task_networks(encoder: str) -> None:
    model, x = supernet(encoder), inputs(encoder)
    stages = len(model.shared.stages)
    far(model, stages + 1)
    for found in model.features(x, list(PLACES)).values():
        assert torch.equal(found, model.shared(x))
    assert model.found_points() == dict.fromkeys(TASKS, stages + 1)
    far(model, 1)
    for place, found in model.features(x, list(PLACES)).items():
        assert (found - model.encoder_of(place)(x)).abs().max() < 1e-12
    assert model.found_points() == dict.fromkeys(TASKS, 1)


def test_equal_branch_points_share_more() -> None:
    model = supernet("mlp")
    assert model.found_points() == dict.fromkeys(TASKS, 4)  # all are equal at the start
    model.alpha[1].data = torch.tensor([0.0, 1.0, 1.0, -1.0])
    assert model.found_points() == {"a": 4, "b": 3, "c": 4}
    assert model.traces()["branching"]["a"] == [0.25] * 4


def test_private_encoders_start_as_the_shared_one() -> None:
    model = supernet("resnet18", apart=False)
    for place in PLACES:
        for key, value in model.encoder_of(place).state_dict().items():
            assert torch.equal(value, model.shared.state_dict()[key])
    owned = {id(p) for p in model.parameters()}
    assert len(owned) == 4 * len(list(model.shared.parameters())) + 3 * 3


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_task_moves_nothing_of_another(encoder: str) -> None:
    model = supernet(encoder)
    named = dict(model.named_parameters())
    whose = {id(p): task for task in TASKS for p in model.task_parameters(task)}
    shared = {id(p) for p in model.shared_parameters()}
    assert whose.keys() | shared == {id(p) for p in named.values()} and not whose.keys() & shared
    assert [p for module in model.shared_modules() for p in module] == model.shared_parameters()
    given = batch(encoder)
    given.samples.inputs.data = inputs(encoder)
    for task in TASKS:
        loss = model(given).predictions[task].square().sum()
        for (key, p), grad in zip(
            named.items(), torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True
        ):
            assert (grad is not None) == (whose.get(id(p), task) == task), key


def counted(model: Supernet, x: Tensor, places: list[int]) -> Counter[tuple[str, int]]:
    """How many batches of x's size each stage is passed by."""
    found: Counter[tuple[str, int]] = Counter()
    hooks = []
    for name, owner in {"shared": model.shared, **{str(p): model.encoder_of(p) for p in PLACES}}.items():
        for index, stage in enumerate(owner.stages):

            def note(module: Any, given: Any, answer: Tensor, key: tuple[str, int] = (name, index)) -> None:
                found[key] += len(answer) // len(x)

            hooks.append(stage.register_forward_hook(note))
    model.features(x, places)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("train", [True, False])
def test_nothing_runs_that_is_not_needed(train: bool) -> None:
    model, x = supernet("resnet18").train(train), inputs("resnet18")
    private = {("1", stage): stage + 1 for stage in range(5)}
    assert counted(model, x, [1]) == {**{("shared", stage): 1 for stage in range(5)}, **private}
    few = supernet("resnet18", points=(1, 6)).train(train)
    assert counted(few, x, [1]) == {(name, stage): 1 for name in ("shared", "1") for stage in range(5)}


def test_a_stage_takes_its_inputs_side_by_side_where_it_may() -> None:
    def batches(encoder: str, train: bool) -> int:
        model, sizes = supernet(encoder).train(train), []
        # An MLP makes its stages anew when they are asked for: what it runs are its layers.
        stage = model.encoder_of(0).layers[4] if encoder == "mlp" else model.encoder_of(0).stages[1]  # type: ignore[union-attr,index]
        stage.register_forward_hook(lambda module, given, answer: sizes.append(len(answer)))
        model.features(inputs(encoder), [0])
        assert sum(sizes) == 2 * 9
        return len(sizes)

    assert batches("mlp", True) == batches("mlp", False) == batches("textcnn_mlp", True) == 1
    assert batches("resnet18", True) == 2 and batches("resnet18", False) == 1
    assert batches("segnet", True) == batches("segnet", False) == 2  # which remembers places on every path


def test_paths_of_any_tree_share_what_they_have_in_common() -> None:
    torch.manual_seed(0)
    recipe, of = components.build("encoders", "mlp", {"hidden": [5, 4, 3]}), suite("mlp")
    one = recipe.build(of)
    assert isinstance(one, StagedModule)
    two, x = copy.deepcopy(one), inputs("mlp")
    calls: list[int] = []
    one.layers[1].register_forward_hook(lambda *_: calls.append(1))
    found = passed({"one": one, "two": two}, [("one", "one", "two"), ("one", "two", "one"), ("one",) * 3], x)
    assert len(calls) == 1 and all((value - one(x)).abs().max() < 1e-12 for value in found.values())


def test_mixtures_of_other_points_and_probabilities() -> None:
    model, x = supernet("mlp"), inputs("mlp")
    shares = torch.tensor([0.3, 0.7])
    private = {"b": model.encoder_of(1)}
    found = mixtures(model.shared, private, {"b": shares}, x, (2, 4))["b"]
    ways = [passed({SHARED: model.shared, **private}, [path_of(p, "b", 3)], x) for p in (2, 4)]
    assert (found - sum(w * f for w, way in zip(shares, ways, strict=True) for f in way.values())).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["conal", "conal_pro", "ltb"])
@pytest.mark.parametrize("heads", ["own", "alike"])
def test_heads_of_one_shape_start_alike_where_that_is_asked(name: str, heads: str) -> None:
    of = suite("mlp")
    alike = replace(of, tasks=tuple(replace(of.tasks[0], name=task) for task in ("a", "b")))
    recipe = components.build("encoders", "mlp", ENCODERS["mlp"])
    method = components.build("architectures", name, {"heads": heads})
    torch.manual_seed(0)
    first, second = (head.state_dict() for head in method.build(alike, lambda: recipe.build(alike), 0.0).heads)
    assert all(torch.equal(first[key], second[key]) for key in first) == (heads == "alike")
    assert all(first[key].data_ptr() != second[key].data_ptr() for key in first)  # and go their own ways then
