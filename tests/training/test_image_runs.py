"""Whole runs on images: every architecture learns, workers don't matter, cut-off runs go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from two_workers import two_workers

from mtlscale.data import Workers
from mtlscale.data.prepared import PreparedData, load_prepared
from mtlscale.execution.prepare import prepare
from mtlscale.spec import Experiment, Run, UserError, load_plugin
from mtlscale.training import ItemBootstrap, Trainer, train

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


@pytest.mark.parametrize("maps", [False, True], ids=["labels", "maps"])
@pytest.mark.parametrize("method", NETWORKS)
def test_every_architecture_learns(method: str, maps: bool, make: Any) -> None:
    run, data = make(method, maps, "epochs: 8, batch_size: 8, lr: 1e-2, eval_batch_size: 8")
    record = train(run, data)
    assert record.status == "finished", record.error
    losses = [sum(epoch.train_loss.values()) for epoch in record.epochs]
    assert min(losses[1:]) < 0.9 * losses[0]
    if maps:
        assert set(record.metrics["test"]["kind"]) == {"miou", "pixel_accuracy", "loss"}
        assert 0 <= record.metrics["test"]["normals"]["angle_median"] <= 180


EXACT = "epochs: 1, batch_size: 8, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9"


def _trained(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Tensor]:
    run, data = job
    trainer = Trainer(run, data, workers=workers)
    for _ in trainer.train():
        pass
    state = dict(trainer.model.state_dict())
    # Figures of the split, too: the same whoever computed them.
    items = ItemBootstrap(data.suite, 1, torch.device("cpu"))
    for task, values in trainer.evaluate("test", items).items():
        for metric, value in values.items():
            state[f"{task}.{metric}"] = torch.tensor(value, dtype=torch.float64)
    (errors,) = items.results(workers)
    assert errors is not None
    for task, error in errors.errors.items():
        state[f"{task} over items"] = torch.tensor(error, dtype=torch.float64)
    assert bool(errors.means) == (len({task.metrics[0] for task in data.suite.tasks}) == 1)
    return state


@pytest.mark.slow  # frozen runs of two workers on images are in the default suite
def test_two_workers_end_with_the_parameters_of_one(make: Any) -> None:
    """Workers do not matter with batch normalisation: four steps in float64, the last batch has one sample,
    so one worker has none; running statistics included."""
    cases = [("hps", False), ("pcgrad", True), ("mtan", True), ("stl", False), ("rotograd", False), ("mgda_ub", False)]
    cases += [("conal", True), ("conal_pro", False)]
    jobs = [make(method, maps, EXACT + ", augment: scale_crop" * maps) for method, maps in cases]
    for (method, _), job, found in zip(cases, jobs, two_workers(_trained, jobs)[0], strict=True):
        one = _trained(job, Workers())
        assert one.keys() == found.keys()
        for key, value in one.items():
            error = (value - found[key]).double().norm() / value.double().norm().clamp(min=1e-12)
            assert error <= 1e-9, f"{method}: {key} differs by {error:.1e}"


@pytest.mark.parametrize("method", ["rotograd", "maxroam", "hps"])
def test_a_run_cut_off_ends_as_if_it_had_not_been(method: str, make: Any, tmp_path: Path) -> None:
    training = "epochs: 3, batch_size: 8, lr: 1e-2, checkpoint_seconds: 0, augment: scale_crop"
    run, data = make(method, method == "hps", training)
    whole = Trainer(run, data)
    for _ in whole.train():
        pass
    list(itertools.islice(Trainer(run, data, folder=tmp_path).train(), 2))
    resumed = Trainer(run, data, folder=tmp_path)
    assert resumed.at.epoch == 0
    for _ in resumed.train():
        pass
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[key]), key


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
