"""The network of a genotype: cells of the DARTS space, two of which halve the map."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob, named_files
from mtlscale.encoders.batch_norm import BatchNorm2d
from mtlscale.encoders.contract import Encoder, EncoderModule, MapStagedModule, Memory
from mtlscale.encoders.image_layers import image_size
from mtlscale.encoders.pixels import add_pixels, normalised
from mtlscale.nas.cells.costs import STEM, CellShape, places
from mtlscale.nas.cells.layers import CellModule
from mtlscale.nas.cells.space import NODES, Genotype

# Numbers per sample, inputs [B, ...] -> [numbers, B] uniform in [0, 1)
Uniform = Callable[[int, Tensor], Tensor]
_FILE = "file of a genotype's text, in place of `genotype`"


class DartsCells(Encoder):
    """Stem and cells of a genotype, with drop-path and cutout: DARTS' evaluation network, for one label per image.

    It has up to three stages: the stem with the cells before the first reduction, those up to the second, and those
    after it. The features are the channels' means. `genotype` is a name (S1, S2, DARTS_V2), a text such as "normal:
    sep3 0, skip 1 | …; reduce: …", `random` (drawn by the run's seed) or `random:N`. Searches of cells train their
    result with these settings, whatever the genotype says.
    """

    name: ClassVar[str] = "darts_cells"
    source: ClassVar[str] = "Liu, Simonyan, Yang, ICLR 2019 (DARTS); S1, S2: E2RNAS (Yue's thesis, chapter 3)"
    inputs: ClassVar[tuple[str, ...]] = ("image",)

    genotype: str = knob("DARTS_V2", help="S1, S2, DARTS_V2, a genotype's text, random or random:N")
    file: str | None = knob(None, file=True, help=_FILE)
    cells: int = knob(20, low=1, help="cells; those at a third and two thirds halve the map")
    channels: int = knob(36, low=1, help="width of the first cell; the stem has three times as many")
    drop_path: float = knob(0.2, low=0.0, high=1.0, open_high=True, help="rate at which an edge leaves out a sample")
    cutout: int = knob(16, low=0, help="side of the square that training images lose; 0: none")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file is None and not re.fullmatch(r"random(:\d+)?", self.genotype):
            Genotype.of(self.genotype)

    @property
    def stage_count(self) -> int:
        return 1 + len(_cuts(self.cells))

    def build(self, suite: TaskSuite) -> EncoderModule:
        return DartsCellsModule(self, suite, self.chosen())

    def stem(self, channels: int, size: tuple[int, int]) -> tuple[nn.Module, list[CellShape]]:
        """Return the layers before the cells, for images with `channels` channels, and the cells' sizes."""
        width = STEM * self.channels
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        return nn.Sequential(convolution, BatchNorm2d(width)), places(self.cells, self.channels, size)

    def chosen(self) -> Genotype:
        """Return the genotype that the knobs name; a random one without a number depends on torch's generator."""
        if self.file is not None:
            path = named_files.locate(self.file)
            return Genotype.of(" ".join(path.read_text(encoding="utf-8").split()))
        if not self.genotype.startswith("random"):
            return Genotype.of(self.genotype)
        number = self.genotype.partition(":")[2]
        generator = torch.Generator().manual_seed(int(number)) if number else None
        return Genotype.random(generator)


def _cuts(cells: int) -> list[int]:
    """Return the cells at which a new stage begins: the reductions."""
    return sorted({cells // 3, 2 * cells // 3} - {0})


class DartsCellsModule(MapStagedModule):
    """The stages of a genotype's network; the memory of a pass carries a cell's older input.

    `uniform` draws the numbers of drop-path and cutout, by default from torch's generator. `progress` is the factor of
    the drop-path rate, which grows from 0 to 1 over DARTS' epochs. The memory also keeps the map after the second
    reduction, which an auxiliary head reads.
    """

    mean: Tensor
    std: Tensor
    stages: nn.ModuleList

    def __init__(self, recipe: DartsCells, suite: TaskSuite, genotype: Genotype) -> None:
        super().__init__()
        size = image_size(recipe.name, suite)
        if recipe.cutout >= min(size):
            raise UserError(f"darts_cells: cutout = {recipe.cutout} covers images of {size[0]} x {size[1]}; lower it")

        add_pixels(self, suite)
        self.recipe, self.suite, self.genotype = recipe, suite, genotype
        self.uniform: Uniform = lambda count, x: torch.rand(count, len(x), device=x.device)
        self.progress = 1.0

        stem, sizes = recipe.stem(suite.input_shape[0], size)
        cells = [CellModule(genotype.reduce if cell.reduction else genotype.normal, cell) for cell in sizes]
        cuts = [0, *_cuts(recipe.cells), recipe.cells]
        stage_modules = [nn.ModuleList(cells[first:last]) for first, last in itertools.pairwise(cuts)]
        stage_modules[0].insert(0, stem)

        self.stages = nn.ModuleList(stage_modules)
        self.widths = tuple(NODES * sizes[last - 1].width for last in cuts[1:])
        self.features = self.widths[-1]

        self.auxiliary = 2 * recipe.cells // 3  # the cell whose output the auxiliary head reads
        self.auxiliary_features, self.auxiliary_size = NODES * sizes[self.auxiliary].width, sizes[self.auxiliary].after

    @property
    def numbers(self) -> int:
        """Largest number of uniform numbers that one sample needs in a pass."""
        return 2 * bool(self.recipe.cutout) + 2 * NODES * self.recipe.cells * bool(self.recipe.drop_path)

    def of(self, genotype: Genotype) -> DartsCellsModule:
        """Build a fresh network of another genotype, with these settings."""
        return type(self)(self.recipe, self.suite, genotype)

    def prepare(self, inputs: Tensor) -> Tensor:
        pixels = normalised(inputs, self.mean, self.std)
        return self._cut_out(pixels) if self.training and self.recipe.cutout else pixels

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        number = memory.get("cell", 0)
        for module in self.stages[index]:  # type: ignore[attr-defined]
            if not isinstance(module, CellModule):
                features = self._stem(module, features, memory)
                continue
            older = memory.get("older", features)
            memory["older"] = features
            features = module(older, features, self._dropped(features))
            if number == self.auxiliary:
                memory["auxiliary"] = features
            number += 1

        memory["cell"] = number
        return features

    def _stem(self, module: nn.Module, pixels: Tensor, memory: Memory) -> Tensor:
        features: Tensor = module(pixels)
        return features

    def keep(self, first: int, last: int) -> None:
        for index in range(len(self.stages)):
            if not first <= index < last:
                self.stages[index] = nn.ModuleList()

    def _dropped(self, x: Tensor) -> Tensor | None:
        """Return the drop-path factors [8, B] of the edges' outputs; None if nothing is dropped."""
        rate = self.recipe.drop_path * self.progress
        if not (self.training and rate > 0):
            return None
        return (self.uniform(2 * NODES, x) >= rate).to(x.dtype) / (1.0 - rate)

    def _cut_out(self, pixels: Tensor) -> Tensor:
        """Set a square around a random position of each image to zero; it may reach over the border."""
        side = self.recipe.cutout
        centres = self.uniform(2, pixels)
        masks = []
        for numbers, length in zip(centres, pixels.shape[-2:], strict=True):
            first = (numbers * length).floor().to(torch.int64)[:, None] - side // 2
            positions = torch.arange(length, device=pixels.device)
            masks.append((positions >= first) & (positions < first + side))
        return pixels.masked_fill((masks[0][:, :, None] & masks[1][:, None, :])[:, None], 0.0)
