"""Description of the raw inputs of a network, as far as a prepared set and its pipeline define it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtlscale.config import TaskSuite, UserError, checkpoints, component, named_files
from mtlscale.data.format.columns import ENCODED, RAGGED, kind_of
from mtlscale.data.format.graphs import KEY
from mtlscale.data.format.manifest import SPECIAL_WORDS
from mtlscale.data.format.table_columns import TableColumn
from mtlscale.inference.description import InputDescription, Words
from mtlscale.inference.finished_run import FinishedRun

_DTYPES = {"tokens": "int32", "image": "uint8", "vector": "float32"}
_BLOCK_ROWS = 4096  # rows of a file, at a time


def describe_input(source: FinishedRun, folder: Path) -> InputDescription:
    """Describe the inputs of a run's data; `folder` holds the files of the exported model so far."""
    suite, notes = source.suite, source.data.manifest.notes
    scaled = notes.get("standardised", {})
    low, high = _training_range(source)

    return InputDescription(
        kind=suite.input_kind,
        shape=tuple(suite.input_shape),
        dtype=_dtype(source),
        words=_word_rule(source),
        tokenizer=suite.input_kind == "tokens" and (folder / "tokenizer").is_dir(),
        mean=list(scaled.get("mean", [])),
        deviation=list(scaled.get("deviation", [])),
        columns=_columns(notes) if suite.input_kind == "vector" else [],
        fills_empty="columns" in notes,
        low=low,
        high=high,
    )


def _columns(notes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conversion of raw columns: as the set notes it, or numbers and categories by their names."""
    categories = notes.get("categories", {})
    columns = [
        TableColumn(name=name, kind="category" if name in categories else "number",
                    categories=tuple(categories.get(name, ())))
        for name in notes.get("features", [])
    ]  # fmt: skip
    return list(notes.get("columns", [])) or [column.as_json() for column in columns]


def _training_range(source: FinishedRun) -> tuple[list[float], list[float]]:
    """Return each column's training minimum and maximum; empty for other inputs, graphs, or without local files."""
    import numpy as np
    import pyarrow.parquet as pq

    manifest, folder = source.data.manifest, source.data.folder
    paths = [folder / shard.path for name in manifest.suite.streams for shard in manifest.shards("train", name)]
    if (
        manifest.suite.input_kind != "vector"
        or len(manifest.suite.input_shape) != 1
        or KEY in manifest.suite.extras
        or not all(path.exists() for path in paths)
    ):
        return [], []

    columns = manifest.suite.input_shape[0]
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BLOCK_ROWS, columns=["input"]):
                values = batch.column(0).flatten().to_numpy(zero_copy_only=False).reshape(-1, columns)
                low, high = np.minimum(low, values.min(0)), np.maximum(high, values.max(0))
    return low.tolist(), high.tolist()


def _dtype(source: FinishedRun) -> str:
    import pyarrow.parquet as pq

    manifest = source.data.manifest
    column_type = manifest.types.get("input")
    if column_type is not None:
        return {ENCODED: "uint8", RAGGED: "float16"}.get(column_type, column_type)
    for stream in manifest.suite.streams:
        for shard in manifest.shards("test", stream)[:1]:
            path = source.data.folder / shard.path
            if path.exists():
                return str(kind_of(pq.read_schema(path).field("input"), {})[0])
    return _DTYPES[source.suite.input_kind]


def _word_rule(source: FinishedRun) -> Words | None:
    """Return the rule that split the set's texts into words: the pipeline's, or spaces where it would cut words."""
    vocabulary = source.suite.extras.get("vocabulary")
    if vocabulary is None:
        return None

    try:
        rule: Words | None = getattr(component("datasets", source.record.spec["dataset"]["name"]), "words", None)
    except UserError:  # a plugin that is not loaded
        return None
    from mtlscale.data.format.texts import SEPARATOR, words_in

    if rule is None:
        return None
    set_words = [word for word in vocabulary if word not in (*SPECIAL_WORDS, SEPARATOR)]
    none_cut = all(
        split_words == [word]
        for word, split_words in zip(set_words, words_in(set_words, rule).to_pylist(), strict=True)
    )
    return rule if none_cut else "spaces"


def tokenizer_of(spec: Mapping[str, Any], suite: TaskSuite) -> list[Path]:
    """Return the files of the tokenizer and its configuration; none if token ids are words of the set."""
    tokenizer = suite.extras.get("tokenizer")
    if suite.input_kind != "tokens" or tokenizer is None:
        return []

    for value in (spec["encoder"].get("checkpoint"), spec["dataset"].get("tokenizer")):
        if value is None:
            continue
        try:
            folder = named_files.locate(value) if isinstance(value, Mapping) else Path(value)
        except UserError:
            if value is spec["encoder"].get("checkpoint"):  # the network is built from its configuration
                raise
            continue
        if folder.is_dir() and named_files.tokenizer_hash(folder) == tokenizer["sha256"]:
            return [folder / checkpoints.CONFIG, *checkpoints.tokenizer_files(folder)]
    return []
