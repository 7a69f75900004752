from typing import ClassVar

from mtlscale.architectures._cell_search import CellSearch


class DARTS(CellSearch):
    """DARTS: cells are searched by the gradient of the validation loss through mixed operations.

    Phase `search`: probabilities of eight operations on every edge learn on one half of the training data, the weights
    on the other; of first or second order. Phase `retrain`: into each node the two edges with the likeliest operations.
    """

    name: ClassVar[str] = "darts"
    source: ClassVar[str] = "Liu, Simonyan, Yang, ICLR 2019"
