"""Encoder for dense prediction, of 18 layers."""

from typing import ClassVar

from mtlscale.encoders.image._deeplab import DeepLab


class DeepLabResNet18(DeepLab):
    """DeepLab v3 with a dilated ResNet-18: maps for dense prediction, task heads with pyramid pooling (ASPP)."""

    name: ClassVar[str] = "deeplab_resnet18"
    depth: ClassVar[int] = 18
