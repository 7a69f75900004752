"""What the image encoders have in common: normalised pixels, ResNet layers with stride or dilation, weights from a
file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.encoders._base import MapStagedModule
from mtlscale.encoders._batch_norm import BatchNorm2d
from mtlscale.spec import Task, TaskSuite, UserError, files
from mtlscale.torchvision_ops import declare

RESNET_STAGES = 5  # the stem and four layers
BLOCKS = {18: ("BasicBlock", (2, 2, 2, 2)), 50: ("Bottleneck", (3, 4, 6, 3))}
WEIGHTS_HELP = "file of torchvision's weights (a state dictionary) to start from; none: random"
_MEAN, _STD = 127.5, 64.0  # where a data set says nothing
_CLASSIFIERS = ("fc.", "classifier.", "aux_classifier.")  # heads that torchvision's files bring along
_OF_MAPS = {"miou", "pixel_accuracy", "pixel_error", "abs_err", "rel_err", "max_f"}


class ImageModule(MapStagedModule):
    """Stages over images whose pixels are normalised by the data set's mean and deviation per channel.

    uint8 pixels are normalised; floating-point inputs are taken as they are.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, suite: TaskSuite) -> None:
        super().__init__()
        for name, values in pixel_statistics(suite).items():
            # Data, not state: a checkpoint goes with its data set.
            self.register_buffer(name, values, persistent=False)

    def prepare(self, inputs: Tensor) -> Tensor:
        return normalised(inputs, self.mean, self.std)


def pixel_statistics(suite: TaskSuite) -> dict[str, Tensor]:
    """`mean` and `std` [channels, 1, 1] of the data set's pixels."""
    channels = suite.input_shape[0]
    return {
        name: torch.tensor(suite.extras.get(name) or [default] * channels).reshape(-1, 1, 1)
        for name, default in (("mean", _MEAN), ("std", _STD))
    }


def normalised(inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 pixels by mean and deviation; floating-point inputs as they are."""
    return inputs if inputs.is_floating_point() else (inputs.to(mean.dtype) - mean) / std


class ResNetModule(ImageModule):
    """torchvision's residual blocks as five stages: stem and four layers of blocks.

    dilate: layers (from 1) that keep the resolution and dilate their convolutions instead, as in DeepLab.
    """

    def __init__(
        self,
        suite: TaskSuite,
        depth: int,
        width: int,
        stem: str,
        dilate: Sequence[int] = (),
        weights: Any = None,
    ) -> None:
        super().__init__(suite)
        declare()
        from torchvision.models import resnet

        kind, counts = BLOCKS[depth]
        block = getattr(resnet, kind)
        channels, dilation = width, 1
        self.stages = nn.ModuleList([_stem(suite.input_shape[0], width, stem)])
        for layer, count in enumerate(counts, 1):
            planes, stride = width << (layer - 1), 1 if layer == 1 else 2
            before = dilation
            if layer in dilate:
                dilation, stride = dilation * stride, 1
            blocks = []
            for number in range(count):
                first = number == 0
                blocks.append(_block(block, channels, planes, stride if first else 1, before if first else dilation))
                channels = planes * block.expansion
            self.stages.append(nn.Sequential(*blocks))
        self.widths = (width, *((width << layer) * block.expansion for layer in range(4)))
        self.features = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if weights is not None:
            load_resnet(self, files.locate(weights))


def _stem(channels: int, width: int, stem: str) -> nn.Sequential:
    """imagenet: 7x7 at stride 2 and pooling, a quarter of the resolution; small: 3x3, all of it."""
    small = stem == "small"
    conv = nn.Conv2d(channels, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
    pool = [] if small else [nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(conv, BatchNorm2d(width), nn.ReLU(inplace=True), *pool)


def _block(block: Any, inputs: int, planes: int, stride: int, dilation: int) -> nn.Module:
    """A residual block. torchvision refuses to dilate a BasicBlock: its convolutions are dilated afterwards."""
    outputs = planes * block.expansion
    shortcut = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm2d(outputs))
    if block.expansion > 1:
        bottleneck: nn.Module = block(inputs, planes, stride, shortcut, dilation=dilation, norm_layer=BatchNorm2d)
        return bottleneck
    basic: nn.Module = block(inputs, planes, stride, shortcut, norm_layer=BatchNorm2d)
    for name, conv in basic.named_children():
        if name in ("conv1", "conv2"):
            assert isinstance(conv, nn.Conv2d)
            conv.dilation = conv.padding = (dilation, dilation)
    return basic


def load_resnet(module: ResNetModule, path: Path) -> None:
    """Weights from a file in torchvision's names, of a classifier or of a network on its trunk; the classifier is left
    out. Raises `UserError` where they do not fit."""
    state = {_own_name(key): value for key, value in _state(path).items() if not key.startswith(_CLASSIFIERS)}
    own = module.state_dict()
    for key in own:
        if key not in state and not key.endswith("num_batches_tracked"):
            raise UserError(f"weights: {path} has none for {key}; it is of another network")
    for key, value in state.items():
        if key not in own:
            raise UserError(f"weights: {path} has {key}, which is not here; it is of another network")
        if value.shape != own[key].shape:
            raise UserError(
                f"weights: {key} is {list(value.shape)} in {path}, but {list(own[key].shape)} here; "
                "torchvision's weights need width 64 and stem imagenet"
            )
    module.load_state_dict({key: state.get(key, value) for key, value in own.items()})


def _state(path: Path) -> Mapping[str, Tensor]:
    """Names and tensors of a file, without running what else it may hold."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise UserError(f"weights: {path} cannot be read as weights; save a plain state dictionary") from None
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"weights: {path} holds no state dictionary; save one with torch.save(model.state_dict(), …)")
    return found


def _own_name(key: str) -> str:
    key = re.sub(r"^conv1\.", "stages.0.0.", key.removeprefix("backbone."))
    key = re.sub(r"^bn1\.", "stages.0.1.", key)
    return re.sub(r"^layer(\d)\.", r"stages.\1.", key)


def image_size(name: str, suite: TaskSuite) -> tuple[int, int]:
    """Height and width of the suite's images; `UserError` where they are not [channels, height, width]."""
    if suite.input_kind != "image" or len(suite.input_shape) != 3:
        raise UserError(f"{name} reads images, {suite.name} has {suite.input_kind}s; choose another encoder")
    return suite.input_shape[1], suite.input_shape[2]


def is_map(task: Task) -> bool:
    """Whether a task predicts a value for every pixel, told from its metrics."""
    return task.loss == "cosine" or bool(_OF_MAPS & set(task.metrics))
