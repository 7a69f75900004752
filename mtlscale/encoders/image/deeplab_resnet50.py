"""Encoder for dense prediction, of 50 layers."""

from typing import ClassVar

from mtlscale.encoders.image._deeplab import DeepLab


class DeepLabResNet50(DeepLab):
    """DeepLab v3 with a dilated ResNet-50: maps for dense prediction, task heads with pyramid pooling (ASPP)."""

    name: ClassVar[str] = "deeplab_resnet50"
    depth: ClassVar[int] = 50
