"""Bidirectional recurrent encoder of texts (BiLSTM)."""

from typing import ClassVar

from mtlscale.config import knob
from mtlscale.encoders.text._recurrent import Recurrent


class BiLSTM(Recurrent):
    """Two bidirectional LSTM layers of 32 units over word vectors, maximum over time.

    Source: AAMTRL (ICML 2020). The paper does not state the pooling; the maximum over time is that of its TextCNN, and
    `pooling: last` takes the final states of both directions. Padding after the last token is not read.
    """

    name: ClassVar[str] = "bilstm"
    source: ClassVar[str] = "Graves & Schmidhuber 2005; sizes of Mao, Liu & Lin, ICML 2020"
    bidirectional: ClassVar[bool] = True

    hidden: int = knob(32, low=1, help="size of the state of each direction")
    layers: int = knob(2, low=1, help="stacked layers")
    pooling: str = knob("max", choices=("last", "max", "mean"), help="final states, or over the outputs in time")
