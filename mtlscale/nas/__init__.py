"""Neural architecture search: cells, supernets, their searches, encoders and report parts.

A family on top of the core: nothing in the core imports it, `extension.py` names what it adds.
"""

from mtlscale.lazy import lazily

__all__ = ["Genotype", "darts_flops", "darts_parameters"]

__getattr__ = lazily(__name__, {"mtlscale.nas.cells": ["Genotype", "darts_flops", "darts_parameters"]})
