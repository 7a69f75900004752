"""Values of options as a component's fields want them."""

from __future__ import annotations

import math
import re
from typing import Any

_LIST = re.compile(r"tuple\[(\w+), \.\.\.\]")


def fitted(value: Any, annotation: str, default: Any) -> Any:
    """The value for a field of this type; whole floats become integers, integers floats, lists tuples.

    `ValueError` with what it should be. Types that are not told apart here are taken as they are.
    """
    optional = default is None or annotation.endswith("| None")
    if value is None:
        if optional:
            return None
        raise ValueError(f"should be {_word(annotation, default)}")
    kind = annotation.removesuffix(" | None")
    entries = _LIST.fullmatch(kind)
    if entries is not None or isinstance(default, tuple):
        if not isinstance(value, list | tuple):
            raise ValueError("should be a list")
        return tuple(_scalar(one, entries[1] if entries else "") for one in value)
    return _scalar(value, kind if kind in _WORDS else type(default).__name__)


_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "dict": "a mapping"}


def _word(annotation: str, default: Any) -> str:
    return _WORDS.get(annotation) or _WORDS.get(type(default).__name__, "a list")


def _scalar(value: Any, kind: str) -> Any:
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 1 << 1000 else math.copysign(math.inf, value)
    if kind == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)
    known = {"bool": bool, "int": int, "float": float, "str": str, "dict": dict}.get(kind)
    if known is not None and (not isinstance(value, known) or (isinstance(value, bool) and kind != "bool")):
        raise ValueError(f"should be {_WORDS[kind] if kind != 'int' or isinstance(value, float) else 'a number'}")
    return value
