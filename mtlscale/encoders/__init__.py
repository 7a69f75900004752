"""What turns inputs into features. One module per encoder, named as in experiment files."""

from mtlscale.encoders._base import Encoder, EncoderModule, MapStagedModule, Memory, StagedModule
from mtlscale.encoders._batch_norm import BatchNorm2d, conv_block, needs_every_worker, residual_block, resize
from mtlscale.encoders._cell_costs import (
    AUXILIARY,
    STEM,
    Counts,
    Place,
    darts_flops,
    darts_parameters,
    expected,
    places,
    reachable,
    search_costs,
)
from mtlscale.encoders._cell_layers import Halve, relu_conv, shifted
from mtlscale.encoders._cell_space import EDGES, GENOTYPES, NODES, OPERATIONS, SPACE, Genotype, discretised
from mtlscale.encoders._dropout import Dropout, drawn
from mtlscale.encoders._heads import MapHead, linear_head
from mtlscale.encoders._pixels import add_pixels, normalised

__all__ = [
    "AUXILIARY",
    "EDGES",
    "GENOTYPES",
    "NODES",
    "OPERATIONS",
    "SPACE",
    "STEM",
    "BatchNorm2d",
    "Counts",
    "Dropout",
    "Encoder",
    "EncoderModule",
    "Genotype",
    "Halve",
    "MapHead",
    "MapStagedModule",
    "Memory",
    "Place",
    "StagedModule",
    "add_pixels",
    "conv_block",
    "darts_flops",
    "darts_parameters",
    "discretised",
    "drawn",
    "expected",
    "linear_head",
    "needs_every_worker",
    "normalised",
    "places",
    "reachable",
    "relu_conv",
    "residual_block",
    "resize",
    "search_costs",
    "shifted",
]
