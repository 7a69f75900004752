"""AASPC: its space of heads, its controller, and whole runs of both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_runs import finish as finish_in_home
from torch import Tensor
from transfers import job_of, transfer
from two_workers import PLUGINS

from mtlscale.batched.eligibility import planning
from mtlscale.config import UserError
from mtlscale.data import PreparedData
from mtlscale.execution.planning.check import _check
from mtlscale.inference import export, load_model
from mtlscale.nas.architectures.aaspc import AASPCModule
from mtlscale.nas.search.controller import Controller, adam_step
from mtlscale.nas.search.domain_predictions import MOST_ROWS, DomainPredictions
from mtlscale.nas.search.head_cells import (
    Cell,
    Head,
    HeadSupernet,
    all_heads,
    decisions,
    decoded,
    head_count,
    number_of,
    numbered,
)
from mtlscale.training import Trainer, finish

AASPC = {"name": "aaspc", "cells": 2, "lr": 0.1, "dropout": 0.2}
PC = {"name": "population_correlation", "strength": 0.5}
HEADS = all_heads(3)[::5]  # each choice among them


def method(objective: Any = PC, **knobs: Any) -> dict[str, Any]:
    return {"architecture": {**AASPC, **knobs}, **({"objective": objective} if objective else {})}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return transfer(tmp_path_factory.mktemp("home"))


# -- the space -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "heads"), [(1, 6), (2, 288), (3, 7776)])
def test_the_space_is_as_large_as_the_thesis_says_and_every_head_has_a_number(cells: int, heads: int) -> None:
    assert head_count(cells) == heads == (2 * 3) ** cells * 2 ** (cells - 1) * cells**2
    assert [number_of(numbered(number, cells)) for number in range(heads)] == list(range(heads))
    # Every combination of choices, and none that there is not.
    assert {tuple(numbered(n, cells)) for n in range(heads)} == set(itertools.product(*map(range, decisions(cells))))


def test_what_a_head_needs_and_how_large_it_is() -> None:
    """x1 = half of x0, x2 = x0 as it is, x3 = half of x1."""
    head = Head((Cell(0, True, 0), Cell(1, False, 2), Cell(1, True, 1)), watched=1, classifier=2)
    assert head.sizes(8) == [(8, 4), (8, 8), (4, 2)]
    assert head.needed() == [0, 1, 2]  # the classifier's cell reads x1
    assert Head(head.cells, watched=1, classifier=1).needed() == [1]
    assert Head(head.cells, watched=0, classifier=0).needed() == [0]
    assert head.describe() == (
        "1: x0 half skip input | 2: x0 full skip norm | 3: x1 half skip linear; watched 2, classifier 3"
    )
    for one in HEADS[::97]:
        needed = one.needed()
        assert {one.watched, one.classifier} <= set(needed)
        assert all(place - one.cells[place].back - 1 in [-1, *needed] for place in needed)


def test_weights_are_shared_by_cell_and_sizes() -> None:
    net = HeadSupernet(8, 3, 5, 0.0, HEADS)
    sizes = ["0_8_4", "0_8_8", "1_4_2", "1_4_4", "1_8_4", "1_8_8"]
    assert list(net.cells) == [*sizes, "2_2_1", "2_2_2", "2_4_2", "2_4_4", "2_8_4", "2_8_8"]
    assert len(net.classifiers) == 2 + 3 + 4
    net.eval()
    used: list[str] = []
    for name, cell in net.cells.items():
        cell.register_forward_hook(lambda *_, name=name: used.append(name))
    for head in HEADS[::97]:
        used.clear()
        watched, read = net(torch.randn(4, 8), head)
        widths = head.sizes(8)
        assert used == [f"{place}_{widths[place][0]}_{widths[place][1]}" for place in head.needed()]
        assert watched.shape == (4, widths[head.watched][1]) and net.classify(read, head).shape == (4, 5)


def test_skip_connections_add_what_they_say() -> None:
    torch.manual_seed(0)
    net, inputs = HeadSupernet(4, 1, 2, 0.0, all_heads(1)).eval(), torch.randn(3, 4)
    for half in (0, 1):
        cell = net.cells["0_4_2" if half else "0_4_4"]
        linear = cell.linear(inputs)
        norm = linear / (1 + cell.norm.eps) ** 0.5  # as it begins
        for skip, beside in enumerate((cell.project(inputs), linear, norm)):
            watched, _ = net(inputs, decoded([0, half, skip, 0, 0]))
            assert torch.allclose(watched, norm.relu() + beside)
    assert torch.equal(net.cells["0_4_4"].project(inputs), inputs)


# -- the controller ------------------------------------------------------------------------------------------------


def begun(cells: int) -> tuple[Controller, Tensor]:
    controller = Controller(decisions(cells))
    return controller, controller.begin(torch.Generator().manual_seed(1))


def test_its_gradient_is_that_of_finite_differences() -> None:
    controller, theta = begun(3)
    generator = torch.Generator().manual_seed(0)
    chosen, drawn, _ = controller.decide(theta, generator)

    def aim(point: Tensor) -> float:
        _, log_probability, entropy = controller.decide(point, chosen=chosen)
        return -float(-1.7 * log_probability + 0.3 * entropy)

    assert torch.isclose(controller.decide(theta, chosen=chosen)[1], drawn)
    gradient = controller.gradient(theta, chosen, -1.7, 0.3)
    for _ in range(5):
        along = torch.randn(len(theta), dtype=theta.dtype, generator=generator)
        slope = (aim(theta + 1e-5 * along) - aim(theta - 1e-5 * along)) / 2e-5
        assert slope == pytest.approx(float(gradient @ along), rel=1e-6)


def test_reinforce_is_the_gradient_of_the_expected_reward_whatever_the_baseline() -> None:
    controller, theta = begun(1)
    heads = [numbered(number, 1) for number in range(6)]
    rewards = torch.randn(6, dtype=theta.dtype, generator=torch.Generator().manual_seed(2))
    point = theta.clone().requires_grad_()
    chances = torch.stack([controller.decide(point, chosen=head)[1].exp() for head in heads])
    assert float(chances.detach().sum()) == pytest.approx(1)
    (expected,) = torch.autograd.grad(-(chances * rewards).sum(), point)
    for baseline in (0.0, 3.0):
        mean = sum(
            chance * controller.gradient(theta, head, float(reward) - baseline, 0.0)
            for chance, head, reward in zip(chances.detach(), heads, rewards, strict=True)
        )
        assert isinstance(mean, Tensor) and torch.allclose(mean, expected, atol=1e-12)


def test_a_decision_that_pays_becomes_likely() -> None:
    controller, theta = begun(1)
    moments, generator, base = torch.zeros(2, len(theta), dtype=theta.dtype), torch.Generator().manual_seed(0), 0.5

    def chance() -> float:
        return sum(float(controller.decide(theta, chosen=[0, 1, skip, 0, 0])[1].exp()) for skip in range(3))

    before = chance()
    for step in range(1, 61):
        chosen, _, _ = controller.decide(theta, generator)
        reward = float(chosen[1])
        adam_step(theta, moments, controller.gradient(theta, chosen, reward - base, 1e-4), step, 0.01)
        base = 0.95 * base + 0.05 * reward
    assert before < 0.6 and chance() > 0.85


# -- runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["loss", "source"])
@pytest.mark.parametrize("objective", [PC, {"name": "proxy_a", "strength": 0.5}, None])
def test_the_reward_is_minus_the_loss_with_or_without_what_the_objective_adds(
    reward: str, objective: Any, data: PreparedData
) -> None:
    record = finish(Trainer(*job_of(data, method(objective, reward=reward), {"epochs": 2})))
    for epoch in record.epochs:
        added = 0.5 * epoch.traces.get("measured.population_correlation", 0.0)
        added += 0.5 * epoch.traces.get("proxy_a_distance", 0.0)
        told = epoch.train_loss["class"] + (added if reward == "loss" else 0.0)
        assert epoch.traces["reward"] == pytest.approx(-told)


def test_rewards_of_predictions_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    logits = {True: rng.normal(size=(7, 3)), False: rng.normal(size=(5, 3))}
    source, target = (np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in logits.values())
    cosines = source @ target.T / np.linalg.norm(source, axis=1)[:, None] / np.linalg.norm(target, axis=1)
    mean = target.mean(0)
    expected = {
        "prediction": cosines.max(1).mean() + cosines.max(0).mean(),
        "information": -(mean * np.log(mean)).sum() + (target * np.log(target)).sum(1).mean(),
    }
    predictions = DomainPredictions()
    for kind, value in expected.items():
        for labelled, rows in logits.items():
            for part in (rows[:2], rows[2:]):
                predictions.add(torch.from_numpy(part), labelled)
        assert predictions.score(kind) == pytest.approx(value, abs=1e-12)
    with pytest.raises(UserError, match="nothing passes the target through the network; add an objective"):
        predictions.score("prediction")  # forgotten


def test_the_last_predictions_of_an_epoch_count() -> None:
    predictions = DomainPredictions()
    old, new = torch.eye(2).repeat(MOST_ROWS // 2, 1), torch.zeros(MOST_ROWS, 2)
    for rows in (old, new):
        predictions.add(rows, labelled=True)
        predictions.add(rows, labelled=False)
    assert predictions.score("information") == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("reward", ["prediction", "information"])
def test_a_reward_of_predictions_is_that_of_the_epoch_and_needs_a_target(reward: str, data: PreparedData) -> None:
    record = finish(Trainer(*job_of(data, method(PC, reward=reward), {"epochs": 2})))
    bounds = {"prediction": (-2.0, 2.0), "information": (0.0, math.log(data.suite.tasks[0].outputs))}
    low, high = bounds[reward]
    assert all(low <= epoch.traces["reward"] <= high for epoch in record.epochs)
    with pytest.raises(UserError, match=f"^aaspc: reward: {reward} needs predictions of both domains"):
        _check(job_of(data, method(None, reward=reward))[0], data.suite, shared=True)


def test_an_epoch_moves_its_head_s_weights_alone_and_the_controller_learns(data: PreparedData) -> None:
    training = {"epochs": 5, "weight_decay": 0.1}
    trainer = Trainer(*job_of(data, method(), training))
    model = trainer.model
    assert isinstance(model, AASPCModule)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    theta = model.theta.clone()
    for _ in trainer.train():
        head = model.head
        used = {id(p) for module in model.supernet.modules_of(head) for p in module.parameters()}
        used |= {id(p) for p in model.encoder.parameters()}
        for name, parameter in model.named_parameters():
            # Its weights may not reach a loss: the shift before a batch normalisation.
            moved = not torch.equal(parameter, before[name])
            assert id(parameter) in used or not moved, name
            assert moved or id(parameter) not in used or "bias" in name, name
        before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not torch.equal(theta, model.theta) and float(model.rewards[1]) == 5


def test_random_search_learns_nothing_and_a_fixed_head_has_its_own_weights_alone(data: PreparedData) -> None:
    trainer = Trainer(*job_of(data, method(search="random")))
    model = trainer.model
    assert isinstance(model, AASPCModule)
    theta = model.theta.clone()
    finish(trainer)
    assert torch.equal(theta, model.theta)
    number = number_of([0, 1, 0, 1, 0, 2, 0, 1])  # x1 = half of x0, x2 = x0; watched 1, classifier 2
    trainer = Trainer(*job_of(data, method(search="fixed", head=number)))
    record = finish(trainer)
    assert isinstance(trainer.model, AASPCModule)
    assert list(trainer.model.supernet.cells) == ["0_4_2", "1_4_4"]
    assert list(trainer.model.supernet.classifiers) == ["1_4"]
    assert record.structure["head_number"] == number
    assert record.structure["head_parameters"] == (4 * 2 + 2 + 4 + 4 * 2) + (4 * 4 + 4 + 8) + (4 * 3 + 3)
    assert record.domains == ["shop", "street"] and set(record.last) == {"val", "test"}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (method(search="fixed", head=288), "head = 288, but 2 cells have 288 heads, from 0"),
        (method(cells=4), "cells"),
        (method(decay=1.5), "decay"),
    ],
)
def test_heads_that_there_are_not(found: dict[str, Any], problem: str, data: PreparedData) -> None:
    with pytest.raises(UserError, match=problem):
        job_of(data, found)


def test_of_several_tasks_there_is_no_head(data: PreparedData) -> None:
    run, _ = job_of(data, method())
    task = data.suite.tasks[0]
    two = replace(data.suite, tasks=(task, replace(task, name="other")))
    with pytest.raises(UserError, match="looks for the head of one task, two_domains has 2"):
        run.parts.architecture.build(two, lambda: run.parts.encoder.build(two), 0.0)


def test_before_anything_starts_it_is_tried_without_values(data: PreparedData) -> None:
    for objective in (PC, "dann", "cdan", {"name": "mmd", "at": "encoder"}):
        _check(job_of(data, method(objective))[0], data.suite, shared=True)


def test_an_exported_model_measures_what_the_run_measured(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    content = {
        "plugins": f"[{', '.join(map(str, PLUGINS))}]",
        "datasets": "[two_domains]",
        "methods": "[{architecture: {name: aaspc, cells: 2, lr: 0.1}, objective: population_correlation}]",
        "model": "{encoder: {name: bottleneck, width: 4}}",
        "training": "{epochs: 3, batch_size: 16, lr: 1e-2}",
    }
    run = finish_in_home(tmp_path, experiment_file(**content))
    model = load_model(export(run.home, run.run_id, tmp_path / "model"), trust_plugins=True)
    assert model.evaluate(run.data.folder) == run.record.metrics["test"]


def test_trials_of_a_transfer_run_one_by_one(data: PreparedData) -> None:
    for found in (method(), method(None), {"name": "coral"}):
        assert "without labels" in str(planning.obstacle(job_of(data, found)[0], data.suite))
