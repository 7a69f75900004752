"""TOMATO: topics that the input is softly assigned to, and a module per topic and task close to a common one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, linear_head, of_vectors
from mtlscale.architectures.towers import common_outputs, parallel, uniform
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import Dropout, EncoderModule

# Scale of the initial θˢ, as in the authors' code: small beside θ⁰, but not 0, so that topics differ at once.
SPECIAL_SCALE = 0.01


class TomatoModule(MultiTaskModule):
    """The network f(x, t) = Σ_k h_k(x) g(φ(x); θ⁰ + θˢ_kt).

    If there is a task layer, a linear head per task follows. `widths` are the sizes of g from features to output. θ is
    the concatenation of g's weights and biases layer by layer, P numbers; `sizes` has the number of entries of each
    tensor.
    """

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, topics: int, widths: Sequence[int], heads: bool, dropout: float
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder
        self.topic = nn.Linear(encoder.features, topics)

        self.layers = list(itertools.pairwise(widths))
        self.sizes = [size for i, o in self.layers for size in (i * o, o)]
        self.base = nn.Parameter(torch.cat([uniform(i, size) for i, o in self.layers for size in (i * o, o)]))

        # One parameter per task, which that task's loss alone moves.
        self.special = nn.ParameterList(
            torch.randn(topics, len(self.base)) * SPECIAL_SCALE for _ in suite.tasks
        )  # [K, P] each

        self.dropout = Dropout(dropout)
        self.heads = nn.ModuleList(linear_head(widths[-1], task, dropout) for task in suite.tasks if heads)

    def topics(self, features: Tensor) -> Tensor:
        """Return the topic weights [B, K] of features [B, F], which sum to one."""
        weights: Tensor = self.topic(features).softmax(-1)
        return weights

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        index = [self.names.index(task) for task in batch.tasks]
        theta = self.base + torch.stack([self.special[i] for i in index])
        mixed = self.mixture(features, theta)
        predictions = {
            task: self.heads[i](value) if len(self.heads) else value
            for task, i, value in zip(batch.tasks, index, mixed.unbind(), strict=True)
        }
        return Outputs(predictions)

    def mixture(self, features: Tensor, theta: Tensor) -> Tensor:
        """Return the mean over topics of the modules' outputs [T, B, O], of features [B, F] and θ [T, K, P]."""
        tasks, topics, _ = theta.shape
        parts = theta.flatten(0, 1).split(self.sizes, -1)
        hidden = features
        for layer, (inputs, outputs) in enumerate(self.layers):
            is_last = layer == len(self.layers) - 1
            if is_last and not len(self.heads):
                hidden = self.dropout(hidden)
            hidden = parallel(hidden, parts[2 * layer].view(-1, inputs, outputs), parts[2 * layer + 1])
            if not is_last or len(self.heads):
                hidden = hidden.relu()
        return torch.einsum("tkbo,bk->tbo", hidden.unflatten(0, (tasks, topics)), self.topics(features))

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.topic.parameters(), self.base]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        heads = self.heads[index].parameters() if len(self.heads) else ()
        return [self.special[index], *heads]


class Tomato(Architecture):
    """TOMATO's network: the encoder is the bottom; topic weights mix one module per topic, θ⁰ + θˢ_kt for each task.

    The objectives `tomato_el` and `tomato_ex` make θˢ sparse. With a task layer every layer of the modules has an
    activation and a linear head per task follows; without one, their last layer is linear and predicts. The paper's m =
    1 is `layers: 1` with a task layer, its m = 2 `layers: 2` without; `m`, which a search may choose, says both.
    Equation 7 prints an activation on the last layer, too; the authors' code has none.
    """

    name: ClassVar[str] = "tomato"
    source: ClassVar[str] = "Zhang & Lee, CIKM 2020, eq. 4-8"
    batchable: ClassVar[bool] = True

    topics: int = knob(4, low=1, search=(1, 2, 4, 8, 16), help="number of topics K")
    layers: int = knob(1, choices=(1, 2), help="layers of a topic-task module")
    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the modules' hidden layers")
    task_layer: bool = knob(True, help="a linear head per task after the mixture")
    m: int | None = knob(
        None, choices=(None, 1, 2), later=True, help="the paper's m, in place of layers and task_layer; none: these"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m is not None and (self.layers, self.task_layer) != (1, True):
            raise UserError(f"tomato: m = {self.m} says layers and task_layer; drop these two, or m")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        bottom = of_vectors(encoder(), self.name)
        task_layer = self.task_layer and self.m != 2
        hidden = [self.top] * self.layers  # m = 2 has one, too, before its linear layer
        if not self.task_layer:
            hidden.pop()
        last = [] if task_layer else [common_outputs("tomato without a task layer", suite.tasks)]
        return TomatoModule(suite, bottom, self.topics, [bottom.features, *hidden, *last], task_layer, dropout)
