"""Neural architecture search: cells, supernets, their searches, encoders and report parts.

A family on top of the core: nothing in the core imports it, `extension.py` names what it adds.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Genotype": ".cells",
        "darts_flops": ".cells",
        "darts_parameters": ".cells",
    },
)
