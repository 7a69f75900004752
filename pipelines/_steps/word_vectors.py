"""Word vectors fitted on a set's own texts with gensim: an option of the text pipelines."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError, knob
from mtlscale.data.format.manifest import SPECIAL_WORDS
from mtlscale.data.readers.prepared import VECTORS
from pipelines.contract import Pipeline, PrepareContext

WINDOW = 5
NEGATIVE_SAMPLES = 5
SUBWORD_BUCKETS = 200_000  # of fastText, whose default needs gigabytes of memory
SEED = 0


class VectorPipeline(Pipeline):
    """Pipeline that can leave word vectors beside its tables, for encoders with `vectors: prepared`."""

    collects: ClassVar[bool] = True

    vectors: str = knob("none", choices=("none", "word2vec", "fasttext"), help="fit word vectors on this set's texts")
    vector_dimensions: int = knob(128, low=1, high=4096, help="size of a fitted vector")
    vector_epochs: int = knob(5, low=1, high=1000, help="passes over the texts when fitting")

    def check_vectors(self) -> None:
        """Raise `UserError` before anything is read if gensim is needed and missing."""
        if self.vectors != "none" and importlib.util.find_spec("gensim") is None:
            raise UserError(f"{self.name}: vectors = {self.vectors!r} needs gensim; pip install 'mtlscale[vectors]'")

    def fit_vectors(
        self, lists: Callable[[], pa.ListArray], words: Sequence[str], context: PrepareContext
    ) -> dict[str, pa.Table]:
        """Return the file of vectors fitted on lists of words, which are made only if vectors are wanted.

        `id` is the word, `vector` its float32 numbers, for every word of the vocabulary; all other words together are
        the unknown word. One thread and a fixed seed make the numbers reproducible.
        """
        if self.vectors == "none":
            return {}

        texts = lists()
        context.progress("fit word vectors", 0, len(texts))
        vectors = self._model(_sentences(texts, words)).wv
        flat = pa.array(vectors.vectors.ravel(), pa.float32())
        columns = {"id": vectors.index_to_key, "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.vector_size)}
        return {VECTORS: pa.table(columns)}

    def _model(self, sentences: list[list[str]]) -> Any:
        from gensim.models import FastText, Word2Vec

        settings = {
            "vector_size": self.vector_dimensions,
            "epochs": self.vector_epochs,
            "window": WINDOW,
            "negative": NEGATIVE_SAMPLES,
            "sg": 1,
            "min_count": 1,
            "workers": 1,
            "seed": SEED,
        }

        if self.vectors == "word2vec":
            return Word2Vec(sentences, **settings)
        return FastText(sentences, bucket=SUBWORD_BUCKETS, **settings)


def _sentences(texts: pa.ListArray, words: Sequence[str]) -> list[list[str]]:
    """Return the texts that have words, with the unknown word in place of words outside the vocabulary."""
    _, unknown = SPECIAL_WORDS
    flat = texts.flatten()
    is_known = pc.is_in(flat, value_set=pa.array(words, pa.string()))
    replaced = pa.ListArray.from_arrays(texts.offsets, pc.if_else(is_known, flat, unknown))
    return [sentence for sentence in replaced.to_pylist() if sentence]
