"""DSMTL's network: what it equals at gates of 0 and 1, wherever the gate is, and whose parameters are whose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mtlscale.architectures.branching._dsmtl import DSMTLModule
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples

TASKS = ("a", "b", "c")
ENCODERS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [5, 4, 3]},
    "lstm": {"dimensions": 4, "hidden": 3},
    "resnet18": {"width": 2, "stem": "small"},
    "segnet": {"width": 2},
    "textcnn": {"dimensions": 4, "filters": 3, "widths": [2, 3]},
    "textcnn_mlp": {"dimensions": 4, "filters": 3, "widths": [2, 3], "hidden": [5, 4]},
}
TOKENS = ("lstm", "textcnn", "textcnn_mlp")
STAGED = [name for name in ENCODERS if name not in ("lstm", "textcnn")]


def suite(encoder: str) -> TaskSuite:
    kind, shape = ("tokens", (7,)) if encoder in TOKENS else ("image", (3, 32, 32))
    kind, shape = ("vector", (6,)) if encoder == "mlp" else (kind, shape)
    tasks = tuple(Task(name=name, loss="cross_entropy", outputs=4, metrics=("error",)) for name in TASKS)
    size = 20 if kind == "tokens" else None
    return TaskSuite(
        name="three", tasks=tasks, inputs="shared", input_kind=kind, input_shape=shape, vocabulary_size=size
    )


def batch(encoder: str) -> Batch:
    generator, of = torch.Generator().manual_seed(1), suite(encoder)
    if of.input_kind == "tokens":
        inputs = torch.randint(1, 20, (9, 7), generator=generator)
    else:
        inputs = torch.randn(9, *of.input_shape, generator=generator)
    return Batch("all", Samples(inputs, {task: torch.randint(4, (9,), generator=generator) for task in TASKS}), 9)


def build(name: str, encoder: str, **options: Any) -> Any:
    torch.manual_seed(0)
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    return components.build("architectures", name, options).build(of, lambda: recipe.build(of), 0.2)


def network(encoder: str, **options: Any) -> DSMTLModule:
    torch.manual_seed(0)
    recipe, of = components.build("encoders", encoder, ENCODERS[encoder]), suite(encoder)
    return DSMTLModule(of, lambda: recipe.build(of), 0.2, **options)


def predictions(model: Any, encoder: str) -> dict[str, Tensor]:
    torch.manual_seed(3)
    found: dict[str, Tensor] = model(batch(encoder)).predictions
    return found


def assert_same(one: Any, other: Any, encoder: str) -> None:
    """The same sizes, the same initial weights and the same outputs, in training and in evaluation."""
    assert [p.shape for p in one.shared_parameters()] == [p.shape for p in other.shared_parameters()]
    for task in TASKS:
        assert [p.shape for p in one.task_parameters(task)] == [p.shape for p in other.task_parameters(task)]
    assert one.independent == other.independent
    for _ in ("training", "evaluation"):
        found = predictions(one, encoder)
        assert all(torch.equal(found[task], value) for task, value in predictions(other, encoder).items())
        one.eval(), other.eval()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_gate_of_0_is_single_task_learning(encoder: str) -> None:
    assert_same(build("dsmtl_jl", encoder, alpha=0.0), build("stl", encoder), encoder)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_gate_of_1_is_hard_sharing(encoder: str) -> None:
    one, other = build("dsmtl_jl", encoder, alpha=1.0), build("hps", encoder)
    assert_same(one, other, encoder)
    assert one.vectorised == other.vectorised


@pytest.mark.parametrize("encoder", STAGED)
def test_branch_points_at_the_end_are_hard_sharing(encoder: str) -> None:
    stages = components.build("encoders", encoder, ENCODERS[encoder]).stage_count
    assert_same(network(encoder, points=[stages + 1] * 3), build("hps", encoder), encoder)


@pytest.mark.parametrize("encoder", STAGED)
def test_a_gate_of_1_further_in_is_a_tree_that_branches_there(encoder: str) -> None:
    one, other = build("dsmtl_jl", encoder, alpha=1.0, after=2), build("branched", encoder, points=[3, 3, 3])
    assert sum(p.numel() for p in one.parameters()) == sum(p.numel() for p in other.parameters())
    for stage, source in enumerate(one.public.stages[:2]):
        other.paths[0][0].encoder.stages[stage].load_state_dict(source.state_dict())
    for place, path in enumerate(other.paths):
        for stage in range(2, one.stages):
            path[1].encoder.stages[stage].load_state_dict(one.private[str(place)].stages[stage].state_dict())
    other.heads.load_state_dict(one.heads.state_dict())
    for task, found in predictions(other.eval(), encoder).items():
        torch.testing.assert_close(predictions(one.eval(), encoder)[task], found)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("inner", [False, True])
def test_learned_gates_pushed_to_either_end_give_either_network(encoder: str, inner: bool) -> None:
    if inner and encoder not in STAGED:
        pytest.skip("one stage has no inside")
    options = {"after": 2} if inner else {}
    model = build("dsmtl_jl", encoder, **options).double().eval()
    kept = {"alpha": 0.0}, {"alpha": 1.0, **options}
    for logit, fixed in zip((-800.0, 800.0), kept, strict=True):  # a sigmoid of exactly 0 and 1
        with torch.no_grad():
            for parameter in model.logits.values():
                parameter.fill_(logit)
        end = build("dsmtl_jl", encoder, **fixed).double().eval()
        state = model.state_dict()
        end.load_state_dict({key: state[key] for key in end.state_dict()})
        given = batch(encoder)
        if given.samples.inputs.is_floating_point():
            given = Batch("all", Samples(given.samples.inputs.double(), given.samples.targets), 9)
        for task, found in end(given).predictions.items():
            torch.testing.assert_close(model(given).predictions[task], found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"after": 1}, {"alpha": 0.3}, {"points": [1, 3, 5]}, {"points": [4, 4, 2]}])
@pytest.mark.parametrize("encoder", ["mlp", "segnet", "resnet18"])
def test_a_loss_moves_the_public_encoder_and_its_tasks_own(encoder: str, options: dict[str, Any]) -> None:
    stages = components.build("encoders", encoder, ENCODERS[encoder]).stage_count
    if "points" in options:
        options = {"points": [min(p, stages + 1) for p in options["points"]]}
    model = network(encoder, **options)
    owner = {id(p): task for task in TASKS for p in model.task_parameters(task)}
    shared = {id(p) for p in model.shared_parameters()}
    assert owner.keys() | shared == {id(p) for p in model.parameters()} and not owner.keys() & shared
    assert {id(p) for module in model.shared_modules() for p in module} == shared
    found = model(batch(encoder)).predictions
    named = dict(model.named_parameters())
    for task in TASKS:
        loss = found[task].square().sum()
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True, retain_graph=True)
        for (key, p), grad in zip(named.items(), grads, strict=True):
            assert (grad is not None) == (owner.get(id(p), task) == task), key


def test_the_gate_is_one_number_a_task_and_starts_at_a_half() -> None:
    model = build("dsmtl_jl", "mlp")
    assert model.gates() == model.traces()["gates"] == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert [tuple(p.shape) for p in model.logits.values()] == [()] * 3
    assert build("dsmtl_jl", "mlp", alpha=0.5).gates() == model.gates()
    assert not build("dsmtl_jl", "mlp", alpha=0.5).logits


def test_features_are_the_mixture_by_hand() -> None:
    model = build("dsmtl_jl", "mlp", alpha=0.25).eval()
    inputs = batch("mlp").samples.inputs
    mixed = 0.25 * model.public(inputs) + 0.75 * model.private["1"](inputs)
    torch.testing.assert_close(model(batch("mlp")).predictions["b"], model.heads[1](mixed))


def test_private_stages_go_on_from_the_public_features_at_their_point() -> None:
    model = network("mlp", points=[1, 3, 4]).eval()
    assert model.gates() == {"a": 0.5, "b": 0.5}  # the third task has the public features alone
    assert model.structure()["points"] == {"a": 1, "b": 3, "c": 4}
    assert sum(model.structure()["stage_parameters"]) == sum(p.numel() for p in model.public.parameters())
    inputs, public = batch("mlp").samples.inputs, model.public
    before = public.stage(1, public.stage(0, public.prepare(inputs), {}), {})
    mixed = 0.5 * public(inputs) + 0.5 * model.private["1"].stage(2, before, {})
    found = model(batch("mlp")).predictions
    torch.testing.assert_close(found["b"], model.heads[1](mixed))
    torch.testing.assert_close(found["c"], model.heads[2](public(inputs)))


def test_gradients_at_the_public_output_are_those_at_the_parameters() -> None:
    model = build("dsmtl_jl", "mlp").eval()
    outputs, shared = model(batch("mlp")), model.shared_parameters()
    assert outputs.representation is not None
    loss = outputs.predictions["b"].square().sum()
    whole = torch.autograd.grad(loss, shared, retain_graph=True)
    [at] = torch.autograd.grad(loss, [outputs.branches["b"]], retain_graph=True)
    for one, other in zip(whole, torch.autograd.grad(outputs.representation, shared, at), strict=True):
        torch.testing.assert_close(one, other)
    for options in ({"after": 1}, {"points": [1, 2, 4]}):
        assert network("mlp", **options)(batch("mlp")).representation is None


@pytest.mark.parametrize("name", ["dsmtl_jl", "dsmtl_il"])
def test_a_gate_beyond_the_stages_is_refused(name: str) -> None:
    """Before the first phase."""
    for encoder, after, stages in (("mlp", 4, 3), ("textcnn", 2, 1)):
        with pytest.raises(UserError, match=rf"after = {after} is outside 1\.\.{stages}, the stages of this encoder"):
            build(name, encoder, after=after)


def test_what_needs_stages_or_a_gate_says_so() -> None:
    with pytest.raises(UserError, match="dsmtl_al branches between the stages of an encoder"):
        build("dsmtl_al", "textcnn")
    for alpha in (0.0, 1.0):
        with pytest.raises(UserError, match=r"dsmtl_il: alpha = .* is outside \(0, 1\)"):
            build("dsmtl_il", "mlp", alpha=alpha)
