"""NDDR-CNN: parallel networks whose features are joined and reduced after every stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, map_staged
from mtlscale.architectures.crossing._parallel import ParallelModule
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule, MapStagedModule, conv_block, resize


class NDDRModule(ParallelModule):
    """Parallel networks with a reduction for each task after every stage, and optional shortcuts to the heads."""

    def __init__(
        self, suite: TaskSuite, encoders: list[MapStagedModule], own: float, shortcut: bool, dropout: float
    ) -> None:
        super().__init__(suite, encoders, dropout)
        size, widths = len(encoders), encoders[0].widths
        self.layers = nn.ModuleList(
            nn.ModuleList(_reduction(size, task, width, own) for task in range(size)) for width in widths
        )
        self.shortcuts = nn.ModuleList(
            conv_block(sum(widths), widths[-1], 1) for _ in (encoders if shortcut else encoders[:0])
        )

    def exchange(self, stage: int, task: int, features: Tensor) -> Tensor:
        joined = torch.cat(list(features), dim=1)
        reduced: Tensor = self.layers[stage][task](joined)  # type: ignore[index]
        return reduced

    def exchange_parameters(self, stage: int, task: int) -> list[nn.Parameter]:
        return list(self.layers[stage][task].parameters())  # type: ignore[index]

    def conclude(self, task: int, history: list[Tensor]) -> Tensor:
        if not len(self.shortcuts):
            return history[-1]
        size = (history[-1].shape[-2], history[-1].shape[-1])
        result: Tensor = self.shortcuts[task](torch.cat([resize(part, size) for part in history], dim=1))
        return result

    def conclude_parameters(self, task: int) -> list[nn.Parameter]:
        return list(self.shortcuts[task].parameters()) if len(self.shortcuts) else []


def _reduction(tasks: int, task: int, width: int, own: float) -> nn.Module:
    """Build one task's fusion layer: weight `own` on its own channel, the rest spread over that of the others."""
    block = conv_block(tasks * width, width, 1)
    convolution = block[0]
    assert isinstance(convolution, nn.Conv2d)
    other_weight = (1.0 - own) / (tasks - 1) if tasks > 1 else 0.0
    parts = [torch.eye(width) * (own if source_task == task else other_weight) for source_task in range(tasks)]
    with torch.no_grad():
        convolution.weight.copy_(torch.cat(parts, dim=1)[:, :, None, None])
    return block


class NDDRCNN(Architecture):
    """NDDR-CNN: a full encoder per task; after each stage all features are concatenated and reduced for each task.

    The reduction is a 1x1 convolution, batch normalisation and ReLU. With `shortcut` a task's head reads its reduced
    features of all stages, resized to the last stage's, concatenated, and reduced by a 1x1 convolution.
    """

    name: ClassVar[str] = "nddr_cnn"
    source: ClassVar[str] = "Gao et al., CVPR 2019"
    needs_stages: ClassVar[bool] = True

    own: float = knob(0.9, low=0.0, high=1.0, help="first weight of a task's own features")
    shortcut: bool = knob(True, help="the head reads all stages")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        encoders = [map_staged(encoder(), self.name) for _ in suite.tasks]
        return NDDRModule(suite, encoders, self.own, self.shortcut, dropout)
