"""MTL-NAS: which edges there are, whom a stage serves, and that the kept ones alone make the network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.architectures import EpochView
from mtlscale.architectures.crossing._edges import Edge, entropy, every_edge, joint
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples

RESNET = {"width": 2, "stem": "small"}
WIDTHS = (2, 2, 4, 8, 16)  # of its five stages


def suite(tasks: str = "abc") -> TaskSuite:
    each = tuple(Task(name=name, loss="bce", outputs=1, metrics=("error",)) for name in tasks)
    return TaskSuite(name="few", tasks=each, inputs="shared", input_kind="image", input_shape=(3, 8, 8))


def build(name: str, tasks: str = "abc", **options: Any) -> Any:
    torch.manual_seed(0)
    of, recipe = suite(tasks), components.build("encoders", "resnet18", RESNET)
    return components.build("architectures", name, options).build(of, lambda: recipe.build(of), 0.0)


def retrained(edges: list[list[float]]) -> Any:
    torch.manual_seed(0)
    of, recipe = suite(), components.build("encoders", "resnet18", RESNET)
    architecture = components.build("architectures", "mtl_nas", {})
    return architecture.build_next("retrain", {"edges": edges}, of, lambda: recipe.build(of), 0.0)


def predictions(model: Any, tasks: str = "abc") -> dict[str, Tensor]:
    inputs = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    found: dict[str, Tensor] = model(Batch("all", Samples(inputs, {t: torch.zeros(4) for t in tasks}), 4)).predictions
    return found


def reached(model: Any, task: str) -> set[str]:
    """Names of the parameters that a task's prediction depends on."""
    named = dict(model.named_parameters())
    grads = torch.autograd.grad(predictions(model)[task].sum(), list(named.values()), allow_unused=True)
    return {key for key, grad in zip(named, grads, strict=True) if grad is not None}


def test_edges_go_from_any_stage_to_any_no_earlier_one_of_another_task() -> None:
    found = every_edge(3, 4)
    assert len(set(found)) == len(found) == 3 * 2 * (4 * 5 // 2)
    assert all(edge.source != edge.task and edge.start <= edge.stage for edge in found)


def test_without_edges_it_is_single_task_learning() -> None:
    model, single = retrained([]), build("stl")
    assert model.independent and not model.shared_parameters()
    single.load_state_dict(model.state_dict())  # the same parameters, and no others
    for task, prediction in predictions(single).items():
        assert torch.equal(predictions(model)[task], prediction)
        assert torch.equal(predictions(model, task)[task], prediction)


def test_closed_edges_of_the_search_bring_nothing() -> None:
    model = build("mtl_nas").eval()
    for logits in model.logits.values():
        logits.data.fill_(-1e4)
    before = predictions(model)
    for encoder, head in zip(model.encoders[1:], model.heads[1:], strict=True):
        for parameter in (*encoder.parameters(), *head.parameters()):
            parameter.data.mul_(1.5)
    after = predictions(model)
    assert torch.equal(before["a"], after["a"]) and not torch.equal(before["b"], after["b"])


@given(st.lists(st.sampled_from(every_edge(3, 5)), unique=True, max_size=5))
@settings(deadline=None, max_examples=15)
def test_parameters_are_those_of_the_kept_edges_and_serve_whom_they_are_said_to(edges: list[Edge]) -> None:
    model, single = retrained([[*edge, 0.9] for edge in edges]), build("stl")
    ends = {(edge.task, edge.stage) for edge in edges}
    extra = sum(WIDTHS[stage] * (WIDTHS[stage] + 2) for _, stage in ends)  # own channels and normalisation
    extra += sum(WIDTHS[edge.stage] * WIDTHS[edge.start] for edge in edges)
    assert sum(p.numel() for p in model.parameters()) == extra + sum(p.numel() for p in single.parameters())
    names = {id(p): key for key, p in model.named_parameters()}
    shared = {names[id(p)] for p in model.shared_parameters()}
    own = {task: {names[id(p)] for p in model.task_parameters(task)} for task in "abc"}
    assert sum(map(len, own.values())) + len(shared) == len(names)
    assert set().union(shared, *own.values()) == set(names.values())
    depends = {task: reached(model, task) for task in "abc"}
    for key in names.values():
        serves = {task for task, keys in depends.items() if key in keys}
        assert len(serves) > 1 if key in shared else key in own[min(serves)], key


def test_an_edge_brings_the_features_of_its_source_resized() -> None:
    model = retrained([[0, 1, 2, 3, 0.8]]).eval()
    found = reached(model, "c")
    assert any(key.startswith("encoders.0.stages.1.") for key in found)
    assert not any(key.startswith(("encoders.0.stages.2.", "encoders.1.")) for key in found)
    assert model.structure() == {"edges": [["a", 2, "c", 4, 0.8]], "tasks": ["a", "b", "c"]}


def test_own_features_dominate_at_first() -> None:
    convolution = joint(3, [3, 2], 0.9)[0]
    own, same, narrow = convolution.weight[:, :, 0, 0].split([3, 3, 2], dim=1)
    assert torch.equal(own, 0.9 * torch.eye(3))
    torch.testing.assert_close(same, 0.05 * torch.eye(3))
    torch.testing.assert_close(narrow, 0.05 * torch.eye(3)[:, :2])


def test_the_entropy_term_is_that_of_coins_and_grows_with_the_epochs() -> None:
    logits = torch.tensor([-40.0, -1.0, 0.0, 2.0, 700.0], requires_grad=True)
    coins = torch.distributions.Bernoulli(logits=logits.detach()[1:4]).entropy()
    torch.testing.assert_close(entropy(logits).detach(), torch.cat([torch.zeros(1), coins, torch.zeros(1)]))
    (gradient,) = torch.autograd.grad(entropy(logits).sum(), logits)
    assert gradient.isfinite().all() and gradient[1] > 0 > gradient[3] and gradient[2] == 0
    model = build("mtl_nas", entropy=0.5)
    assert model.penalty().item() == 0
    model.on_epoch_end(EpochView(4))
    assert model.penalty().item() == pytest.approx(2.0 * torch.tensor(2.0).log().item())


def test_edges_above_a_half_are_handed_over() -> None:
    model = build("mtl_nas")
    assert model.phase_output() == {"edges": []}
    model.logits["1_2"].data[3] = 0.7
    [found] = model.phase_output()["edges"]
    assert found == pytest.approx([*model.into[1, 2][3], torch.tensor(0.7).sigmoid().item()])
    assert model.traces()["kept_edges"] == 1


def test_one_task_is_refused() -> None:
    with pytest.raises(UserError, match="mtl_nas searches edges between tasks, few has one; use stl"):
        build("mtl_nas", tasks="a")
