"""Residual network of 18 layers for images."""

from typing import ClassVar

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.image_layers import RESNET_STAGES, WEIGHTS_HELP, ResNetModule, image_size, is_map


class ResNet18(Encoder):
    """ResNet-18 with global average pooling, for one label per image (faces, digits).

    It has five stages, the stem and four layers, and features of 8 x width. With `stem: small` the first convolution is
    3x3 without stride or pooling, for images of 32 pixels or less.
    """

    name: ClassVar[str] = "resnet18"
    source: ClassVar[str] = "He et al., CVPR 2016"
    inputs: ClassVar[tuple[str, ...]] = ("image",)

    width: int = knob(64, low=1, help="channels of the first layer")
    stem: str = knob("imagenet", choices=("imagenet", "small"), help="a quarter of the resolution, or all of it")
    weights: str | None = knob(None, file=True, help=WEIGHTS_HELP)

    @property
    def stage_count(self) -> int:
        return RESNET_STAGES

    def build(self, suite: TaskSuite) -> EncoderModule:
        image_size(self.name, suite)
        for task in suite.tasks:
            if is_map(task):
                raise UserError(
                    f"resnet18 gives one vector per image, but task {task.name} predicts pixels; choose "
                    "deeplab_resnet18 or segnet"
                )
        return ResNetModule(suite, 18, self.width, self.stem, weights=self.weights)
