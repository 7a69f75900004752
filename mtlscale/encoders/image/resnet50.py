"""Residual network of 50 layers for images."""

from typing import ClassVar

from torch import nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.batch_norm import BatchNorm2d
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.image_layers import RESNET_STAGES, WEIGHTS_HELP, ResNetModule, image_size, is_map


class ResNet50(Encoder):
    """ResNet-50 with global average pooling, for one label per image.

    It has five stages, the stem and four layers, and features of 32 x width. With `bottleneck` it has a sixth stage on
    the pooled features: a fully connected layer, batch normalisation, ReLU and dropout, as is usual between domains.
    """

    name: ClassVar[str] = "resnet50"
    source: ClassVar[str] = "He et al., CVPR 2016; the bottleneck as in Long et al., ICML 2015"
    inputs: ClassVar[tuple[str, ...]] = ("image",)

    width: int = knob(64, low=1, help="channels of the first layer")
    weights: str | None = knob(None, file=True, help=WEIGHTS_HELP)
    bottleneck: int = knob(0, low=0, help="features of a layer after the pooling; 0: none")
    dropout: float = knob(0.5, low=0.0, high=1.0, open_high=True, help="of the bottleneck's features")

    @property
    def stage_count(self) -> int:
        return RESNET_STAGES + (self.bottleneck > 0)

    def build(self, suite: TaskSuite) -> EncoderModule:
        image_size(self.name, suite)
        for task in suite.tasks:
            if is_map(task):
                raise UserError(
                    f"resnet50 gives one vector per image, but {task.name} predicts pixels; choose deeplab_resnet50"
                )

        module = ResNetModule(suite, 50, self.width, "imagenet", weights=self.weights)
        if self.bottleneck:
            layer = nn.Conv2d(module.features, self.bottleneck, 1, bias=False)
            stage = [nn.AdaptiveAvgPool2d(1), layer, BatchNorm2d(self.bottleneck), nn.ReLU(), Dropout(self.dropout)]
            module.stages.append(nn.Sequential(*stage))
            module.features, module.widths = self.bottleneck, (*module.widths, self.bottleneck)

        return module
