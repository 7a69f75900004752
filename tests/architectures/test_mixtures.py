"""Cross-stitch, MMoE, PLE and topic-wise designs against what they become in simple cases."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from mtlscale.architectures.crossing.cross_stitch import stitch
from mtlscale.config import UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch

Build = Callable[..., Any]
MakeBatch = Callable[..., Batch]


def test_one_expert_is_a_hidden_layer_for_all(build: Build, batch: MakeBatch) -> None:
    model = build("mmoe", experts=1, top=4)
    features = model.encoder(batch().inputs)
    hidden = (features @ model.experts.weight[0] + model.experts.bias[0]).relu()
    torch.testing.assert_close(model(batch()).predictions["b"], model.heads[1](hidden), rtol=1e-12, atol=1e-14)


def test_the_gate_mixes_the_experts_of_each_sample(build: Build, batch: MakeBatch) -> None:
    model = build("mmoe", experts=3, top=4)
    features = model.encoder(batch().inputs)
    hidden = torch.stack([(features @ w + b).relu() for w, b in zip(*model.experts.parameters(), strict=True)])
    gate = F.softmax(features @ model.gates[2].weight.T, dim=1)
    mixed = sum(gate[:, e, None] * hidden[e] for e in range(3))
    torch.testing.assert_close(model(batch()).predictions["c"], model.heads[2](mixed), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("units", ["scalar", "channel"])
@pytest.mark.parametrize("bottom", ["shared", "own"])
def test_cross_stitch_recombines_the_tasks_hidden_features(
    units: str, bottom: str, build: Build, batch: MakeBatch
) -> None:
    model = build("cross_stitch", top=4, units=units, bottom=bottom)
    for unit in (*model.units, *model.bottom_units):
        unit.data.normal_()
    features = [encoder(batch().inputs) for encoder in model.encoders]
    if bottom == "own":
        unit = model.bottom_units[0]
        features = [sum(unit[i, j] * features[j] for j in range(3)) for i in range(3)]
    else:
        features = features * 3
    hidden = [(features[j] @ model.hidden.weight[j] + model.hidden.bias[j]).relu() for j in range(3)]
    for index, task in enumerate("abc"):
        mixed = sum(model.units[index][j] * hidden[j] for j in range(3))
        torch.testing.assert_close(model(batch()).predictions[task], model.heads[index](mixed), rtol=1e-12, atol=1e-14)


def test_a_cross_stitch_unit_starts_near_the_identity() -> None:
    unit = stitch(5, 2)
    torch.testing.assert_close(unit.sum(1), torch.ones(5, 2))
    assert bool((unit.diagonal() == 0.9).all())
    assert torch.equal(stitch(1, 1), torch.ones(1, 1, 1))


def test_cgc_is_ple_with_one_layer(build: Build, batch: MakeBatch) -> None:
    cgc, ple = build("cgc", top=4), build("ple", layers=1, top=4)
    for task, prediction in cgc(batch()).predictions.items():
        assert torch.equal(ple(batch()).predictions[task], prediction)


def test_a_layer_of_ple_mixes_own_and_shared_experts_and_the_shared_one_all(build: Build, batch: MakeBatch) -> None:
    model = build("ple", layers=2, own=2, shared=3, top=4)
    features = model.encoder(batch().inputs)
    first = model.extractions[0]

    def expert(bank: Any, index: int, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs @ bank.weight[index] + bank.bias[index]).relu()

    def mixed(experts: list[torch.Tensor], gate: torch.Tensor) -> torch.Tensor:
        weights = gate.softmax(1)
        return sum(weights[:, e, None] * value for e, value in enumerate(experts))  # type: ignore[return-value]

    own = [[expert(first.task_experts, 2 * t + e, features) for e in range(2)] for t in range(3)]
    shared = [expert(first.shared_experts, e, features) for e in range(3)]
    common = mixed([*own[0], *own[1], *own[2], *shared], features @ first.shared_gate)
    of_b = mixed([*own[1], *shared], features @ first.gates[1])
    last = [expert(model.task_experts[1], e, of_b) for e in range(2)]
    last += [expert(model.shared_experts, e, common) for e in range(3)]
    expected = model.heads[1](mixed(last, of_b @ model.gates[1].weight.T))
    torch.testing.assert_close(model(batch("b")).predictions["b"], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("within", ["hps", "stl", "mmoe", "tomato"])
def test_topicwise_mixes_the_predictions_of_whole_designs(within: str, build: Build, batch: MakeBatch) -> None:
    model = build("topicwise", topics=2, within=within, width=4)
    features = model.encoder(batch().inputs)
    weights = model.topic(features).softmax(1)
    inner = Batch("all", type(batch().samples)(features, batch().samples.targets), 9)
    topics = [module(inner).predictions["a"] for module in model.within]
    expected = weights[:, :1] * topics[0] + weights[:, 1:] * topics[1]
    torch.testing.assert_close(model(batch()).predictions["a"], expected, rtol=1e-12, atol=1e-14)
    one = build("topicwise", topics=1, within=within, width=4)
    inner = Batch("all", type(batch().samples)(one.encoder(batch().inputs), batch().samples.targets), 9)
    torch.testing.assert_close(one(batch()).predictions["c"], one.within[0](inner).predictions["c"])


def test_topicwise_names_what_is_wrong_within(build: Build) -> None:
    with pytest.raises(UserError, match="unknown architecture 'mmoee': did you mean mmoe"):
        build("topicwise", within="mmoee")
    with pytest.raises(UserError, match="topicwise: mmoe: unknown option 'expert'; did you mean experts"):
        build("topicwise", within="mmoe", options={"expert": 2})
    with pytest.raises(UserError, match="name another architecture"):
        build("topicwise", within="topicwise")


def test_shared_bottom_and_separate_differ_in_what_is_shared_alone(build: Build, batch: MakeBatch) -> None:
    shared, separate = build("shared_bottom", top=4), build("separate", top=4)
    assert separate.independent and not separate.shared_parameters()
    for encoder in separate.encoders:
        encoder.load_state_dict(shared.encoder.state_dict())
    separate.heads.load_state_dict(shared.heads.state_dict())
    for task, prediction in shared(batch()).predictions.items():
        assert torch.equal(separate(batch()).predictions[task], prediction)


def test_single_says_the_same_for_every_task(build: Build, batch: MakeBatch) -> None:
    predictions = build("single")(batch()).predictions
    assert torch.equal(predictions["a"], predictions["c"])
    assert not components.component("architectures", "single").knobs().keys() - {"top"}
