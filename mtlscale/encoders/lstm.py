from typing import ClassVar

from mtlscale.encoders._recurrent import Recurrent


class LSTM(Recurrent):
    """One LSTM layer of 200 units over word vectors; its final state is the document's features.

    Source: METHODS §14 (ITMTL's sentiment tasks). Padding after the last token is not read.
    """

    name: ClassVar[str] = "lstm"
    source: ClassVar[str] = "METHODS §14 (ITMTL)"
