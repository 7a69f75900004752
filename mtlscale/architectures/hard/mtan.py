"""MTAN: one encoder for all tasks, and attention masks of each task on the features after every stage."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, encoder_head, map_staged
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import BatchNorm2d, EncoderModule, MapStagedModule, Memory, conv_block, residual_block, resize


class MTANModule(MultiTaskModule):
    """The shared encoder with attention masks of each task; `first` is the first stage, from 0, with masks."""

    def __init__(
        self, suite: TaskSuite, encoder: MapStagedModule, reduction: int, residual: bool, first: int, dropout: float
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder, self.first = encoder, first

        widths = encoder.widths[first:]
        block = residual_block if residual else conv_block
        # These turn attended features into the next stage's. The tasks share them, as in the source.
        self.onward = nn.ModuleList(block(inputs, outputs) for inputs, outputs in itertools.pairwise(widths))

        self.masks = nn.ModuleList(
            nn.ModuleList(
                _mask(width if stage == 0 else 2 * width, width, reduction) for stage, width in enumerate(widths)
            )
            for _ in suite.tasks
        )
        self.heads = nn.ModuleList(encoder_head(encoder, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features, memory = self.encoder.prepare(batch.inputs), Memory()
        shared = []
        for stage in range(len(self.encoder.stages)):
            features = self.encoder.stage(stage, features, memory)
            shared += [features] if stage >= self.first else []
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            predictions[task] = self.heads[index](self.encoder.finish(self.attend(index, shared)))
        return Outputs(predictions)

    def attend(self, task: int, shared: list[Tensor]) -> Tensor:
        """Return the task's attended features after the last stage.

        `shared` has the shared features after every stage that has masks.
        """
        attended = shared[0]
        for stage, features in enumerate(shared):
            mask_input = features
            if stage > 0:
                size = (features.shape[-2], features.shape[-1])
                mask_input = torch.cat([features, resize(self.onward[stage - 1](attended), size)], dim=1)
            attended = self.masks[task][stage](mask_input) * features  # type: ignore[index]
        return attended

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.onward.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [*self.masks[index].parameters(), *self.heads[index].parameters()]


def _mask(inputs: int, width: int, reduction: int) -> nn.Module:
    """Build the layers of an attention mask, [B, inputs, h, w] -> [B, width, h, w] in [0, 1]."""
    inner = max(1, width // reduction)
    last = [nn.Conv2d(inner, width, 1, bias=False), BatchNorm2d(width), nn.Sigmoid()]
    return nn.Sequential(*conv_block(inputs, inner, 1), *last)


class MTAN(Architecture):
    """Multi-task attention network: one shared encoder; after each stage every task masks the features for itself.

    A mask reads the shared features and the task's masked features of the stage before. A 3x3 convolution that the
    tasks share (as in the authors' code) and pooling bring these to the stage, or bilinear upsampling if the encoder
    goes up. With `reduction: 1` masks are as wide as the features, as for SegNet; ResNets use a quarter. `form: resnet`
    is the authors' network for ResNets: a residual bottleneck instead of the convolution, and no masks after the stem.
    """

    name: ClassVar[str] = "mtan"
    source: ClassVar[str] = "Liu et al., CVPR 2019"
    needs_stages: ClassVar[bool] = True

    reduction: int = knob(4, low=1, help="channels over the masks' hidden layer")
    form: str = knob("segnet", choices=("segnet", "resnet"), help="masks after every stage; after the layers alone")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        resnet = self.form == "resnet"
        return MTANModule(suite, map_staged(encoder(), self.name), self.reduction, resnet, int(resnet), dropout)
