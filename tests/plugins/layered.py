"""A network whose shared layers are modules at which conflicts are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures import Architecture, MultiTaskModule, OptimizerSpec, Phase, StepView, Turn
from mtlscale.balancing.jacobian.conflict_noticed import ConflictNoticed
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import BatchNorm2d, EncoderModule

LAYERS = 3


class LayeredModule(MultiTaskModule):
    def __init__(self, suite: TaskSuite, width: int, norm: bool, noticed: int) -> None:
        super().__init__()
        (size,) = suite.input_shape
        self.noticed = noticed
        self.layers = nn.ModuleList(nn.Linear(size if i == 0 else width, width) for i in range(LAYERS))
        self.norms = nn.ModuleList(BatchNorm2d(width) for _ in range(LAYERS)) if norm else None
        self.heads = nn.ModuleDict({task.name: nn.Linear(width, task.outputs) for task in suite.tasks})

    def forward(self, batch: Batch) -> Outputs:
        features: Tensor = batch.inputs
        for place, layer in enumerate(self.layers):
            features = layer(features)
            if self.norms is not None:
                features = self.norms[place](features[:, :, None, None])[:, :, 0, 0]
            features = features.tanh()
        return Outputs({task: self.heads[task](features) for task in batch.tasks})

    def module_parameters(self, place: int) -> list[nn.Parameter]:
        norm = [] if self.norms is None else list(self.norms[place].parameters())
        return [*self.layers[place].parameters(), *norm]

    def shared_parameters(self) -> list[nn.Parameter]:
        return [p for place in range(LAYERS) for p in self.module_parameters(place)]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [self.module_parameters(place) for place in range(LAYERS)][-self.noticed :]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.heads[task].parameters())


class Layered(Architecture):
    """Three shared layers, a head for each task."""

    name: ClassVar[str] = "layered"
    source: ClassVar[str] = "own example"

    width: int = knob(5, low=1, help="of every layer")
    norm: bool = knob(False, help="batch normalisation after every layer")
    noticed: int = knob(LAYERS, low=1, high=LAYERS, help="the last so many layers are modules")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return LayeredModule(suite, self.width, self.norm, self.noticed)


class TurnsModule(LayeredModule):
    """Its tasks are weighted by a softmax of `logits`, and its shape is told."""

    def __init__(self, suite: TaskSuite, width: int, norm: bool, noticed: int) -> None:
        super().__init__(suite, width, norm, noticed)
        self.logits = nn.Parameter(torch.linspace(-1.0, 1.0, len(suite.tasks)))

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"heads": list(self.heads.parameters()), "layers": self.shared_parameters(), "logits": [self.logits]}

    def task_weights(self) -> Tensor:
        return self.logits.softmax(0) * len(self.logits)

    def structure(self) -> dict[str, Any]:
        return {"stage_parameters": [sum(p.numel() for p in module) for module in self.shared_modules()]}


class LayeredTurns(Layered):
    """Heads, layers and task weights in turns of their own; a record is that of the layers."""

    name: ClassVar[str] = "layered_turns"
    balancer: ClassVar[str] = "conflict_noticed"

    keep: str = knob("layers", help="the turn whose losses a record keeps")

    def phases(self) -> tuple[Phase, ...]:
        sgd = OptimizerSpec(training={"lr": 0.1, "optimizer": "sgd", "momentum": 0.0})
        return (
            Phase(
                main=self.keep,
                turns=(
                    Turn(name="logits", groups=("logits",), share="second", balancer=Equal(), optimizer=sgd),
                    Turn(name="heads", groups=("heads",), share="first", balancer=ConflictNoticed(conflict="none")),
                    Turn(name="layers", groups=("layers",), share="first"),
                ),
            ),
        )

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return TurnsModule(suite, self.width, self.norm, self.noticed)


class WatchedModule(LayeredModule):
    """It keeps every table of affinities."""

    def __init__(self, suite: TaskSuite, width: int, norm: bool, noticed: int, dropout: float, every: int) -> None:
        super().__init__(suite, width, norm, noticed)
        self.every, self.tables = every, list[Tensor]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch) -> Outputs:
        return super().forward(replace(batch, samples=replace(batch.samples, inputs=self.dropout(batch.inputs))))

    def before_step(self, step: StepView) -> None:
        if self.every and step.main and step.number % self.every == 0:
            self.tables.append(step.affinity())


class Watched(Layered):
    """Three layers, and how tasks help each other every so many steps."""

    name: ClassVar[str] = "watched"

    every: int = knob(2, low=0, help="steps")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return WatchedModule(suite, self.width, self.norm, self.noticed, dropout, self.every)
