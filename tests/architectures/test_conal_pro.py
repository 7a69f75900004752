"""CoNAL-Pro's rounds: what goes on from one to the next, what each of them runs, and the trees they end in."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from staged import ENCODERS, TASKS, batch, suite
from torch import Tensor

from mtlscale.architectures import PhaseOutput
from mtlscale.architectures.branching.conal_pro import CoNALPro, RoundModule, tree_of_rounds
from mtlscale.architectures.trees import tree_of_points
from mtlscale.config import Task, TaskSuite
from mtlscale.config.registry import components
from mtlscale.data import Batch


@pytest.fixture(autouse=True)
def _exactly() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def of_round(encoder: str, round: int = 1, found: PhaseOutput | None = None, left: str = "train") -> RoundModule:
    torch.manual_seed(round)
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    model = RoundModule(of, lambda: recipe.build(of), 0.0, "conal_pro", round, found, left)
    if found is None:
        with torch.no_grad():
            for parameter in model.encoders.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def decide(model: RoundModule, **shares: float) -> PhaseOutput:
    """What the model hands over with these logits of the shared option; of the others 0."""
    with torch.no_grad():
        for place in model.active:
            model.logits(place).copy_(torch.tensor([shares.get(model.names[place], 0.0), 0.0]))
    return model.phase_output()


def predictions(model: RoundModule, given: Batch) -> dict[str, Tensor]:
    with torch.no_grad():
        return model(given).predictions


def exact(encoder: str) -> Batch:
    given = batch(encoder)
    if given.inputs.is_floating_point():
        given.samples.inputs.data = given.inputs.double()
    return given


@pytest.mark.parametrize("encoder", ENCODERS)
def test_each_round_goes_on_where_the_last_one_ended(encoder: str) -> None:
    model, given = of_round(encoder), exact(encoder)
    for round, leaving in ((2, "b"), (3, "c")):
        found = decide(model, **{task: 60.0 if task == leaving else -1.0 for task in TASKS})
        before = predictions(model, given)
        model = of_round(encoder, round, found)
        assert leaving in model.left and model.left[leaving] == round - 1
        # The stages that are asked for next, and the group's new ones, are copies: no option has changed.
        with torch.no_grad():
            for place in model.active:
                model.logits(place).copy_(torch.tensor([-1.0, 0.0]))
        after = predictions(model, given)
        for task in TASKS:
            assert (after[task] - before[task]).abs().max() < 1e-12, (round, task)
        parts = [set(map(id, model.encoder_of(owner).parameters())) for owner in model.encoders]
        assert sum(map(len, parts)) == len(set.union(*parts))


@pytest.mark.parametrize("encoder", ["mlp", "resnet18"])
def test_parameters_are_shared_or_of_the_task_whose_loss_moves_them(encoder: str) -> None:
    model, given = of_round(encoder), exact(encoder)
    for round in (2, 3):
        found = decide(model, a=-1.0, b=1.0 if round == 2 else 0.0, c=-1.0)
        model = of_round(encoder, round, found)
        named = dict(model.named_parameters())
        owned = {task: {id(p) for p in model.task_parameters(task)} for task in TASKS}
        shared = {id(p) for p in model.shared_parameters()}
        assert sum(map(len, owned.values())) + len(shared) == len(named)
        assert set.union(shared, *owned.values()) == {id(p) for p in named.values()}
        moved: Counter[int] = Counter()
        for task in TASKS:
            loss = model(given).predictions[task].square().sum()
            for p, grad in zip(
                named.values(), torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True
            ):
                assert grad is None or id(p) in owned[task] | shared
                moved[id(p)] += grad is not None
        assert all((moved[id(p)] > 1) == (id(p) in shared) for p in named.values())
        asked = len(model.encoder_of("trunk").stages) - round
        assert model.shared_modules() == [list(model.encoder_of("trunk").stages[asked].parameters())]


@pytest.mark.parametrize("encoder", ["mlp", "resnet18"])
def test_tasks_that_left_rest(encoder: str) -> None:
    """They predict what they would, but move nothing: no weight is theirs to move, and their gradients are none."""
    given = exact(encoder)
    found = decide(of_round(encoder), a=-1.0, b=1.0, c=-1.0)
    model, training = (of_round(encoder, 2, found, left) for left in ("rest", "train"))
    torch.testing.assert_close(predictions(model, given), predictions(training, given), rtol=0, atol=0)

    weights = model.groups()["weights"]
    assert not {id(p) for p in weights} & {id(p) for p in model.heads[1].parameters()}
    grads = {}
    for task in TASKS:
        loss = model(given).predictions[task].square().sum()
        grads[task] = [g for g in torch.autograd.grad(loss, weights, allow_unused=True) if g is not None]
    assert grads["a"] and grads["c"] and not grads["b"]
    moved = {id(p) for p in training.groups()["weights"]}
    assert {id(p) for p in training.heads[1].parameters()} <= moved

    # Nothing that a resting task alone reads is moved; the stage in question is.
    users = model.users
    alone = [p for key, tasks in users.items() if tasks == {1} for p in model.of_stage(*key)]
    assert alone and not {id(p) for p in alone} & {id(p) for p in weights}
    assert {id(p) for p in model.shared_modules()[0]} <= {id(p) for p in weights}


def test_a_round_runs_what_it_needs_once() -> None:
    model = of_round("resnet18", 2, decide(of_round("resnet18"), a=-1.0, b=1.0, c=-1.0))
    calls: Counter[tuple[str, int]] = Counter()
    for owner in model.encoders:
        for index, stage in enumerate(model.encoder_of(owner).stages):
            stage.register_forward_hook(lambda *_, key=(owner, index): calls.update([key]))
    model(exact("resnet18"))
    trunk = {("trunk", stage): 1 for stage in range(5)}  # its last stage is b's
    assert calls == {**trunk, ("group2", 4): 1, **{(own, stage): 1 for own in ("own0", "own2") for stage in (3, 4)}}


def test_with_many_tasks_it_starts_far_smaller_than_conal() -> None:
    tasks = tuple(Task(name=str(i), loss="mse", outputs=1, metrics=("mse",)) for i in range(40))
    of = TaskSuite(name="many", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(8,))
    recipe = components.build("encoders", "mlp", {"hidden": [8] * 5})
    first, whole = (
        components.build("architectures", name).build(of, lambda: recipe.build(of), 0.0)
        for name in ("conal_pro", "conal")
    )
    assert sum(p.numel() for p in first.parameters()) < sum(p.numel() for p in whole.parameters()) / 3


@given(st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=1, max_size=6))
def test_trees_are_nested_and_branch_where_tasks_left(rounds: list[int | None]) -> None:
    tree = tree_of_rounds(rounds, 5)
    for one, left in enumerate(rounds):
        for two, other in enumerate(rounds):
            if one == two:
                continue
            shared = [nodes[one] == nodes[two] for nodes in tree]
            if None in (left, other):
                assert not any(shared)
            elif left == other:
                assert all(shared)
            else:  # the one that left later shares fewer stages with those that left before
                assert shared == [stage <= 5 - max(left, other) for stage in range(5)]  # type: ignore[type-var]


def test_trees_of_one_task_a_group_are_those_of_branch_points() -> None:
    assert tree_of_rounds([1, 2, 4, None], 4) == tree_of_points([5, 4, 2, 1], 4)


def test_a_round_without_tasks_is_left_out() -> None:
    model = of_round("mlp")
    assert not CoNALPro().wants("stage 2", decide(model, a=1.0, b=1.0))  # c's logits are equal: it shares
    found = decide(model, a=1.0, b=1.0, c=-1.0)
    assert CoNALPro().wants("stage 2", found) and CoNALPro().wants("retrain", found)
    last = of_round("mlp", 3, decide(of_round("mlp", 2, found), c=-1.0))
    assert not CoNALPro().wants("stage 4", decide(last, c=-1.0))
    assert last.phase_output()["tree"] == tree_of_points([4, 4, 1], 3)


def test_epochs_are_divided_among_rounds() -> None:
    phases = [phase.of_run(11) for phase in CoNALPro().phases_for(5)]
    assert [(phase.name, phase.epochs) for phase in phases] == [(f"stage {s}", 2) for s in range(1, 6)] + [
        ("retrain", None)
    ]
    assert {phase.of_run(100).epochs for phase in CoNALPro(search_epochs=3).phases_for(5)[:-1]} == {1}
