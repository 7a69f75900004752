"""The space of DARTS cells: operations, layers and costs."""

from mtlscale.nas.cells.costs import (
    AUXILIARY,
    STEM,
    CellShape,
    Counts,
    darts_flops,
    darts_parameters,
    expected,
    places,
    reachable,
    search_costs,
)
from mtlscale.nas.cells.layers import Halve, relu_conv, shifted
from mtlscale.nas.cells.space import EDGES, GENOTYPES, NODES, OPERATIONS, SPACE, Genotype, discretised

__all__ = [
    "AUXILIARY",
    "EDGES",
    "GENOTYPES",
    "NODES",
    "OPERATIONS",
    "SPACE",
    "STEM",
    "CellShape",
    "Counts",
    "Genotype",
    "Halve",
    "darts_flops",
    "darts_parameters",
    "discretised",
    "expected",
    "places",
    "reachable",
    "relu_conv",
    "search_costs",
    "shifted",
]
