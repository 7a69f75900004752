"""The space of DARTS cells: operations, layers and costs."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "AUXILIARY": ".costs",
        "EDGES": ".space",
        "GENOTYPES": ".space",
        "NODES": ".space",
        "OPERATIONS": ".space",
        "SPACE": ".space",
        "STEM": ".costs",
        "CellShape": ".costs",
        "Counts": ".costs",
        "Genotype": ".space",
        "Halve": ".layers",
        "darts_flops": ".costs",
        "darts_parameters": ".costs",
        "discretised": ".space",
        "expected": ".costs",
        "places": ".costs",
        "reachable": ".costs",
        "relu_conv": ".layers",
        "search_costs": ".costs",
        "shifted": ".layers",
    },
)
