"""A component of a plugin that declares itself batchable and is not, is refused by its name; an honest one passes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtlscale.batched import declared
from mtlscale.batched.eligibility import planning
from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.config import Run, UserError, load_experiment, load_plugin, trials
from mtlscale.config.registry import components
from mtlscale.data import PreparedData
from mtlscale.training import train

Runs = Callable[..., list[Run]]

HEAD = """
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.architectures.hard.hps import HPS, HPSModule
from mtlscale.balancing import Balancer
from mtlscale.balancing.gramian.mgda import MGDA
from mtlscale.encoders.table.mlp import MLP
from mtlscale.objectives.penalties.tomato_ex import TomatoEx
from mtlscale.config import knob
"""

ARCHITECTURE = """
class Module(HPSModule):
    {body}

class OwnNetwork(HPS):
    name: ClassVar[str] = "own_network"
    batchable: ClassVar[bool] = True

    def build(self, suite, encoder, dropout):
        return Module(suite, encoder(), dropout)
"""

NETWORKS = {
    "moves parameters by itself": """
    def after_step(self, lr, sum):
        with torch.no_grad():
            self.shared_parameters()[0].mul_(0.99)
""",
    "changes when an epoch ends": """
    def on_epoch_end(self, epoch):
        for p in self.shared_parameters():
            p.requires_grad_(False).mul_(0.5).requires_grad_(True)
""",
    "is fitted before the first step": """
    def from_data(self, targets):
        for p in self.shared_parameters():
            p.data += 0.1
""",
    "counts its steps": """
    def __init__(self, *given):
        super().__init__(*given)
        self.register_buffer("steps", torch.zeros(()))

    def after_step(self, lr, sum):
        self.steps += 1
""",
    "remembers batches": """
    def __init__(self, *given):
        super().__init__(*given)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, batch):
        self.mean += batch.inputs.mean() * self.shared_parameters()[0].mean()
        return super().forward(batch)
""",
    "branches on numbers": """
    def forward(self, batch):
        outputs = super().forward(batch)
        if self.shared_parameters()[0].sum() > 0:
            outputs.predictions = {name: 2 * value for name, value in outputs.predictions.items()}
        return outputs
""",
    "has something to tell of every epoch": """
    def traces(self):
        return {"norm": float(self.shared_parameters()[0].detach().norm())}
""",
}

BALANCER = """
class OwnWeights(Balancer):
    name: ClassVar[str] = "own_weights"
    needs: ClassVar[str] = "{needs}"
    batchable: ClassVar[bool] = True
    heads: ClassVar[str] = "mean"
    sharpness: float = knob(1.0, low=0)

    def init(self, tasks, *, seed=0, batch=()):
        return {{"seen": torch.zeros(batch, dtype=torch.float64)}}

    def __call__(self, losses, gramian, state):
        {body}

    def on_epoch_end(self, losses, state):
        {after}
