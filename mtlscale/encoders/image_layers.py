"""The common parts of image encoders: normalised pixels, ResNet layers, weights from a file.

ResNet layers have a stride or, for dense prediction, a dilation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.config import Task, TaskSuite, UserError, named_files
from mtlscale.encoders.batch_norm import BatchNorm2d
from mtlscale.encoders.contract import MapStagedModule
from mtlscale.encoders.pixels import add_pixels, normalised
from mtlscale.torchvision_ops import declare

RESNET_STAGES = 5  # the stem and four layers
BLOCKS = {18: ("BasicBlock", (2, 2, 2, 2)), 50: ("Bottleneck", (3, 4, 6, 3))}
WEIGHTS_HELP = "file of torchvision's weights (a state dictionary) to start from; none: random"
_CLASSIFIERS = ("fc.", "classifier.", "aux_classifier.")  # heads that torchvision's files bring along
_OF_MAPS = {"miou", "pixel_accuracy", "pixel_error", "abs_err", "rel_err", "max_f"}


class ImageModule(MapStagedModule):
    """Staged encoder of images, with pixels normalised by the data set's mean and deviation per channel.

    uint8 pixels are normalised; floating-point inputs stay as they are.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, suite: TaskSuite) -> None:
        super().__init__()
        add_pixels(self, suite)

    def prepare(self, inputs: Tensor) -> Tensor:
        return normalised(inputs, self.mean, self.std)


class ResNetModule(ImageModule):
    """The residual blocks of torchvision as five stages: the stem and four layers of blocks.

    `dilate` names layers (from 1) that keep the resolution and dilate their convolutions instead, as in DeepLab.
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
            previous_dilation = dilation
            if layer in dilate:
                dilation, stride = dilation * stride, 1
            blocks = []
            for number in range(count):
                first = number == 0
                blocks.append(
                    _block(block, channels, planes, stride if first else 1, previous_dilation if first else dilation)
                )
                channels = planes * block.expansion
            self.stages.append(nn.Sequential(*blocks))

        self.widths = (width, *((width << layer) * block.expansion for layer in range(4)))
        self.features = channels

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

        if weights is not None:
            load_resnet(self, named_files.locate(weights))


def _stem(channels: int, width: int, stem: str) -> nn.Sequential:
    """Build the stem: `imagenet` is 7x7 at stride 2 and pooling, a quarter of the resolution; `small` is 3x3."""
    small = stem == "small"
    conv = nn.Conv2d(channels, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
    pool = [] if small else [nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(conv, BatchNorm2d(width), nn.ReLU(inplace=True), *pool)


def _block(block: Any, inputs: int, planes: int, stride: int, dilation: int) -> nn.Module:
    """Build a residual block."""
    outputs = planes * block.expansion
    shortcut = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm2d(outputs))

    if block.expansion > 1:
        bottleneck: nn.Module = block(inputs, planes, stride, shortcut, dilation=dilation, norm_layer=BatchNorm2d)
        return bottleneck

    basic: nn.Module = block(inputs, planes, stride, shortcut, norm_layer=BatchNorm2d)
    # torchvision refuses to dilate a BasicBlock, so its convolutions are dilated afterwards.
    for name, conv in basic.named_children():
        if name in ("conv1", "conv2"):
            assert isinstance(conv, nn.Conv2d)
            conv.dilation = conv.padding = (dilation, dilation)
    return basic


def load_resnet(module: ResNetModule, path: Path) -> None:
    """Load weights from a file in torchvision's names, of a classifier or of a network on its trunk.

    The classifier is left out.

    Raises:
        UserError: If the weights do not fit the module.
    """
    state = {_own_name(key): value for key, value in _state(path).items() if not key.startswith(_CLASSIFIERS)}
    expected = module.state_dict()

    for key in expected:
        if key not in state and not key.endswith("num_batches_tracked"):
            raise UserError(f"weights: {path} has none for {key}; it is of another network")

    for key, value in state.items():
        if key not in expected:
            raise UserError(f"weights: {path} has {key}, which is not here; it is of another network")
        if value.shape != expected[key].shape:
            raise UserError(
                f"weights: {key} is {list(value.shape)} in {path}, but {list(expected[key].shape)} here; "
                "torchvision's weights need width 64 and stem imagenet"
            )

    module.load_state_dict({key: state.get(key, value) for key, value in expected.items()})


def _state(path: Path) -> Mapping[str, Tensor]:
    """Read the names and tensors of a file, without running any code that it may hold."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise UserError(f"weights: {path} cannot be read as weights; save a plain state dictionary") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"weights: {path} holds no state dictionary; save one with torch.save(model.state_dict(), …)")
    return state


def _own_name(key: str) -> str:
    key = re.sub(r"^conv1\.", "stages.0.0.", key.removeprefix("backbone."))
    key = re.sub(r"^bn1\.", "stages.0.1.", key)
    return re.sub(r"^layer(\d)\.", r"stages.\1.", key)


def image_size(name: str, suite: TaskSuite) -> tuple[int, int]:
    """Return height and width of the suite's images; `UserError` if they are not [channels, height, width]."""
    if suite.input_kind != "image" or len(suite.input_shape) != 3:
        raise UserError(f"{name} reads images, {suite.name} has {suite.input_kind}s; choose another encoder")
    return suite.input_shape[1], suite.input_shape[2]


def is_map(task: Task) -> bool:
    """Return True if a task predicts a value for every pixel, judged by its loss and metrics."""
    return task.loss == "cosine" or bool(_OF_MAPS & set(task.metrics))
