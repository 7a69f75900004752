from typing import ClassVar

from mtlscale.encoders._recurrent import Recurrent


class LSTM(Recurrent):
    """One LSTM layer of 200 units over word vectors; its final state is the document's features.

    Source: the sentiment tasks of Wu, Zhang & Ré (ICLR 2020). Padding after the last token is not read.
    """

    name: ClassVar[str] = "lstm"
    source: ClassVar[str] = "Hochreiter & Schmidhuber 1997; width of Wu et al., ICLR 2020"
