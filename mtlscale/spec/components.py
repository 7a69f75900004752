"""Named building blocks and their knobs: what `mtlscale list` shows and an experiment file may set.

A component is a class in a module of the same name (`balancing/getmtl.py` holds the balancer `getmtl`), so its name
leads to its source and adding one touches one new file. Names are read from the folder, without importing anything.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.util
import json
import math
import pkgutil
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, dataclass_transform

from mtlscale.spec.errors import UserError
from mtlscale.spec.options import fitted
from mtlscale.spec.paths import is_file
from mtlscale.spec.source_code import bytes_hash, code_hash
from mtlscale.spec.synonyms import names_here, plain

FileKind = bool | Literal["checkpoint", "tokenizer"]
PACKAGES = {
    "balancers": "mtlscale.balancing",
    "architectures": "mtlscale.architectures",
    "encoders": "mtlscale.encoders",
    "objectives": "mtlscale.objectives",
    "datasets": "pipelines",
}

METRICS = "mtlscale.metrics.names"  # the shipped metrics are no classes: a table in this module

_PLUGINS: dict[str, dict[str, type[Component]]] = {kind: {} for kind in (*PACKAGES, "metrics")}
_NAME = re.compile(r"\w[\w.+-]{0,99}")
_SOURCES: dict[type[Component], str] = {}  # class of a plugin -> hash of its file's code
# Hash -> what an earlier version had in its place, so that its runs are found: it hashed the bytes of plugins.
FORMER_HASHES: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Knob:
    """The range of one setting; `search` is the default range of a sweep: (low, high, "log" | "linear") or choices."""

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    choices: tuple[Any, ...] = ()
    search: tuple[Any, ...] = ()
    help: str = ""
    # The path of a file, or of a folder with a pretrained model or its tokenizer; it counts by its content.
    file: FileKind = False

    def range(self) -> str:
        """The admissible values in words, as error messages and `mtlscale list` print them."""
        if self.choices:
            return " | ".join(str(choice) for choice in self.choices)
        if self.low is None and self.high is None:
            return ""
        left = "(" if self.open_low or self.low is None else "["
        right = ")" if self.open_high or self.high is None else "]"
        return (
            f"{left}{'-∞' if self.low is None else format(self.low, 'g')}, "
            f"{'∞' if self.high is None else format(self.high, 'g')}{right}"
        )

    def admits(self, value: Any) -> bool:
        """Of a list, whether every entry is admissible."""
        if isinstance(value, list | tuple) and not self.choices:
            return all(map(self.admits, value))
        if self.choices:
            return value in self.choices
        if self.low is None and self.high is None:
            return True
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        above = self.low is None or value > self.low or (value == self.low and not self.open_low)
        below = self.high is None or value < self.high or (value == self.high and not self.open_high)
        return above and below


def knob(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    open_high: bool = False,
    choices: Sequence[Any] = (),
    search: Sequence[Any] = (),
    help: str = "",
    file: FileKind = False,
) -> Any:
    """A component's setting: its default, admissible range and default search range."""
    spec = Knob(low, high, open_low, open_high, tuple(choices), tuple(search), help, file)
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata={"knob": spec})
    return dataclasses.field(default=default, metadata={"knob": spec})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(knob,))
class Component:
    """Base of everything chosen by name. Subclasses are frozen, keyword-only dataclasses whose fields are knobs."""

    name: ClassVar[str]
    source: ClassVar[str] = ""  # paper and equation
    results_version: ClassVar[int] = 1  # raise when the results change: finished runs are then run again

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            spec = field.metadata.get("knob")
            value = getattr(self, field.name)
            if spec is not None and value is not None and not spec.admits(value):
                shown = list(value) if isinstance(value, tuple) else value
                raise UserError(f"{self.name}: {field.name} = {shown!r} is outside {spec.range()}")
            if any(isinstance(one, float) and not math.isfinite(one) for one in _entries(value)):
                raise UserError(f"{self.name}: {field.name} = {value!r} should be finite")

    @classmethod
    def knobs(cls) -> dict[str, tuple[Any, Knob]]:
        """Each setting's default and range."""
        result = {}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            default = field.default
            if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            result[field.name] = (default, field.metadata.get("knob", Knob()))
        return result

    @classmethod
    def check_class(cls) -> None:
        """When a plugin is loaded: `ValueError` where what the class declares is not what its kind knows."""

    def rehearse(self) -> None:
        """Before anything starts: `UserError` where it plainly does not do what its kind does."""

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]


