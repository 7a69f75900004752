"""Encoder and decoder for dense prediction (SegNet)."""

import itertools
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.encoders.batch_norm import conv_block
from mtlscale.encoders.contract import Encoder, EncoderModule, Memory
from mtlscale.encoders.heads import conv_head
from mtlscale.encoders.image_layers import ImageModule, image_size

_CONVOLUTIONS = (2, 2, 3, 3, 3)  # convolutions of each resolution, as in VGG-16


class SegNet(Encoder):
    """SegNet as in MTAN: convolutions and pooling at five resolutions, then unpooling by the remembered maxima.

    It has ten stages, and features of `width` channels at the resolution of the image. Heads are a 3x3 and a 1x1
    convolution.
    """

    name: ClassVar[str] = "segnet"
    source: ClassVar[str] = "Badrinarayanan et al., PAMI 2017; Liu et al., CVPR 2019"
    inputs: ClassVar[tuple[str, ...]] = ("image",)

    width: int = knob(64, low=1, help="channels of the first resolution; twice as many at each of the next three")

    @property
    def stage_count(self) -> int:
        return 2 * len(_CONVOLUTIONS)

    def build(self, suite: TaskSuite) -> EncoderModule:
        if min(image_size(self.name, suite)) < 32:
            raise UserError(f"segnet halves an image five times: {suite.name} needs at least 32 pixels a side")
        return SegNetModule(suite, self.width)


class SegNetModule(ImageModule):
    """Network from images [B, C, H, W] to maps [B, width, H, W]."""

    spatial = True

    def __init__(self, suite: TaskSuite, width: int) -> None:
        super().__init__(suite)
        self.size = image_size("segnet", suite)
        down = [width, 2 * width, 4 * width, 8 * width, 8 * width]
        up = [*down[3::-1], width]
        stage_inputs = [suite.input_shape[0], *down]

        self.stages = nn.ModuleList(
            _convolutions(inputs, inner, inner, count)
            for inputs, inner, count in zip(stage_inputs[:-1], down, _CONVOLUTIONS, strict=True)
        )
        for inputs, outputs, count in zip(down[::-1], up, _CONVOLUTIONS[::-1], strict=True):
            self.stages.append(_convolutions(inputs, inputs, outputs, count))

        self.widths, self.features = (*down, *up), width

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        levels = len(_CONVOLUTIONS)
        if index < levels:
            full = self.stages[index](features)
            memory[f"size {index}"] = full.shape[-2:]
            pooled, memory[f"places {index}"] = functional.max_pool2d(full, 2, return_indices=True)
            return pooled

        level = 2 * levels - 1 - index
        maxima, size = memory[f"places {level}"], memory[f"size {level}"]
        result: Tensor = self.stages[index](functional.max_unpool2d(features, maxima, [2, 2], output_size=size))
        return result

    def head(self, task: Task, dropout: float, features: int | None = None) -> nn.Module:
        features = features or self.features
        return conv_head(features, task.outputs, dropout, features, self.size)


def _convolutions(inputs: int, inner: int, outputs: int, count: int) -> nn.Sequential:
    widths = [inputs, *[inner] * (count - 1), outputs]
    return nn.Sequential(*(conv_block(a, b) for a, b in itertools.pairwise(widths)))
