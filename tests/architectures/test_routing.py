"""Supernets that choose between candidate nodes: the networks they come to, and their trees."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import ENCODERS, batch, suite
from torch import Tensor, nn

from mtlscale.architectures import EpochView
from mtlscale.architectures.branching._costs import expected_groups, stage_flops
from mtlscale.architectures.branching._routing import RoutedModule
from mtlscale.architectures.trees import BranchedModule, Tree
from mtlscale.config import UserError
from mtlscale.config.registry import components
from mtlscale.encoders import EncoderModule

SEARCHES = ("bmtas", "ltb")
PEAK = 1e4
every = pytest.mark.parametrize("name", SEARCHES)


def build(name: str, encoder: str = "mlp", seed: int = 0, **options: Any) -> Any:
    """The supernet, its weights unlike each other: at first all nodes of a stage are the same."""
    torch.manual_seed(seed)
    of, recipe = suite(encoder), components.build("encoders", encoder, ENCODERS[encoder])
    model = components.build("architectures", name, {"warmup": 0.0, **options}).build(of, lambda: recipe.build(of), 0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        for parameter in model.logits:
            parameter.zero_()
    return model


def branched(model: RoutedModule, encoder: str, tree: Tree) -> BranchedModule:
    recipe = components.build("encoders", encoder, ENCODERS[encoder])

    def make() -> EncoderModule:
        built: EncoderModule = recipe.build(suite(encoder))
        return built

    return BranchedModule(suite(encoder), make, tree, 0.0)


def peaked(model: RoutedModule, nodes: Tensor) -> None:
    """Let choice (l, i) be for node `nodes[l, i]`."""
    with torch.no_grad():
        for logits, node in zip(model.logits, nodes.flatten().tolist(), strict=True):
            logits.zero_()[node] = PEAK


def path(name: str, nodes: list[list[int]], task: int) -> list[int]:
    """The node that a task passes in each stage, by the meaning of the choices."""
    if name == "ltb":
        found = [nodes[-1][task]]
        for stage in reversed(nodes[:-1]):
            found.insert(0, stage[found[0]])
        return found
    return [stage[task] for stage in nodes]


def copy_stages(model: RoutedModule, net: BranchedModule, paths: list[list[int]]) -> None:
    """Into each segment the stages of the nodes that its tasks pass in the supernet; and the heads."""
    net.heads.load_state_dict(model.heads.state_dict())
    for segment in net.parts():
        nodes = paths[min(segment.tasks)]
        for stage in range(segment.first, segment.last):
            source: nn.Module = model.encoders()[nodes[stage]].stages[stage]
            segment.encoder.stages[stage].load_state_dict(source.state_dict())


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@every
def test_certain_choices_are_the_branched_network_of_the_tree(name: str, encoder: str) -> None:
    model = build(name, encoder)
    model.temperature.fill_(1e-3)
    for seed in range(4):
        nodes = torch.randint(3, (model.depth, 3), generator=torch.Generator().manual_seed(seed))
        peaked(model, nodes)
        paths = [path(name, nodes.tolist(), task) for task in range(3)]
        net = branched(model, encoder, model.tree())
        copy_stages(model, net, paths)
        for training in (False, True):
            dropout = encoder == "mlp" and training
            if dropout:
                continue  # the order of the draws differs
            model.train(training), net.train(training)
            expected = net(batch(encoder)).predictions
            for task, prediction in model(batch(encoder)).predictions.items():
                torch.testing.assert_close(prediction, expected[task], rtol=1e-9, atol=1e-10)


@every
def test_choices_for_one_node_are_hard_sharing(name: str) -> None:
    model = build(name)
    model.eval()
    peaked(model, torch.full((model.depth, 3), 1))
    assert model.tree() == [[0, 0, 0]] * 3
    recipe = components.build("encoders", "mlp", ENCODERS["mlp"])
    hps = components.build("architectures", "hps").build(suite("mlp"), lambda: recipe.build(suite("mlp")), 0.0).eval()
    hps.encoder.load_state_dict(model.nodes[1].state_dict())
    hps.heads.load_state_dict(model.heads.state_dict())
    for task, prediction in hps(batch("mlp")).predictions.items():
        torch.testing.assert_close(model(batch("mlp")).predictions[task], prediction, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SEARCHES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_tree_is_a_tree_that_follows_the_largest_logits(name: str, seed: int) -> None:
    model = build(name)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for logits in model.logits:
            logits.copy_(torch.randn(3, generator=generator))
    tree, nodes = model.tree(), model.table().argmax(-1).tolist()
    paths = [path(name, nodes, task) for task in range(3)]
    assert len(tree) == model.depth and all(len(stage) == 3 for stage in tree)
    for one in range(3):
        for other in range(3):
            together = [stage[one] == stage[other] for stage in tree]
            assert together == sorted(together, reverse=True)  # once apart, apart
            # together where the same nodes have been passed up to here (of LTB: where the same node is passed)
            same = [paths[one][: stage + 1] == paths[other][: stage + 1] for stage in range(model.depth)]
            assert together == same


@every
def test_at_first_everything_is_equally_likely_and_shared(name: str) -> None:
    model = build(name)
    assert model.tree() == [[0, 0, 0]] * 3
    model.eval()
    assert model.choices().tolist() == [[[pytest.approx(1 / 3)] * 3] * 3] * 3
    routing = model.traces()["routing"]
    assert routing == [[[pytest.approx(1 / 3)] * 3] * 3] * 3


@every
def test_candidates_start_with_the_same_weights(name: str) -> None:
    recipe = components.build("encoders", "mlp", ENCODERS["mlp"])
    model = components.build("architectures", name, {"warmup": 0.0}).build(
        suite("mlp"), lambda: recipe.build(suite("mlp")), 0.0
    )
    first, *others = [list(node.parameters()) for node in model.nodes]
    assert all(torch.equal(p, q) and p is not q for node in others for p, q in zip(first, node, strict=True))


@every
def test_noise_is_of_the_step_alone_and_travels_in_the_state(name: str) -> None:
    one, other = build(name), build(name)
    torch.manual_seed(99)  # another worker's global numbers
    assert torch.equal(one.noise, other.noise)
    first = one.noise.clone()
    one(batch("mlp")), one(batch("mlp"))
    assert torch.equal(one.noise, first)  # every batch of a step
    one.after_step(0.1, lambda tensor: tensor)
    torch.manual_seed(7)
    other.after_step(0.1, lambda tensor: tensor)
    assert torch.equal(one.noise, other.noise) and not torch.equal(one.noise, first)
    one.on_epoch_end(EpochView(1))
    third = build(name, seed=5)
    third.seed = one.seed
    third.load_state_dict(one.state_dict())
    assert (third.steps, third.epochs) == (1, 1) and torch.equal(third.noise, one.noise)
    assert torch.equal(third.temperature, one.temperature)
    for model in (one, third):
        model.after_step(0.1, lambda tensor: tensor)
    assert torch.equal(third.noise, one.noise)


def test_noise_is_gumbels() -> None:
    """Mean γ = 0.5772, variance π²/6."""
    model = build("ltb")
    drawn = []
    for _ in range(2000):
        model.after_step(0.1, lambda tensor: tensor)
        drawn.append(model.noise.clone())
    values = torch.stack(drawn).flatten()
    assert float(values.mean()) == pytest.approx(0.5772, abs=0.02)
    assert float(values.var()) == pytest.approx(torch.pi**2 / 6, rel=0.03)


@every
def test_conflicts_are_noticed_stage_by_stage(name: str) -> None:
    model = build(name)
    modules = model.shared_modules()
    assert len(modules) == 3
    assert [sum(p.numel() for p in module) for module in modules] == [3 * (6 * 5 + 5), 3 * (5 * 4 + 4), 3 * (4 * 3 + 3)]
    assert {id(p) for module in modules for p in module} == {id(p) for p in model.nodes.parameters()}


def test_ltb_cools_exponentially_over_the_search() -> None:
    model = build("ltb", search_epochs=5, temperature=2.0, temperature_end=0.125)
    found = [float(model.temperature)]
    for epoch in range(1, 6):
        model.on_epoch_end(EpochView(epoch))
        found.append(float(model.temperature))
    assert found == pytest.approx([2.0, 1.0, 0.5, 0.25, 0.125, 0.125])


@pytest.mark.parametrize(
    ("epochs", "warmup", "expected"),
    [
        (200, 0.1, {"warm-up": 20, "search": 180}),
        (3, 0.1, {"warm-up": 1, "search": 2}),
        (3, 0.0, {"search": 3}),
        (1, 0.5, {"search": 1}),
    ],
)
def test_the_warm_up_is_a_share_of_the_search(epochs: int, warmup: float, expected: dict[str, int]) -> None:
    method = components.build("architectures", "ltb", {"search_epochs": epochs, "warmup": warmup})
    *searched, last = method.phases()
    assert {phase.name: phase.epochs for phase in searched} == expected
    assert last.name == "retrain" and last.epochs is None


def test_a_node_of_ltb_reads_a_mixture_of_its_parents() -> None:
    """Stage 2's node 0 takes a quarter, a quarter and half of stage 1's."""
    model = build("ltb").eval()
    model.temperature.fill_(1.0)
    with torch.no_grad():
        model.of_choice(0, 0).copy_(torch.tensor([0.25, 0.25, 0.5]).log())
    seen: list[Tensor] = []
    model.nodes[0].layers[4].register_forward_hook(lambda module, given, result: seen.append(given[0]))
    model(batch("mlp"))
    one, two, three = [node.stage(0, node.prepare(batch("mlp").inputs), {}) for node in model.encoders()]
    torch.testing.assert_close(seen[0], 0.25 * one + 0.25 * two + 0.5 * three)


# -- bmtas ---------------------------------------------------------------------------------------------------------


def groups_of(routing: tuple[tuple[int, ...], ...]) -> list[int]:
    """How many groups of tasks there are after each stage of nodes [L][T]."""
    return [len(set(zip(*routing[: stage + 1], strict=True))) for stage in range(len(routing))]


def test_expected_groups_are_those_of_an_enumeration() -> None:
    """Two stages, three tasks, three nodes: all 3^6 routings."""
    p = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 0.05
    p = p / p.sum(-1, keepdim=True)
    expected = torch.zeros(2, dtype=torch.float64)
    for flat in itertools.product(range(3), repeat=6):
        routing = (flat[:3], flat[3:])
        chance = math.prod(float(p[stage, task, routing[stage][task]]) for stage in range(2) for task in range(3))
        expected += chance * torch.tensor(groups_of(routing), dtype=torch.float64)
    torch.testing.assert_close(expected_groups(p), expected, rtol=1e-12, atol=1e-12)
    nodes = 1 - (1 - p[0]).prod(0)  # those of the first stage in use
    assert float(expected_groups(p)[0]) == pytest.approx(float(nodes.sum()))


def test_expected_cost_is_one_of_hard_sharing_and_as_many_as_tasks_of_networks_apart() -> None:
    model = build("bmtas")
    peaked(model, torch.zeros(3, 3, dtype=torch.long))
    assert model.expected_cost().item() == pytest.approx(1.0)
    peaked(model, torch.arange(3).expand(3, 3))
    assert model.expected_cost().item() == pytest.approx(3.0)
    peaked(model, torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 1]]))  # apart in stage 2, hence in stage 3
    sizes = torch.tensor([6 * 5 + 5, 5 * 4 + 4, 4 * 3 + 3.0])
    expected = (sizes * torch.tensor([1, 2, 2])).sum() / sizes.sum()
    assert model.expected_cost().item() == pytest.approx(float(expected))
    assert model.tree() == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]
    penalty = model.penalty()
    assert penalty.requires_grad and penalty.item() == pytest.approx(0.05 * float(expected))


def test_sixteen_tasks_lose_no_digits() -> None:
    even = torch.full((2, 16, 16), 1 / 16)
    first, second = expected_groups(even).tolist()
    assert first == pytest.approx(16 * (1 - (15 / 16) ** 16), rel=1e-9)
    assert second == pytest.approx(256 * (1 - (255 / 256) ** 16), rel=1e-9)


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        ("mlp", [2 * 6 * 5, 2 * 5 * 4, 2 * 4 * 3]),
        # a stem of 3 x 3 at 32 x 32, then two convolutions in each of two blocks; narrower maps, wider layers
        ("resnet18", [2 * 9 * 3 * 2 * 1024, 4 * 2 * 9 * 2 * 2 * 1024, None, None, None]),
        ("textcnn_mlp", [2 * 4 * 3 * (2 * 6 + 3 * 5), 2 * 6 * 5, 2 * 5 * 4]),
    ],
)
def test_operations_of_a_stage(encoder: str, expected: list[int | None]) -> None:
    recipe = components.build("encoders", encoder, ENCODERS[encoder])
    module = recipe.build(suite(encoder))
    found = stage_flops(module, batch(encoder).samples.inputs[:1])
    assert len(found) == len(expected) and all(count > 0 for count in found)
    assert [a for a, b in zip(found, expected, strict=True) if b is not None] == [b for b in expected if b is not None]
    assert module.training


def test_in_the_warm_up_every_task_has_a_network_of_its_own() -> None:
    model = build("bmtas", warmup=0.5)
    loss = model(batch("mlp")).predictions["b"].sum()
    loss.backward()
    assert [any(p.grad is not None for p in node.parameters()) for node in model.nodes] == [False, True, False]
    assert model.independent and not model.shared_parameters() and not any(model.shared_modules())
    assert model.penalty() is None and set(model.phase_output()) == {"network"}


def test_bmtas_cools_linearly_after_the_warm_up() -> None:
    model = build("bmtas", search_epochs=5, warmup=0.2, temperature=5.0, temperature_end=0.5)
    found = [float(model.temperature)]
    for epoch in range(1, 6):
        model.on_epoch_end(EpochView(epoch))
        found.append(float(model.temperature))
    assert found == pytest.approx([5.0, 5.0, 3.5, 2.0, 0.5, 0.5])


def test_too_many_tasks_are_refused_by_name() -> None:
    of = suite("mlp")
    many = dataclasses.replace(of, tasks=tuple(dataclasses.replace(of.tasks[0], name=f"t{i}") for i in range(17)))
    recipe = components.build("encoders", "mlp", ENCODERS["mlp"])
    with pytest.raises(UserError, match="17, more than 16: choose ltb"):
        components.build("architectures", "bmtas").build(many, lambda: recipe.build(many), 0.0)


@every
def test_a_warm_up_is_no_finding(name: str) -> None:
    recipe, of = components.build("encoders", "mlp", ENCODERS["mlp"]), suite("mlp")
    method = components.build("architectures", name)
    with pytest.raises(UserError, match=f"{name}: found is the result of a warm-up"):
        method.build_next("retrain", {"network": {}}, of, lambda: recipe.build(of), 0.0)