def _entries(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def names(kind: str, *, plugins: bool = True) -> list[str]:
    """All names of one kind, those of plugins among them where wanted, without importing their modules."""
    return sorted({*_shipped(kind), *(_PLUGINS[kind] if plugins else ())})


@functools.cache
def _shipped(kind: str) -> tuple[str, ...]:
    """The names of the files there are; asked for many times a run."""
    if kind == "metrics":
        return tuple(importlib.import_module(METRICS).METRICS)
    package = importlib.util.find_spec(PACKAGES[kind])
    if package is None or package.submodule_search_locations is None:
        raise UserError(f"package {PACKAGES[kind]!r} is not installed; reinstall mtlscale")
    modules = pkgutil.iter_modules(package.submodule_search_locations)
    return tuple(module.name for module in modules if not module.name.startswith("_"))


_MOST_NAMES = 12  # that a message lists; of more, the nearest


def nearest(name: str, candidates: Sequence[str], *, listing: str = "") -> str:
    """Return a clause with the name that was meant, or the most similar known ones, for error messages.

    Args:
        name: What nobody knows.
        candidates: What is known.
        listing: What `mtlscale list` shows of them, for names that are too many for a line.
    """
    meant = [other for other in names_here(name) if other in candidates]
    if meant:
        return f"it is called {' or '.join(meant)} here"

    same = [candidate for candidate in candidates if plain(candidate) == plain(name)]
    close = same or difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"

    if len(candidates) <= _MOST_NAMES:
        return f"known: {', '.join(candidates)}"
    some = ", ".join(difflib.get_close_matches(name, candidates, n=5, cutoff=0.0))
    return f"the nearest are {some}" + (f"; `mtlscale list {listing}` has all" if listing else "")


def component(kind: str, name: str) -> type[Any]:
    """The class of that name; `UserError` with the nearest names where there is none."""
    if name in _PLUGINS[kind]:
        return _PLUGINS[kind][name]
    if name not in _shipped(kind):
        raise UserError(f"unknown {kind[:-1]} {name!r}: {nearest(name, names(kind), listing=kind)}")
    return _shipped_component(kind, name)


@functools.cache
def _shipped_component(kind: str, name: str) -> type[Any]:
    """Asked for many times a run."""
    module = importlib.import_module(f"{PACKAGES[kind]}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Component) and value.__dict__.get("name") == name:
            return value
    raise TypeError(f"{module.__name__} defines no component named {name!r}")


def from_plugin(component: Component) -> bool:
    """Whether it comes from a user's file; a plugin has no shipped name."""
    return component.name in _PLUGINS.get(getattr(component, "kind", ""), {})


def build(kind: str, name: str, options: dict[str, Any] | None = None, where: str = "") -> Any:
    """An instance with these options; unknown or ill-typed options are a `UserError` that names the known ones."""
    cls = component(kind, name)
    options = dict(options or {})
    known = cls.knobs()
    for key in options:
        if key not in known:
            hint = nearest(key, list(known)) if known else "it has none"
            raise UserError(f"{where or name}: unknown option {key!r}; {hint}")
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    for key, value in options.items():
        default, spec = known[key]
        if spec.file and isinstance(value, dict):  # as a run's spec keeps it
            continue
        if spec.file and value is not None and not isinstance(value, str):
            what = "file" if spec.file is True else "folder"
            raise UserError(f"{where or name}: {key} = {value!r} should be the path of a {what}")
        try:
            options[key] = fitted(value, _told(types[key]), default)
        except ValueError as error:
            raise UserError(f"{where or name}: {key} = {value!r} {error}") from None
    try:
        return cls(**options)
    except UserError:
        raise
    except Exception as error:
        told = plugin_error(cls, error)
        if told is None:
            raise
        raise told from error


def _told(annotation: Any) -> str:
    """A field's type as it is written."""
    return annotation.__name__ if type(annotation) is type else str(annotation)


def plugin_error(cls: type[Component], error: BaseException) -> UserError | None:
    """What the code of a plugin has raised, in one line with its place; None where the class is shipped."""
    if not source_hash(cls):
        return None
    path = Path(str(sys.modules[cls.__module__].__file__))
    kind = str(getattr(cls, "kind", ""))[:-1]
    return UserError(f"{_place(path, error)}: {kind} {cls.name}: {_first_line(error)}; mend the plugin")


def _place(path: Path, error: BaseException) -> str:
    """The file, and the line of it where an error arose."""
    names = (str(path), str(path.absolute()))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"{path}:{line}" if line else str(path)


def _first_line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def source_hash(cls: type[Component]) -> str:
    """A hash of the code of the file that a plugin's class comes from; "" for what is shipped."""
    return _SOURCES.get(cls, "")


def plugin_file(cls: type[Component]) -> str:
    """The name of the file that a plugin's class comes from; "" for what is shipped."""
    return Path(str(sys.modules[cls.__module__].__file__)).name if source_hash(cls) else ""


def same_source(cls: type[Component], digest: str) -> bool:
    """Return whether a hash that this or an earlier version has noted is that of the class's file."""
    now = source_hash(cls)
    return digest in (now, FORMER_HASHES.get(now, now))


def load_plugins(paths: Sequence[Path]) -> None:
    """`load_plugin` of each; `UserError` where two have the same file name, or define the same component."""
    places: dict[str, Path] = {}
    owners: dict[tuple[str, str], Path] = {}
    for path in paths:
        other = places.setdefault(path.stem, path)
        if other.absolute() != path.absolute():
            raise UserError(f"plugins {other} and {path} have the same name; rename one of the files")
        for key in load_plugin(path):
            if owners.setdefault(key, path).absolute() != path.absolute():
                raise UserError(f"plugins {owners[key]} and {path} both define the {key[0][:-1]} {key[1]}; rename one")


def load_plugin(path: Path) -> list[tuple[str, str]]:
    """Import a user's file, make its components known by their names, and return those as (kind, name).

    A component belongs to the kind whose base class it derives from. Raises `UserError` where the file is missing,
    cannot be imported, defines none, or takes a name that is shipped.
    """
    if not is_file(path):
        raise UserError(f"plugin {path} does not exist")
    if path.suffix != ".py":
        raise UserError(f"plugin {path} is no Python file (.py)")
    module_name = f"mtlscale_plugin_{path.stem}"
    module = _imported(module_name, path)
    found: dict[tuple[str, str], type[Component]] = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Component) and "name" in value.__dict__:
            kind = getattr(value, "kind", "")
            if value.__module__ != module_name or not isinstance(kind, str) or kind not in _PLUGINS:
                continue
            _check_class(path, value, kind)
            found[kind, value.name] = value
    if not found:
        raise UserError(
            f"plugin {path} defines no balancer, architecture, encoder, objective, metric or pipeline with a name"
        )
    source = path.read_bytes()
    digest = code_hash(source)
    FORMER_HASHES[digest] = bytes_hash(source)
    for (kind, name), cls in found.items():
        _PLUGINS[kind][name] = cls
        _SOURCES[cls] = digest
    return list(found)


def _imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look a class's module up
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise UserError(f"plugin {_place(path, error)} cannot be imported: {_first_line(error)}") from error
    return module


def _check_class(path: Path, cls: type[Component], kind: str) -> None:
    """`UserError` where a plugin's class is none that can be named, described and run."""
    where = f"plugin {path}: {cls.__name__}"
    if not isinstance(cls.name, str) or not _NAME.fullmatch(cls.name):
        raise UserError(f"{where}: name = {cls.name!r} should be a word of letters, digits, _, + or -")
    if cls.name in _shipped(kind):
        raise UserError(f"plugin {path}: {cls.name} is a shipped {kind[:-1]}; give yours another name")
    if type(cls.results_version) is not int:
        raise UserError(f"{where}: results_version = {cls.results_version!r} should be a whole number")
    for knob, (default, _) in cls.knobs().items():
        try:
            json.dumps(default, allow_nan=False)
        except (TypeError, ValueError):
            raise UserError(f"{where}: {knob} needs a default that is a number, a text or a list of them") from None
    try:
        cls.check_class()
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
