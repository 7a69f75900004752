"""Reference of the experiment file: each key's meaning, values and default, read from the code.

The meaning of a key is the comment beside it, on the lines above it or behind it. Whoever adds a key writes its comment
there; a test fails without one.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import tokenize
import types
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mtlscale.config.experiment.experiment import Experiment
from mtlscale.config.sections import sections
from mtlscale.config.settings.models import ComponentSpec

ROOT = "experiment"  # the section of the keys at the top of the file

_PLAIN = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "`true` or `false`",
    type(None): "nothing",
    Any: "anything",
}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class Key:
    """The reference entry of one key; `value` and `default` have words of the file in backticks.

    Names of sections are in brackets, too.
    """

    name: str
    meaning: str
    value: str
    default: str


@dataclass(frozen=True)
class Section:
    """The keys of one section; `path` is its position in the file, with `[]` behind lists."""

    path: str
    intro: str
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        """The section's name as `mtlscale list keys` takes it."""
        return self.path.replace("[]", "") or ROOT

    @property
    def of_components(self) -> bool:
        """Return whether these are the keys of a component, in any section."""
        return self.path == _section_path(ComponentSpec)


@functools.cache
def key_reference() -> tuple[Section, ...]:
    """Return all sections of the experiment file in its own order."""
    return tuple(_section(path, model) for path, model in sections(Experiment))


def _section(path: str, model: type[BaseModel]) -> Section:
    meanings = comments(model)
    keys = (
        Key(name, meanings.get(name, ""), _value(field), _default(field, meanings.get(name, "")))
        for name, field in model.model_fields.items()
    )
    return Section(path, " ".join(inspect.cleandoc(model.__doc__ or "").split()), tuple(keys))


def _value(field: FieldInfo) -> str:
    limits = [
        f"{sign} {getattr(bound, name):g}"
        for bound in field.metadata
        for name, sign in _BOUNDS.items()
        if getattr(bound, name, None) is not None
    ]
    return " ".join([_type_text(field.annotation), ", ".join(limits)]).strip()


def _type_text(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]

    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_text(part) for part in parts if part is not type(None))

    if origin is tuple:
        return f"list of {_type_text(parts[0])}"
    if origin is dict:
        return "mapping" if parts[1] is Any else f"{_type_text(parts[0])} → {_type_text(parts[1])}"

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "component" if annotation is ComponentSpec else f"[`{_section_path(annotation)}`]"
    return "path" if annotation.__name__ == "Path" else f"`{annotation}`"


def _section_path(model: type[BaseModel]) -> str:
    return next(path for path, section in sections(Experiment) if section is model)


def _default(field: FieldInfo, meaning: str) -> str:
    if field.is_required():
        return "–" if "default:" in meaning else "required"  # the default is another key's value

    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or value in ((), {}, ""):
        return "–"

    if isinstance(value, ComponentSpec):
        return f"`{value.name}`"
    if isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, dict):
        return "; ".join(f"`{name}`: {_range(dimension)}" for name, dimension in value.items())
    return f"`{format_value(value)}`"


def _range(dimension: Any) -> str:
    if dimension.choices is not None:
        return f"`{format_value(dimension.choices)}`"
    return f"{dimension.low:g} to {dimension.high:g}, {dimension.scale}"


def format_value(value: Any) -> str:
    """Return a value as an experiment file writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@functools.cache
def comments(model: type[BaseModel]) -> dict[str, str]:
    """Return field -> the comment behind it, or on the lines above it."""
    source = inspect.getsource(model)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    lines = source.splitlines()

    meanings = {}
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)

    for node in definition.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        comments_behind = [
            by_line[line].string for line in range(node.lineno, (node.end_lineno or 0) + 1) if line in by_line
        ]
        comments_above: list[str] = []
        line = node.lineno - 1
        while line in by_line and lines[line - 1].lstrip().startswith("#"):
            comments_above.insert(0, by_line[line].string)
            line -= 1
        if text := " ".join(part.lstrip("# ") for part in comments_above + comments_behind):
            meanings[node.target.id] = text
    return meanings