"""

AFTER = 'return {"seen": state["seen"] + losses.nan_to_num().sum(-1)}'
HONEST = 'return torch.softmax(self.sharpness * losses, -1), {"seen": state["seen"] + 1}'
BALANCERS = {
    "mixes trials": ("losses", "return losses / losses.mean(), state", AFTER),
    "mixes trials in its state": ("losses", 'return losses, {"seen": state["seen"] + losses.sum()}', AFTER),
    "mixes trials when an epoch ends": ("losses", HONEST, 'return {"seen": state["seen"] + losses.nan_to_num().sum()}'),
    "knows one Gramian": ("gramian", "return gramian.reshape(-1, 3, 3)[0].diagonal(), state", AFTER),
    "asks for a number": ("losses", "return losses / float(losses.sum()), state", AFTER),
    "takes the last trial's": ("gramian", "return torch.ones_like(losses) * gramian.flatten()[-1], state", AFTER),
}


@pytest.fixture(autouse=True)
def no_plugins_left() -> Iterator[None]:
    before = {kind: dict(found) for kind, found in components._PLUGINS.items()}
    yield
    for kind, found in before.items():
        components._PLUGINS[kind].clear()
        components._PLUGINS[kind].update(found)


@pytest.fixture
def runs_of(tmp_path: Path, experiment_file: Callable[..., Path], uneven: Callable[..., PreparedData]) -> Runs:
    """The trials of a method, some of it from a plugin with this text."""

    def make(text: str, method: str, space: str = "training.lr: [0.1, 0.2, 0.3]", **lines: str) -> list[Run]:
        plugin = tmp_path / "own.py"
        plugin.write_text(HEAD + text)
        load_plugin(plugin)
        path = experiment_file(
            methods=f"[{{{method}, label: own}}]",
            search=f"{{budget: 3, algorithm: grid, space: {{{space}}}, methods: {{own: {{}}}}}}",
            **lines,
        )
        experiment = load_experiment(path)
        (base,) = experiment.bases(dict.fromkeys(experiment.data(), uneven().manifest.fingerprint))
        assert experiment.search is not None
        runs = trials(experiment.search, base)
        assert planning.obstacle(runs[0], uneven().suite) is None, "it is taken at its word"
        return runs

    return make


def refused(runs: list[Run], data: PreparedData, component: str) -> None:
    with pytest.raises(UserError, match=f"^{component} declares itself batchable, but") as caught:
        BatchedTrainer(runs, data)
    assert "\n" not in str(caught.value)
    assert re.search("set its batchable to False$", str(caught.value))


@pytest.mark.parametrize("lie", NETWORKS)
def test_an_architecture_that_is_not_batchable_is_refused(
    lie: str, runs_of: Runs, uneven: Callable[..., PreparedData]
) -> None:
    runs = runs_of(ARCHITECTURE.format(body=NETWORKS[lie]), "architecture: own_network, balancer: mgda")
    refused(runs, uneven(), "architecture own_network")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("lie", BALANCERS)
def test_a_balancer_that_is_not_batchable_is_refused(
    lie: str, shared: bool, runs_of: Runs, uneven: Callable[..., PreparedData]
) -> None:
    needs, body, after = BALANCERS[lie]
    text = BALANCER.format(needs=needs, body=body, after=after)
    options = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
    runs = runs_of(text, "architecture: hps, balancer: own_weights", datasets=options)
    refused(runs, uneven(shared=shared), "balancer own_weights")


def test_a_balancer_that_knows_its_knob_as_a_number_alone_is_refused(
    runs_of: Runs, uneven: Callable[..., PreparedData]
) -> None:
    """A trial is tried beside one with other knobs: where all are alike, knobs are no tensors and this table works."""
    table = "return torch.softmax({0.5: 9.0}.get(self.sharpness, 0.0) * losses, -1), state"
    text = BALANCER.format(needs="losses", body=table, after=AFTER)
    runs = runs_of(text, "architecture: hps, balancer: own_weights", "balancer.sharpness: [0.5, 1.0, 2.0]")
    refused(runs, uneven(), "balancer own_weights")


def test_where_all_comes_from_a_plugin_the_one_that_lies_is_named(
    runs_of: Runs, uneven: Callable[..., PreparedData]
) -> None:
    network = ARCHITECTURE.format(body="pass")
    lie = BALANCER.format(needs="losses", body="return losses / losses.mean(), state", after=AFTER)
    refused(
        runs_of(network + lie, "architecture: own_network, balancer: own_weights"), uneven(), "balancer own_weights"
    )
    network = ARCHITECTURE.format(body=NETWORKS["moves parameters by itself"])
    honest = BALANCER.format(needs="losses", body=HONEST, after=AFTER)
    runs = runs_of(network + honest, "architecture: own_network, balancer: own_weights")
    refused(runs, uneven(), "architecture own_network")


def test_an_objective_that_is_more_than_a_proximal_step_is_refused(
    runs_of: Runs, uneven: Callable[..., PreparedData]
) -> None:
    text = """
class Own(TomatoEx):
    name: ClassVar[str] = "own_objective"

    def build(self, suite, model):
        built = super().build(suite, model)
        built.penalty = lambda: sum(p.square().sum() for p in model.shared_parameters())
        return built
"""
    method = "architecture: {name: tomato, topics: 2, top: 4}, balancer: equal, objective: own_objective"
    runs = runs_of(text, method, training="{epochs: 2, batch_size: 16, optimizer: sgd}")
    refused(runs, uneven(), "objective own_objective")


def test_an_encoder_that_is_not_batchable_is_refused(runs_of: Runs, uneven: Callable[..., PreparedData]) -> None:
    text = """
class Own(MLP):
    name: ClassVar[str] = "own_encoder"

    def build(self, suite):
        built = super().build(suite)
        built.register_forward_hook(lambda module, inputs, output: output * float(output.detach().mean()))
        return built
"""
    runs = runs_of(text, "name: equal", model="{encoder: {name: own_encoder, hidden: [8]}, dropout: 0.1}")
    refused(runs, uneven(), "encoder own_encoder")


@pytest.mark.parametrize("space", ["training.lr: [0.01, 0.02, 0.03]", "balancer.sharpness: [0.5, 1.0, 2.0]"])
def test_honest_components_pass_and_end_as_alone(
    space: str, runs_of: Runs, uneven: Callable[..., PreparedData]
) -> None:
    text = ARCHITECTURE.format(body="pass") + BALANCER.format(needs="losses", body=HONEST, after=AFTER)
    lines = {"model": "{encoder: {name: mlp, hidden: [8]}, dropout: 0.2}"}
    runs = runs_of(text, "architecture: own_network, balancer: own_weights", space, **lines)
    trainer = BatchedTrainer(runs, uneven())
    records = {event[0].run_id: event[1] for event in trainer.train() if not isinstance(event, int)}
    for run in runs:
        alone = train(run, uneven())
        assert records[run.run_id].epochs[-1].train_loss == pytest.approx(alone.epochs[-1].train_loss, rel=1e-9)
    BatchedTrainer(runs[:1], uneven())


def test_what_is_shipped_is_not_tried(
    runs_of: Runs, uneven: Callable[..., PreparedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_of(ARCHITECTURE.format(body="pass"), "name: mgda")

    def tried(*_: object) -> None:
        raise AssertionError("a step was taken for nothing")

    monkeypatch.setattr(declared, "_difference", tried)
    BatchedTrainer(runs, uneven())
