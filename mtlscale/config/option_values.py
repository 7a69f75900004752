"""Conversion of option values to the types of a component's fields.

Not by pydantic: balancers are used outside of experiments, where torch and numpy are enough.
"""

from __future__ import annotations

import math
import re
from typing import Any

_LIST = re.compile(r"tuple\[(\w+), \.\.\.\]")


def fitted(value: Any, annotation: str, default: Any) -> Any:
    """Convert a value to the type of a field: whole floats become integers, integers floats, lists tuples.

    Types that are not distinguished here are taken as they are.

    Args:
        value: The value from the experiment file.
        annotation: The field's type as it is written.
        default: The field's default.

    Raises:
        ValueError: With the expected type, if the value does not fit.
    """
    optional = default is None or annotation.endswith("| None")
    if value is None:
        if optional:
            return None
        raise ValueError(f"should be {_word(annotation, default)}")

    kind = annotation.removesuffix(" | None")
    if kind.startswith("str | dict"):
        if not isinstance(value, str | dict):
            raise ValueError("should be a name, or a name with its settings")
        return value
    entries = _LIST.fullmatch(kind)
    if entries is not None or isinstance(default, tuple):
        if not isinstance(value, list | tuple):
            raise ValueError("should be a list")
        return tuple(_scalar(entry, entries[1] if entries else "") for entry in value)

    return _scalar(value, kind if kind in _WORDS else type(default).__name__)


_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "dict": "a mapping, such as {KEY: VALUE}",
}


def _word(annotation: str, default: Any) -> str:
    return _WORDS.get(annotation) or _WORDS.get(type(default).__name__, "a list")


def _scalar(value: Any, kind: str) -> Any:
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 1 << 1000 else math.copysign(math.inf, value)
    if kind == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)

    expected_type = {"bool": bool, "int": int, "float": float, "str": str, "dict": dict}.get(kind)
    if expected_type is not None and (
        not isinstance(value, expected_type) or (isinstance(value, bool) and kind != "bool")
    ):
        raise ValueError(f"should be {_WORDS[kind] if kind != 'int' or isinstance(value, float) else 'a number'}")
    return value
