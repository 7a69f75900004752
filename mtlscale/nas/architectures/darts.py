"""Differentiable architecture search (DARTS)."""

from typing import ClassVar

from mtlscale.nas.search.settings import CellSearch


class DARTS(CellSearch):
    """DARTS: cells are searched by the gradient of the validation loss through mixed operations.

    In phase `search` the probabilities of eight operations on every edge learn on one half of the training data, the
    weights on the other half; gradients are of first or second order. Phase `retrain` keeps, into each node, the two
    edges with the likeliest operations.
    """

    name: ClassVar[str] = "darts"
    source: ClassVar[str] = "Liu, Simonyan, Yang, ICLR 2019"
