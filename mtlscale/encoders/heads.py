"""Task heads, which turn features into predictions: linear on vectors, convolutions and upsampling on maps."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from mtlscale.encoders.batch_norm import BatchNorm2d, conv_block, synchronised
from mtlscale.encoders.dropout import Dropout
from mtlscale.torchvision_ops import declare


def linear_head(features: int, outputs: int, dropout: float) -> nn.Module:
    """Build dropout and one linear layer: [B, features] -> [B, outputs]."""
    return nn.Sequential(Dropout(dropout), nn.Linear(features, outputs))


class MapHead(nn.Module):
    """Head of layers that keep positions, then bilinear upsampling: [B, features, h, w] -> [B, outputs, *size]."""

    def __init__(self, layers: nn.Module, size: tuple[int, int]) -> None:
        super().__init__()
        self.layers, self.size = layers, size

    def forward(self, features: Tensor) -> Tensor:
        small: Tensor = self.layers(features)
        if small.shape[-2:] == self.size:
            return small
        return functional.interpolate(small, size=self.size, mode="bilinear", align_corners=False)


def conv_head(features: int, outputs: int, dropout: float, width: int, size: tuple[int, int]) -> nn.Module:
    """Build a 3x3 convolution, dropout and a 1x1 convolution: the task head of MTAN's SegNet."""
    block = conv_block(features, width)
    return MapHead(nn.Sequential(block, Dropout(dropout), nn.Conv2d(width, outputs, 1)), size)


def aspp_head(
    features: int, outputs: int, dropout: float, width: int, rates: Sequence[int], size: tuple[int, int]
) -> nn.Module:
    """Build DeepLab v3's head: atrous spatial pyramid pooling, a 3x3 convolution, a 1x1 convolution.

    It is torchvision's, with the channels and the dropout of the experiment (torchvision: 256 and 0.5).
    """
    declare()
    from torchvision.models.segmentation.deeplabv3 import ASPP

    pyramid = ASPP(features, list(rates), width)
    pyramid.project[3] = Dropout(dropout)
    layers = [pyramid, nn.Conv2d(width, width, 3, padding=1, bias=False), BatchNorm2d(width), nn.ReLU()]
    return MapHead(synchronised(nn.Sequential(*layers, nn.Conv2d(width, outputs, 1))), size)
