"""Conversion of option values to the types of a component's fields, by pydantic."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, StrictBool, StrictStr, TypeAdapter, ValidationError


def _number(value: Any) -> Any:
    """Refuse what pydantic would read as a number."""
    if isinstance(value, str | bool):
        raise ValueError(value)
    return value


_TYPES = {
    "bool": StrictBool,
    "int": Annotated[int, BeforeValidator(_number)],
    "float": Annotated[float, BeforeValidator(_number)],
    "str": StrictStr,
    "Any": Any,
}
_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "dict": "a mapping"}


def fitted(value: Any, annotation: str, default: Any) -> Any:
    """Convert a value to the type of a field: whole floats become integers, integers floats, lists tuples.

    Types that cannot be told from the annotation or the default are taken as they are.

    Args:
        value: The value from the experiment file.
        annotation: The field's type as it is written.
        default: The field's default.

    Raises:
        ValueError: With the expected type, if the value does not fit.
    """
    if value is None and default is None:
        return None

    kind = "dict" if annotation.startswith("dict[") else annotation.removesuffix(" | None")
    adapter = _adapter(kind if value is not None else annotation)
    if adapter is None:  # a type of a plugin's own
        kind = "tuple[Any, ...]" if isinstance(default, tuple) else type(default).__name__
        adapter = _adapter(kind) or _adapter("Any")
    assert adapter is not None
    try:
        return adapter.validate_python(value)
    except ValidationError:
        raise ValueError(f"should be {_expected(kind, value)}") from None


@functools.cache
def _adapter(annotation: str) -> TypeAdapter[Any] | None:
    """Return pydantic's validator of a type, None where its name is unknown."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=ConfigDict(defer_build=True))  # type: ignore[arg-type]
    return adapter if adapter.rebuild(raise_errors=False, _types_namespace=_TYPES) else None


def _expected(kind: str, value: Any) -> str:
    """Return the words for a type, or for that of its entries where the value is a list."""
    if kind.startswith("str | dict"):
        return "a name, or a name with its settings"
    outer, _, entries = kind.partition("[")
    if outer in ("tuple", "list") and isinstance(value, list | tuple):
        return _WORDS.get(entries.split(",")[0].rstrip("]"), "a list")
    return _WORDS.get(outer, "a list")
