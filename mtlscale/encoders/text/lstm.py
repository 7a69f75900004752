"""Recurrent encoder of texts: long short-term memory (LSTM)."""

from typing import ClassVar

from mtlscale.encoders.text._recurrent import Recurrent


class LSTM(Recurrent):
    """The final state of an LSTM layer of 200 units over word vectors.

    Source: the sentiment tasks of Wu, Zhang & Ré (ICLR 2020). Padding after the last token is not read.
    """

    name: ClassVar[str] = "lstm"
    source: ClassVar[str] = "Hochreiter & Schmidhuber 1997; width of Wu et al., ICLR 2020"
