"""Hooks: whoever takes part in training has all of them, and those that it does not override do nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mtlscale.architectures import EpochView, Hooks, MultiTaskModule, NetworkSource, StepView
from mtlscale.config import Experiment
from mtlscale.data import PreparedData
from mtlscale.objectives import ObjectiveModule
from mtlscale.training import SupervisedSource, Trainer

HOOKS = [name for name in vars(Hooks) if not name.startswith("_")]


def test_a_network_an_objective_and_a_source_have_the_same_hooks() -> None:
    for kind in (MultiTaskModule, ObjectiveModule, NetworkSource, SupervisedSource):
        assert issubclass(kind, Hooks)
        assert [name for name in HOOKS if getattr(kind, name) is not getattr(Hooks, name)] == []


def test_the_contract_of_a_network_beside_the_hooks() -> None:
    own = {name for name in (*vars(MultiTaskModule), *MultiTaskModule.__annotations__) if not name.startswith("_")}
    assert own == {
        "forward", "shared_parameters", "shared_modules", "task_parameters", "groups", "traces", "structure",
        "phase_output", "independent", "vectorised",
        # of few
        "sources", "joint_backward", "reads_other_tasks", "needs_target", "grid", "prefer", "representation_sizes",
        "extra_parameter_count", "memory_state", "load_memory_state",
    }  # fmt: skip


def test_a_hook_that_is_not_overridden_does_nothing() -> None:
    bare, epoch = Hooks(), EpochView(1)
    assert bare.penalty() is None and bare.task_weights() is None
    bare.before_step(StepView())
    bare.on_epoch_begin(epoch)
    bare.on_epoch_end(epoch)
    with pytest.raises(RuntimeError, match="no training behind it"):
        epoch.split_losses("val")


NETWORK = """
from typing import Any
from typing import ClassVar

import torch

from mtlscale.architectures.hard.hps import HPS, HPSModule

class Module(HPSModule):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls: list[str] = []
        self.epochs: list[Any] = []

    def from_data(self, data): self.calls.append(f"from_data {len(data.targets())}")
    def on_epoch_begin(self, epoch):
        self.calls.append(f"on_epoch_begin {epoch.number} of {epoch.epochs}")
    def before_step(self, step): self.calls.append(f"before_step {step.number} {step.main} {list(step.turns)}")
    def on_gradients(self): self.calls.append(f"on_gradients {all(p.grad is not None for p in self.parameters())}")
    def discard_step(self): self.calls.append("discard_step")
    def after_step(self, lr, sum): self.calls.append(f"after_step {lr} {float(sum(torch.ones(())))}")
    def on_epoch_end(self, epoch):
        self.calls.append(f"on_epoch_end {torch.is_grad_enabled()} {sorted(epoch.losses)}")
        rows = {task: 0 for task in self.names}
        for batch, outputs in epoch.outputs():
            assert not self.training and not next(iter(outputs.predictions.values())).requires_grad
            for task in batch.tasks:
                rows[task] += len(batch.samples.inputs)
        self.epochs.append(rows)
    def before_evaluation(self, epoch): self.calls.append(f"before_evaluation {sorted(epoch.split_losses('val'))}")
    def after_training(self, train, sum): self.calls.append("after_training")
    FAULT

class OwnNetwork(HPS):
    name: ClassVar[str] = "own_network"

    def build(self, suite, encoder, dropout):
        return Module(suite, encoder(), dropout)
"""


@pytest.fixture
def trainer(
    tmp_path: Path, small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Any
) -> Callable[..., Trainer]:
    def make(fault: str = "") -> Trainer:
        plugin = tmp_path / "own_network.py"
        plugin.write_text(NETWORK.replace("    FAULT\n", fault), encoding="utf-8")
        experiment = small(
            plugins=f"[{Path(__file__).parents[1] / 'plugins' / 'uneven.py'}, {plugin}]",
            methods="[own_network]",
            training="{epochs: 2, batch_size: 64, lr: 0.5, evaluate_every: 2}",
        )
        data = uneven()
        return Trainer(run_of(experiment, data), data)

    return make


def test_hooks_are_called_in_their_order(trainer: Callable[..., Trainer]) -> None:
    run = trainer()
    model: Any = run.model
    list(run.train())
    steps = run.session.main.sampler.steps

    def step(number: int) -> list[str]:
        return [f"before_step {number} True ['main']", "on_gradients True", "after_step 0.5 1.0"]

    names = [task.name for task in run.suite.tasks]
    expected = [f"from_data {len(names)}"]
    for epoch in (1, 2):
        expected.append(f"on_epoch_begin {epoch} of 2")
        for number in range((epoch - 1) * steps, epoch * steps):
            expected += step(number)
        expected.append(f"on_epoch_end False {sorted(names)}")
    assert model.calls == [*expected, f"before_evaluation {sorted(names)}", "after_training"]
    assert model.epochs == 2 * [{name: run.batches.sizes[name] for name in names}]
    assert torch.is_grad_enabled()
