"""The keys of an experiment file and the settings of all components, as pages have them: read from the code.

What a key means is the comment beside it in `mtlscale/spec`, on the lines above it or behind it: that is where whoever
adds a key writes it, and a test misses it there.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import re
import tokenize
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mtlscale.metrics import METRICS
from mtlscale.spec import Experiment
from mtlscale.spec.components import PACKAGES, Knob, component, names
from mtlscale.spec.models import ComponentSpec

PLAIN = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "`true` or `false`",
    type(None): "nothing",
    Any: "anything",
}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
KINDS = {
    "balancers": "How task losses or gradients become one update.",
    "architectures": "Which parameters tasks share, and in which phases they are trained.",
    "objectives": "What is added to the task losses.",
    "encoders": "Inputs to features: `model.encoder`.",
    "datasets": "Data sets: `datasets`, their settings below `options`.",
}


def filled(markdown: str) -> str:
    """`<!-- keys -->` and the like replaced by what the code says."""
    for mark, made in (("keys", keys), ("components", components)):
        if f"<!-- {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- {mark} -->", made())
    return markdown


def keys() -> str:
    return "\n\n".join(_section(path, model) for path, model in models())


def models() -> list[tuple[str, type[BaseModel]]]:
    """(where in the file, model) of the experiment and of all that it holds, each behind what holds it first."""
    return list(_models("", Experiment, set()))


def _models(path: str, model: type[BaseModel], seen: set[Any]) -> Iterator[tuple[str, type[BaseModel]]]:
    seen.add(model)
    yield path, model
    for name, field in model.model_fields.items():
        for inner in _mentioned(field.annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel) and inner not in seen:
                many = "[]" if get_origin(field.annotation) in (tuple, dict) else ""
                yield from _models(f"{path}.{name}{many}".lstrip("."), inner, seen)


def _mentioned(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _mentioned(part)


def _section(path: str, model: type[BaseModel]) -> str:
    title = "The file" if not path else "Components" if model is ComponentSpec else f"`{path}`"
    said = comments(model)
    rows = "\n".join(
        f"| `{name}` | {_cell(said.get(name, ''))} | {_value(field)} | {_default(field, said.get(name, ''))} |"
        for name, field in model.model_fields.items()
    )
    intro = " ".join(inspect.cleandoc(model.__doc__ or "").split())
    return f"## {title}\n\n{intro}\n\n| key | what it is | value | default |\n| --- | --- | --- | --- |\n{rows}"


def _value(field: FieldInfo) -> str:
    limits = [f"{sign} {getattr(one, bound):g}" for one in field.metadata for bound, sign in BOUNDS.items()
              if getattr(one, bound, None) is not None]  # fmt: skip
    return " ".join([_kind(field.annotation), ", ".join(limits)]).strip()


def _kind(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        return PLAIN[annotation]
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(part) for part in parts if part is not type(None))
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return "mapping" if parts[1] is Any else f"{_kind(parts[0])} → {_kind(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        where = next(path for path, model in models() if model is annotation)
        return "component" if annotation is ComponentSpec else f"[`{where}`](#{re.sub(r'[^a-z_]', '', where)})"
    return "path" if annotation.__name__ == "Path" else f"`{annotation}`"


def _default(field: FieldInfo, said: str) -> str:
    if field.is_required():
        return "–" if "default:" in said else "required"  # another key's, where this one is not said
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or value in ((), {}, ""):
        return "–"
    if isinstance(value, ComponentSpec):
        return f"`{value.name}`"
    if isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, dict):
        return "; ".join(f"`{name}`: {_short(one)}" for name, one in value.items())
    return f"`{_plain(value)}`"


def _short(dimension: Any) -> str:
    if dimension.choices is not None:
        return f"`{_plain(dimension.choices)}`"
    return f"{dimension.low:g} to {dimension.high:g}, {dimension.scale}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@functools.cache
def comments(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the comment behind it, or on the lines above it."""
    source = inspect.getsource(model)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    told = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    lines = source.splitlines()
    found = {}
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        behind = [told[line].string for line in range(node.lineno, (node.end_lineno or 0) + 1) if line in told]
        above, line = [], node.lineno - 1
        while line in told and lines[line - 1].lstrip().startswith("#"):
            above.insert(0, told[line].string)
            line -= 1
        if text := " ".join(part.lstrip("# ") for part in above + behind):
            found[node.target.id] = text
    return found


def components() -> str:
    parts = [f"## {kind.capitalize()}\n\n{what}\n\n{_named(kind)}" for kind, what in KINDS.items()]
    assert set(KINDS) == set(PACKAGES)
    rows = "\n".join(
        f"| `{name}` | {_cell(info.help)} | {'higher' if info.higher_is_better else 'lower'} | {info.unit} | "
        f"{', '.join(f'`{x}`' for x in info.losses)} |"
        for name, info in METRICS.items()
    )
    metrics = "What tasks report; a data set's `metrics` choose among them, and its losses say which are defined."
    head = "| name | what it is | better | unit | for the losses |\n| --- | --- | --- | --- | --- |"
    return "\n\n".join([*parts, f"## Metrics\n\n{metrics}\n\n{head}\n{rows}"])


def _named(kind: str) -> str:
    return "\n\n".join(_one(kind, component(kind, name)) for name in names(kind, plugins=False))


def _one(kind: str, cls: Any) -> str:
    formula = (
        f" [The mathematics](methods.md#{cls.name})." if kind in ("balancers", "architectures", "objectives") else ""
    )
    source = f" *{cls.source[:1].upper()}{cls.source[1:]}.*" if cls.source else ""
    text = f"### `{cls.name}`\n\n{cls.summary()}{source}{formula}"
    if not cls.knobs():
        return text
    rows = "\n".join(
        f"| `{name}` | {_cell(spec.help)} | {_shown(default)} | {_range(spec)} | {_searched(spec.search)} |"
        for name, (default, spec) in cls.knobs().items()
    )
    return f"{text}\n\n| setting | what it is | default | range | searched |\n| --- | --- | --- | --- | --- |\n{rows}"


def _range(spec: Knob) -> str:
    return _cell(spec.range()) or "–"


def _shown(default: Any) -> str:
    return "–" if default is None or default in ("", (), [], {}) else f"`{_plain(default)}`"


def _searched(search: tuple[Any, ...]) -> str:
    if len(search) == 3 and search[2] in ("log", "linear"):
        return f"{search[0]:g} to {search[1]:g}, {search[2]}"
    return f"`{_plain(search)}`" if search else "–"
