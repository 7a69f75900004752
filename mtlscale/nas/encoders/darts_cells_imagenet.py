"""The network of a genotype on large images: a stem that halves them three times."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, knob
from mtlscale.encoders.batch_norm import BatchNorm2d
from mtlscale.encoders.contract import EncoderModule, Memory
from mtlscale.nas.cells.costs import CellShape, places
from mtlscale.nas.encoders.darts_cells import DartsCells, DartsCellsModule


class DartsCellsImageNet(DartsCells):
    """The `darts_cells` network with DARTS' stem for ImageNet: the first cell reads maps of a quarter and an eighth."""

    name: ClassVar[str] = "darts_cells_imagenet"

    cells: int = knob(14, low=1, help="cells; those at a third and two thirds halve the map")
    channels: int = knob(48, low=2, help="width of the first cell and of the stem")
    cutout: int = knob(0, low=0, help="side of the square that training images lose; 0: none")

    def build(self, suite: TaskSuite) -> EncoderModule:
        return DartsCellsImageNetModule(self, suite, self.chosen())

    def stem(self, channels: int, size: tuple[int, int]) -> tuple[nn.Module, list[CellShape]]:
        eighth = (-(-size[0] // 8), -(-size[1] // 8))
        return _Stem(channels, self.channels), places(self.cells, self.channels, eighth, stem=1, halved=True)


class _Stem(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.quarter = nn.Sequential(*_halving(channels, width // 2), nn.ReLU(), *_halving(width // 2, width))
        self.eighth = nn.Sequential(nn.ReLU(), *_halving(width, width))


def _halving(inputs: int, width: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, width, 3, stride=2, padding=1, bias=False), BatchNorm2d(width)


class DartsCellsImageNetModule(DartsCellsModule):
    """The stages of a genotype's network whose stem also returns a map of a quarter of the size, as the older input."""

    def _stem(self, module: nn.Module, pixels: Tensor, memory: Memory) -> Tensor:
        assert isinstance(module, _Stem)
        memory["older"] = module.quarter(pixels)
        features: Tensor = module.eighth(memory["older"])
        return features
