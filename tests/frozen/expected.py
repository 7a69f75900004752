"""What the cases ended with when they were frozen, and which of them may end otherwise since.

In the file the numbers of every run stand in one row, behind the name of their shape: most of it would else be keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Result = dict[str, Any]

FILE = Path(__file__).with_name("runs.json")
DIGITS = 15
# Name of a case -> why its method was mended since: it has to run to its end, but may end elsewhere.
MENDED: dict[str, str] = {}


def expected() -> dict[str, list[Result]]:
    """Name of a case -> its results, one for each trial; empty before the first freeze."""
    if not FILE.exists():
        return {}
    content = json.loads(FILE.read_text(encoding="utf-8"))
    shapes = content["shapes"]
    return {
        name: [_whole(_filled(shape, shapes, iter(leaves))) for shape, *leaves in rows]
        for name, rows in content["cases"].items()
    }


def write(results: Mapping[str, list[Result]]) -> None:
    """One line for each shape and case."""
    shapes: dict[str, str] = {}
    cases = {}
    for name in sorted(results):
        short = [_shortened(rounded(one)) for one in results[name]]
        cases[name] = _text([[_shape(one, shapes), *_leaves(one)] for one in short])
    tables = [",\n".join(f"{_text(key)}:{table[key]}" for key in sorted(table)) for table in (shapes, cases)]
    FILE.write_text('{"shapes":{\n' + '\n},"cases":{\n'.join(tables) + "\n}}\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """As it is kept: more digits than the tolerance asks for, but not all."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _shortened(one: Result) -> Result:
    """Without what is empty and, of a finished run's chosen parameters and their metrics, those that are the last."""
    if one["status"] == "finished":
        chosen = {name: tensor for name, tensor in one["chosen"].items() if one["last"][name] != tensor}
        metrics = {split: v for split, v in one["metrics"].items() if one["metrics"].get(f"last {split}") != v}
        one = {**one, "chosen": chosen, "metrics": metrics}
    return {key: value for key, value in one.items() if value or value == 0}


def _whole(one: Result) -> Result:
    if one["status"] != "finished":
        return one
    last = {split: one["metrics"][f"last {split}"] for split in ("val", "test")}
    return {**one, "chosen": {**one["last"], **one.get("chosen", {})}, "metrics": {**last, **one["metrics"]}}


def _shape(value: Any, shapes: dict[str, str]) -> Any:
    """The value with null for every leaf, its length for a list of leaves and, where that is shorter, the key in
    `shapes` of a dictionary's shape."""
    if isinstance(value, dict):
        shape = {key: _shape(entry, shapes) for key, entry in value.items()}
        text = _text(shape)
        if len(text) < 16:
            return shape
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        shapes[key] = text
        return key
    if isinstance(value, list):
        nested = any(isinstance(entry, dict | list) for entry in value)
        return [_shape(entry, shapes) for entry in value] if nested else len(value)
    return None


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        entries = value.values() if isinstance(value, dict) else value
        return [leaf for entry in entries for leaf in _leaves(entry)]
    return [value]


def _filled(shape: Any, shapes: Mapping[str, Any], leaves: Iterator[Any]) -> Any:
    if isinstance(shape, str):
        shape = shapes[shape]
    if isinstance(shape, dict):
        return {key: _filled(entry, shapes, leaves) for key, entry in shape.items()}
    if isinstance(shape, list):
        return [_filled(entry, shapes, leaves) for entry in shape]
    return next(leaves) if shape is None else [next(leaves) for _ in range(shape)]


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
