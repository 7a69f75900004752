from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtlscale.architectures.hard.tomato import TomatoModule
from mtlscale.config import TaskSuite, UserError, load_experiment
from mtlscale.config.registry import components
from mtlscale.config.search.trials import trials
from mtlscale.data import Batch

Build = Callable[..., Any]
MakeBatch = Callable[..., Batch]


def parts(model: TomatoModule, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of each layer of one module."""
    flat, layers = list(theta.split(model.sizes)), []
    for inputs, outputs in model.layers:
        layers.append((flat.pop(0).view(inputs, outputs), flat.pop(0)))
    return layers


@pytest.mark.parametrize(("layers", "task_layer"), [(1, True), (2, False), (2, True), (1, False)])
def test_the_mixture_is_the_sum_over_topics_written_out(
    layers: int, task_layer: bool, build: Build, batch: MakeBatch
) -> None:
    model = build("tomato", topics=3, top=4, layers=layers, task_layer=task_layer)
    for special in model.special:
        special.data.normal_(std=0.5)
    given = batch()
    features = model.encoder(given.inputs)
    weights = model.topics(features)
    for task, prediction in model(given).predictions.items():
        index = "abc".index(task)
        mixed = torch.zeros(())
        for topic in range(3):
            hidden = features
            pairs = parts(model, model.base + model.special[index][topic])
            for layer, (weight, bias) in enumerate(pairs):
                hidden = hidden @ weight + bias
                if layer < len(pairs) - 1 or task_layer:
                    hidden = hidden.relu()
            mixed = mixed + weights[:, topic, None] * hidden
        expected = model.heads[index](mixed) if task_layer else mixed
        torch.testing.assert_close(prediction, expected, rtol=1e-12, atol=1e-14)


def test_topic_weights_sum_to_one(build: Build, batch: MakeBatch) -> None:
    model = build("tomato", topics=5)
    weights = model.topics(model.encoder(batch().inputs))
    assert weights.shape == (9, 5) and bool((weights > 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(9))


def test_without_deviations_all_tasks_are_one_function_whatever_the_topics(build: Build, batch: MakeBatch) -> None:
    model = build("tomato", topics=3, layers=2, task_layer=False)
    for special in model.special:
        special.data.zero_()
    before = model(batch()).predictions
    assert torch.equal(before["a"], before["b"]) and torch.equal(before["a"], before["c"])
    nn.init.normal_(model.topic.weight)
    torch.testing.assert_close(model(batch()).predictions["a"], before["a"], rtol=1e-12, atol=1e-14)


def test_with_one_topic_the_topic_module_does_not_matter(build: Build, batch: MakeBatch) -> None:
    model = build("tomato", topics=1)
    before = model(batch()).predictions["b"]
    nn.init.normal_(model.topic.weight)
    assert torch.equal(model(batch()).predictions["b"], before)


def test_the_gradient_of_the_common_module_is_the_sum_over_all_deviations(build: Build, batch: MakeBatch) -> None:
    model = build("tomato", topics=3, layers=2, task_layer=False)
    sum(p.square().sum() for p in model(batch()).predictions.values()).backward()
    total = sum(special.grad.sum(0) for special in model.special)
    torch.testing.assert_close(model.base.grad, total, rtol=1e-12, atol=1e-14)


def test_tasks_of_different_size_need_a_task_layer(suite: TaskSuite) -> None:
    tasks = (replace(suite.tasks[0], outputs=2), *suite.tasks[1:])
    uneven = replace(suite, tasks=tasks)
    encoder = components.build("encoders", "mlp", {})
    for name, options in (("tomato", {"task_layer": False}), ("single", {})):
        with pytest.raises(UserError, match="predictions of one size, but a has 2 and b 4"):
            components.build("architectures", name, options).build(uneven, lambda: encoder.build(uneven), 0.0)
    components.build("architectures", "tomato").build(uneven, lambda: encoder.build(uneven), 0.0)


@pytest.mark.parametrize(("m", "options"), [(1, {}), (2, {"layers": 2, "task_layer": False})])
def test_m_is_that_of_the_paper(m: int, options: dict[str, Any], build: Build, batch: MakeBatch) -> None:
    torch.manual_seed(0)
    ours = build("tomato", topics=3, **options)
    torch.manual_seed(0)
    printed = build("tomato", topics=3, m=m)
    for task, expected in ours(batch()).predictions.items():
        assert torch.equal(printed(batch()).predictions[task], expected)


def test_m_beside_what_it_says_is_refused(tmp_path: Path) -> None:
    """Alone, and as a point of a grid."""
    for options in ({"layers": 2}, {"task_layer": False}):
        with pytest.raises(UserError, match="m = 2 says layers and task_layer; drop these two, or m"):
            components.build("architectures", "tomato", {"m": 2, **options})
    file = tmp_path / "grid.yaml"
    file.write_text("""
name: grid
datasets: [digits]
methods: [{name: tomato_el, architecture: {name: tomato, layers: 2}}]
seeds: [0]
model: {encoder: mlp}
training: {optimizer: sgd}
search: {algorithm: grid, budget: 2, space: {}, methods: {tomato_el: {architecture.m: [1, 2]}}}
""")
    with pytest.raises(UserError, match="m = 1 says layers and task_layer; drop these two, or m"):
        load_experiment(file)


@pytest.mark.parametrize("name", ["tomato_table3_full", "tomato_table4_full"])
def test_the_whole_grid_is_the_papers(name: str) -> None:
    """Points for each: 4 rates, 2 x 2 decays, 4 of λ0, 5 widths of tops; TOMATO: 5 topics, 2 layers, 6 of λ."""
    experiment = load_experiment(name)
    assert experiment.search is not None
    dataset = experiment.datasets[0].label
    points = {
        run.method: trials(experiment.search, run)
        for run in experiment.bases(defaultdict(lambda: "f00d"))
        if run.method in ("separate", "tomato_el") and run.dataset == dataset
    }
    assert {label: len(found) for label, found in points.items()} == {"separate": 320, "tomato_el": 19200}
    decays = {run.spec["training"]["weight_decay"] for run in points["separate"]}
    assert decays == {0, 0.02, 0.2, 2}  # twice λ0, whose penalty has no factor of a half


@pytest.mark.parametrize("topics", [0, -1])
def test_topics_out_of_range(topics: int) -> None:
    with pytest.raises(UserError, match=rf"tomato: topics = {topics} is outside \[1, ∞\)"):
        components.build("architectures", "tomato", {"topics": topics})
