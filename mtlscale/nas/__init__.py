"""Neural architecture search: cells, supernets, their searches, encoders and report parts.

A family on top of the core: nothing in the core imports it, `extension.py` names what it adds.
"""

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.nas.cells import Genotype, darts_flops, darts_parameters

__all__ = ["Genotype", "darts_flops", "darts_parameters"]

__getattr__ = lazily(__name__)
