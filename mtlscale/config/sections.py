"""The sections of an experiment file: the models it consists of, and their positions in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel


def sections(model: type[BaseModel]) -> list[tuple[str, type[BaseModel]]]:
    """Return (path, model) of a model and of all models in its fields, each behind the first that contains it.

    `[]` marks lists.
    """
    return list(_sections("", model, set()))


def _sections(path: str, model: type[BaseModel], seen: set[Any]) -> Iterator[tuple[str, type[BaseModel]]]:
    seen.add(model)
    yield path, model

    for name, field in model.model_fields.items():
        for inner in _mentioned(field.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel) and inner not in seen:
                many = "[]" if get_origin(field.annotation) in (tuple, dict) else ""
                yield from _sections(f"{path}.{name}{many}".lstrip("."), inner, seen)


def _mentioned(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _mentioned(part)
