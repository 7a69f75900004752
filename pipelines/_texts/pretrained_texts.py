"""Labelled texts as token ids of a pretrained model's tokenizer, or as features of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import Task, TaskSuite, UserError, knob, named_files
from mtlscale.data.format.tokenizer import check_tokenizer, tokenize
from pipelines._steps.word_vectors import VectorPipeline
from pipelines._texts.text_features import FEATURES_FROM_BYTES, with_features
from pipelines._texts.token_ids import text_suite
from pipelines.contract import PrepareContext

TOKENIZER_HELP = "folder of a pretrained model whose tokenizer makes the token ids; none: words"
FEATURES, FEATURES_HELP = ("none", "mean", "first"), "of the tokenizer's model, frozen, in place of token ids"


class PretrainedTexts(VectorPipeline):
    """Base class of text pipelines whose texts a pretrained model may read."""

    tokenizer: str | None = knob(None, file="tokenizer", help=TOKENIZER_HELP, later=True)
    features: str = knob("none", choices=FEATURES, help=FEATURES_HELP, later=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features != "none":  # a pass through a model takes longer here than starting Ray
            object.__setattr__(self, "ray_from_bytes", FEATURES_FROM_BYTES)

    def options(self) -> dict[str, Any]:
        """Return the knobs; a tokenizer counts by its content, and its model's weights only for features."""
        if self.tokenizer is None:
            return super().options()
        folder = Path(self.tokenizer)
        check_tokenizer(self.name, folder, weights=self.features != "none")
        identity = named_files.identity({"tokenizer": named_files.with_content_hash(self.tokenizer)})
        return super().options() | (
            {"tokenizer": named_files.tokenizer_hash(folder)} if self.features == "none" else identity
        )

    def check_vectors(self) -> None:
        """Raise `UserError` before anything is read if `features`, `tokenizer` and `vectors` contradict."""
        super().check_vectors()
        if self.tokenizer is None and self.features != "none":
            raise UserError(f"{self.name}: features = {self.features!r} are those of a model; name its `tokenizer`")
        if self.tokenizer is not None and self.vectors != "none":
            raise UserError(f"{self.name}: a pretrained model has vectors of its own; drop `vectors` or `tokenizer`")

    def tokenized(
        self,
        rows: pa.Table,
        texts: tuple[Sequence[str], Sequence[str | None]],
        length: int,
        tasks: Sequence[Task],
        context: PrepareContext,
    ) -> tuple[pa.Table, TaskSuite, dict[str, Any]]:
        """Return the rows with token ids or features as `input`, their suite, and notes on texts that were cut.

        Args:
            rows: Columns `id`, `split`, `stream`, `label`.
            texts: Of each row the text and the second one of a pair, as they are written.
            length: The most tokens of a text.
            tasks: The tasks, named like their streams.
        """
        assert self.tokenizer is not None
        folder = Path(self.tokenizer)
        tokens = tokenize(self.name, folder, *texts, length)
        inputs = pa.FixedSizeListArray.from_arrays(tokens.ids.ravel(), tokens.ids.shape[1])
        encoded = rows.append_column("input", inputs)

        notes = count_by_task("texts_cut", encoded, pc.greater(pa.array(tokens.counts, pa.int64()), tokens.limit))
        if notes:
            notes["tokens_kept"] = tokens.limit

        tokenizer_info = {
            "sha256": named_files.tokenizer_hash(folder),
            "padding": tokens.padding,
            "separator": tokens.separator,
        }
        suite = text_suite(self.name, tuple(tasks), (), tokens.ids.shape[1])
        suite = replace(suite, vocabulary_size=tokens.size, extras={"tokenizer": tokenizer_info})

        if self.features != "none":
            encoded, size = with_features(encoded, suite, folder, self.features, context)
            suite = replace(suite, input_kind="vector", input_shape=(size,), vocabulary_size=None, extras={})
        return encoded, suite, notes


def count_by_task(noun: str, rows: pa.Table, mask: pa.Array | pa.ChunkedArray) -> dict[str, Any]:
    """Return a note with the number of chosen rows per task; empty if there are none."""
    counts = Counter(rows["stream"].filter(mask).to_pylist())
    return {noun: dict(sorted(counts.items()))} if counts else {}
