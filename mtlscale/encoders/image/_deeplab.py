"""DeepLab v3 on a residual network: dilated layers that keep the resolution, a pyramid of dilations in the heads."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.heads import aspp_head
from mtlscale.encoders.image_layers import RESNET_STAGES, WEIGHTS_HELP, ResNetModule, image_size

_DILATED = {8: (3, 4), 16: (4,), 32: ()}


class DeepLabModule(ResNetModule):
    """Network from images [B, C, H, W] to maps of 1 / stride of the resolution."""

    spatial = True

    def __init__(self, suite: TaskSuite, depth: int, settings: DeepLab) -> None:
        dilate = _DILATED[settings.stride]
        super().__init__(suite, depth, settings.width, settings.stem, dilate, settings.weights)
        self.size = image_size(settings.name, suite)
        self.head_width, self.rates = settings.head_width, settings.rates

    def head(self, task: Task, dropout: float, features: int | None = None) -> nn.Module:
        return aspp_head(features or self.features, task.outputs, dropout, self.head_width, self.rates, self.size)


class DeepLab(Encoder):
    """Base class of DeepLab v3 for both depths of the residual network."""

    source: ClassVar[str] = "Chen et al., arXiv 1706.05587, 2017"
    inputs: ClassVar[tuple[str, ...]] = ("image",)
    depth: ClassVar[int]

    width: int = knob(64, low=1, help="channels of the first layer")
    stem: str = knob("imagenet", choices=("imagenet", "small"), help="a quarter of the resolution, or all of it")
    stride: int = knob(8, choices=tuple(_DILATED), help="resolution of the image over that of the features (imagenet)")
    head_width: int = knob(256, low=1, help="channels within a task's head")
    rates: tuple[int, ...] = knob((12, 24, 36), low=1, help="dilations of the pyramid, in places of the features")
    weights: str | None = knob(None, file=True, help=WEIGHTS_HELP)

    @property
    def stage_count(self) -> int:
        return RESNET_STAGES

    def build(self, suite: TaskSuite) -> EncoderModule:
        image_size(self.name, suite)
        if not self.rates or any(rate < 1 for rate in self.rates):
            raise UserError(f"{self.name}: rates = {list(self.rates)} should hold dilations of at least 1")
        return DeepLabModule(suite, self.depth, self)
