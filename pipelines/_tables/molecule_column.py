"""The column of molecules in a table whose options do not name it, and the columns beside it that may be targets."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mtlscale.data.tables.arrow_types import is_text
from mtlscale.data.tables.smiles import BadSmiles, read_smiles
from pipelines._tables.inputs import input_kind, no_input
from pipelines._tables.suspicions import row_names
from pipelines._tables.targets import guess_kind
from pipelines._tables.text_columns import FEW_VALUES

_NAMED = re.compile(r"smiles|^smi$|^mol(ecule)?s?$", re.IGNORECASE)
_SAMPLE = 200  # texts that are looked at
_SHARE, _SHARE_IF_NAMED = 0.95, 0.5  # of them that have to be SMILES
_LENGTH = 5  # letters on average; shorter texts are rather words
_FEWEST = 3  # rows of a class that may be a target: one for each split


def molecule_column(table: pa.Table, candidates: Sequence[str]) -> str:
    """Return the column whose texts are SMILES, "" if there is none; one that is called so comes first."""
    for name in sorted(candidates, key=lambda name: _NAMED.search(name) is None):
        if not is_text(table[name].type):
            continue
        values = table[name].drop_null()
        rows = np.unique(np.linspace(0, max(0, len(values) - 1), _SAMPLE).astype(int))[: len(values)]
        texts = [text.strip() for text in values.take(pa.array(rows)).to_pylist() if text.strip()]
        if not texts:
            continue
        share = float(np.mean([_is_smiles(text) for text in texts]))
        if _NAMED.search(name) and share >= _SHARE_IF_NAMED:
            return name
        if share >= _SHARE and np.mean([len(text) for text in texts]) >= _LENGTH and row_names(name, table[name]):
            return name
    return ""


def assays(table: pa.Table, candidates: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns that may be targets of molecules -> `auto`, and the others -> the reason why they may not."""
    reasons: dict[str, str] = {}
    for name in candidates:
        column = table[name]
        if reason := no_input(table.schema.field(name)) or row_names(name, column):
            reasons[name] = reason if pa.types.is_null(column.type) else f"seems to name the rows: {reason}"
        elif input_kind(column.type) is None or guess_kind(table, name)[0] == "multilabel":
            reasons[name] = f"holds {column.type}, no classes or numbers"
        elif guess_kind(table, name)[0] == "class":
            counts = np.array([entry["counts"].as_py() for entry in column.drop_null().value_counts()])
            if len(counts) < 2:
                reasons[name] = "always the same"
            elif counts.min() < _FEWEST:
                reasons[name] = f"its rarest class has {counts.min()} of {counts.sum()} rows"
            elif is_text(column.type) and len(counts) > FEW_VALUES:
                reasons[name] = f"{len(counts)} different texts"
    return {name: "auto" for name in candidates if name not in reasons}, reasons


def _is_smiles(text: str) -> bool:
    try:
        read_smiles(text)
    except BadSmiles:
        return False
    return True
