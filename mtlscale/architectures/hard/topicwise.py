"""Topic-wise: any architecture, once per topic, on a shared bottom; the input mixes the topics' predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, of_vectors
from mtlscale.architectures.hooks import EpochView
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.config.registry import components
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class HiddenLayer(EncoderModule):
    """The encoder that each topic's architecture builds on: one hidden layer on the bottom's features."""

    vectorised = True

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        self.features = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.layer(inputs).relu()
        return features


class TopicwiseModule(MultiTaskModule):
    """The shared bottom with a network per topic, whose predictions are mixed by topic weights of the input."""

    def __init__(self, bottom: EncoderModule, topics: list[MultiTaskModule]) -> None:
        super().__init__()
        self.encoder = bottom
        self.topic = nn.Linear(bottom.features, len(topics))
        self.within = nn.ModuleList(topics)

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        weights = self.topic(features).softmax(-1)
        inner = replace(batch, samples=replace(batch.samples, inputs=features))
        topics = [module(inner).predictions for module in self.within]
        return Outputs(
            {
                task: torch.einsum("kb...,bk->b...", torch.stack([topic[task] for topic in topics]), weights)
                for task in batch.tasks
            }
        )

    def on_epoch_end(self, epoch: EpochView) -> None:
        for module in self.within:
            module.on_epoch_end(epoch)  # type: ignore[operator]

    def shared_parameters(self) -> list[nn.Parameter]:
        within = [p for module in self.within for p in module.shared_parameters()]  # type: ignore[operator]
        return [*self.encoder.parameters(), *self.topic.parameters(), *within]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [p for module in self.within for p in module.task_parameters(task)]  # type: ignore[operator]


class Topicwise(Architecture):
    """Topic-wise extension of any architecture: the encoder is the bottom; each topic has a whole `within` on it.

    The encoder of the inner architecture is one hidden layer of `width`: with `within: stl` every topic and task has a
    module of its own, with `within: hps` the tasks of a topic share one. Predictions (logits) are mixed.
    """

    name: ClassVar[str] = "topicwise"
    source: ClassVar[str] = "Zhang & Lee, CIKM 2020, §3: topic-wise extension of within-topic designs"

    topics: int = knob(4, low=1, search=(1, 2, 4, 8, 16), help="number of topics K")
    within: str = knob("hps", help="architecture of each topic")
    options: dict[str, Any] = knob({}, help="its options")
    width: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="size of the hidden layer it builds on")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if self.within == self.name:
            raise UserError("topicwise: within = topicwise nests topics in topics; name another architecture")
        recipe = components.build("architectures", self.within, self.options, f"topicwise: {self.within}")
        bottom = of_vectors(encoder(), self.name)
        topics = [
            recipe.build(suite, lambda: HiddenLayer(bottom.features, self.width), dropout) for _ in range(self.topics)
        ]
        return TopicwiseModule(bottom, topics)
