"""TOMATO's penalties in training: proximal steps after SGD, their limits, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mtlscale.config import Experiment, Run, UserError
from mtlscale.config.registry import components
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.objectives.penalties._topics import TopicPenaltyModule
from mtlscale.records import Epoch
from mtlscale.solvers import prox_element, prox_exclusive
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

SGD = "{epochs: 3, batch_size: 16, lr: 0.05, dtype: float64, optimizer: sgd%s}"
PROX = {"tomato_el": prox_element, "tomato_ex": prox_exclusive}
both = pytest.mark.parametrize("name", list(PROX))


@pytest.fixture
def trainer(small: Small, uneven: Uneven, run_of: RunOf) -> Callable[..., Trainer]:
    """A trainer of TOMATO with two topics and this objective."""

    def make(objective: str, training: str = SGD % "", data: PreparedData | None = None) -> Trainer:
        data = data or uneven()
        methods = f"[{{label: x, architecture: {{name: tomato, topics: 2, top: 4}}, objective: {objective}}}]"
        return Trainer(run_of(small(methods=methods, training=training), data), data)

    return make


def special(trainer: Trainer) -> Tensor:
    """θˢ [K, T, P]."""
    return torch.stack(list(trainer.model.special), dim=1).detach()  # type: ignore[arg-type]


def finish(trainer: Trainer) -> list[Epoch]:
    return list(trainer.train())


@both
@pytest.mark.parametrize("groups", ["module", "layer"])
def test_a_step_is_plain_sgd_followed_by_the_operator(name: str, groups: str, trainer: Callable[..., Trainer]) -> None:
    plain = trainer("null")
    proximal = trainer(f"{{name: {name}, strength: 0.3, groups: {groups}}}")
    assert torch.equal(special(plain), special(proximal))
    indices = next(plain.session.main.sampler.epoch(1))
    for one in (plain, proximal):
        one.session.step(one.session.main, one.batches.micros(indices, 1))
    after = special(plain)
    sizes = proximal.model.sizes if groups == "layer" else [after.shape[-1]]  # type: ignore[union-attr, list-item]
    expected = torch.cat([PROX[name](part, 0.3 * 0.05) for part in after.split(sizes, -1)], -1)  # type: ignore[arg-type]
    torch.testing.assert_close(special(proximal), expected, rtol=1e-12, atol=1e-15)
    for key, value in plain.model.state_dict().items():
        if not key.startswith("special"):
            assert torch.equal(proximal.model.state_dict()[key], value), key


@both
def test_the_learning_rate_of_the_step_scales_the_operator(name: str, trainer: Callable[..., Trainer]) -> None:
    schedule = ", schedule: exponential, decay_rate: 0.5, decay_steps: 1"
    run = trainer(f"{{name: {name}, strength: 1.0}}", SGD % schedule)
    steps: list[float] = []
    objective = run.objective
    assert isinstance(objective, TopicPenaltyModule)
    shrink = objective.shrink
    objective.shrink = lambda theta, step: (steps.append(step), shrink(theta, step))[1]  # type: ignore[method-assign]
    finish(run)
    assert steps[:3] == pytest.approx([0.05, 0.025, 0.0125])


@both
def test_without_strength_it_is_as_if_there_were_no_penalty(name: str, trainer: Callable[..., Trainer]) -> None:
    without, zero = trainer("null"), trainer(f"{{name: {name}, strength: 0}}")
    finish(without), finish(zero)
    for key, value in without.model.state_dict().items():
        assert torch.equal(zero.model.state_dict()[key], value), key


@both
def test_a_huge_strength_leaves_one_module_for_all_topics_and_tasks(name: str, trainer: Callable[..., Trainer]) -> None:
    run = trainer(f"{{name: {name}, strength: 1e9}}")
    finish(run)
    if name == "tomato_el":
        assert not special(run).any()
    assert float(special(run).norm()) <= 1e-6
    model = run.model
    batch = next(iter(run.batches.of_split("val")))
    features = model.encoder(batch.inputs)  # type: ignore[operator]
    theta = model.base.expand(3, 2, -1) + special(run).transpose(0, 1)  # type: ignore[operator]
    common = model.mixture(features, theta)  # type: ignore[operator]
    for task in (1, 2):
        torch.testing.assert_close(common[task], common[0], rtol=1e-6, atol=1e-6)


@both
def test_sparsity_is_exact_and_grows_with_the_strength(name: str, trainer: Callable[..., Trainer]) -> None:
    counts = []
    for strength in (0.0, 0.5, 50.0):
        run = trainer(f"{{name: {name}, strength: {strength}}}")
        last = finish(run)[-1]
        norms = torch.tensor(last.traces["topic_norms"])
        assert norms.shape == (2, 3)
        torch.testing.assert_close(norms.double(), special(run).norm(dim=-1), atol=1e-6, rtol=0)
        assert last.traces["special_modules"] == int((special(run).norm(dim=-1) > 0).sum())
        counts.append(last.traces["special_modules"])
    assert counts[0] == 6 and counts[0] >= counts[1] >= counts[2]
    assert counts[2] < 6


def test_the_norms_are_kept_with_the_last_epoch_alone(trainer: Callable[..., Trainer]) -> None:
    epochs = finish(trainer("tomato_el"))
    assert ["topic_norms" in epoch.traces for epoch in epochs] == [False, False, True]
    stopped = finish(trainer("tomato_el", SGD.replace("epochs: 3", "epochs: 300") % ", patience: 2"))
    assert len(stopped) < 300
    assert ["topic_norms" in epoch.traces for epoch in stopped] == [False] * (len(stopped) - 1) + [True]


def test_an_objective_alone_names_its_network(small: Small) -> None:
    experiment = small(methods="[{name: tomato_ex, strength: 0.5}, inter_task_l2, mrn, equal]", training=SGD % "")
    found = [(method.label, method.architecture.name) for method in experiment.methods]
    assert found == [
        ("tomato_ex", "tomato"),
        ("inter_task_l2", "shared_bottom"),
        ("mrn", "shared_bottom"),
        ("equal", "hps"),
    ]


@both
@pytest.mark.parametrize(
    ("training", "found"),
    [("{optimizer: adam}", "adam"), ("{}", "adam"), ("{optimizer: sgd, momentum: 0.9}", "momentum 0.9")],
)
def test_what_is_not_plain_sgd_is_refused_before_anything_starts(
    name: str, training: str, found: str, small: Small
) -> None:
    with pytest.raises(UserError, match=f"{name}: its proximal steps go with plain SGD, not with {found}; set"):
        small(methods=f"[{name}]", training=training)


@both
def test_a_network_without_topics_is_refused_before_anything_starts(name: str, small: Small) -> None:
    with pytest.raises(UserError, match=f"{name} penalises .* architecture tomato, not mmoe; write") as caught:
        small(methods=f"[{{objective: {name}, architecture: mmoe, label: x}}]", training=SGD % "")
    assert "\n" not in str(caught.value)


@both
@pytest.mark.parametrize("options", [{"strength": -0.1}, {"strength": float("nan")}, {"groups": "tensor"}])
def test_strength_and_groups_out_of_range(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{name}: (strength|groups) = .* is outside"):
        components.build("objectives", name, options)
