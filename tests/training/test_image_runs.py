"""Whole runs on images: every architecture learns, workers don't matter, cut-off runs go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mtlscale.architectures import channels_last
from mtlscale.config import Experiment, Run, UserError, load_plugin
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer, train

PLUGIN = Path(__file__).parents[1] / "plugins" / "shapes.py"
Small = Callable[..., Experiment]
Shapes = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

FACES = "{encoder: {name: resnet18, width: 4, stem: small}}"
MAPS = "{encoder: {name: deeplab_resnet18, width: 4, stem: small, head_width: 4, rates: [1, 2]}}"
OPTIONS = {"cgc": ", top: 4", "mmoe": ", top: 4", "ple": ", top: 4", "tsn": ", top: 8", "afa": ", reduction: 2"}
NETWORKS = ("stl", "hps", "cross_stitch", "mtan", "nddr_cnn", "afa", "rotograd", "maxroam", "tsn", "mmoe", "cgc", "ple")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Shapes:
    """The small image set, prepared and read."""
    load_plugin(PLUGIN)
    home = tmp_path_factory.mktemp("home")

    def load(maps: bool, size: int = 8) -> PreparedData:
        return load_prepared(prepare("shapes", {"maps": maps, "size": size}, None, home))

    return load


@pytest.fixture
def make(small: Small, shapes: Shapes, run_of: RunOf) -> Callable[..., tuple[Run, PreparedData]]:
    """A run of one method on the image set, and its data."""

    def run(method: str, maps: bool, training: str, size: int = 8, **lines: str) -> tuple[Run, PreparedData]:
        data = shapes(maps, size)
        dataset = f"[{{name: shapes, options: {{maps: {str(maps).lower()}, size: {size}}}}}]"
        given = {"model": MAPS if maps else FACES, **lines}
        methods = f"[{{name: {method}{OPTIONS.get(method, '')}}}]"
        experiment = small(
            plugins=f"[{PLUGIN}]", datasets=dataset, methods=methods, training=f"{{{training}}}", **given
        )
        return run_of(experiment, data), data

    return run


# What the default suite asks, with labels and with maps; the others go through the same stages.
USUAL = {False: ("hps", "mtan", "afa", "rotograd", "maxroam", "tsn"), True: ("hps", "nddr_cnn", "rotograd")}


@pytest.mark.parametrize(
    ("method", "maps"),
    [
        pytest.param(method, maps, marks=() if method in USUAL[maps] else pytest.mark.slow)
        for method in NETWORKS
        for maps in (False, True)
    ],
)
def test_every_architecture_learns(method: str, maps: bool, make: Any) -> None:
    run, data = make(method, maps, "epochs: 8, evaluate_every: 8, batch_size: 8, lr: 1e-2, eval_batch_size: 8")
    record = train(run, data)
    assert record.status == "finished", record.error
    losses = [sum(epoch.train_loss.values()) for epoch in record.epochs]
    assert min(losses[1:]) < 0.9 * losses[0]
    if maps:
        assert set(record.metrics["test"]["kind"]) == {"miou", "pixel_accuracy", "loss"}
        assert 0 <= record.metrics["test"]["normals"]["angle_median"] <= 180


EXACT = "epochs: 1, batch_size: 8, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9"


def test_channels_last_is_another_layout_of_the_same_numbers(make: Any) -> None:
    states = []
    for more in ("", ", channels_last: true"):
        run, data = make("hps", True, EXACT + more)
        trainer = Trainer(run, data)
        for _ in trainer.train():
            pass
        states.append(trainer.model.state_dict())
    assert trainer.model.encoder.stages[1][0].conv1.weight.is_contiguous(memory_format=torch.channels_last)
    for key, value in states[0].items():
        torch.testing.assert_close(states[1][key], value, rtol=1e-8, atol=1e-10)


def test_rotograd_refuses_what_takes_its_gradients_apart(make: Any) -> None:
    run, data = make("rotograd", False, "epochs: 1, batch_size: 8, accumulate: 2")
    with pytest.raises(UserError, match="set accumulate to 1"):
        train(run, data)
    spec = {**run.spec, "balancer": {"name": "pcgrad", "results_version": 1}}
    with pytest.raises(UserError, match="instead of pcgrad"):
        Trainer(run.model_copy(update={"spec": spec}), data)


@pytest.mark.parametrize(("width", "last"), [(4, False), (8, True)])
def test_narrow_strided_convolutions_keep_their_layout(width: int, last: bool) -> None:
    """oneDNN writes beyond its memory in their backward pass where a processor has AVX2 alone."""
    model = nn.Sequential(nn.Conv2d(3, width, 3), nn.Conv2d(width, 2 * width, 1, stride=2))
    channels_last(model)
    assert model[1].weight.is_contiguous(memory_format=torch.channels_last)  # of one pixel: both layouts are one
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last) == last
    model(torch.randn(2, 3, 9, 9)).sum().backward()
