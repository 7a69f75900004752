"""Registry of named components and their knobs: `mtlscale list` shows them, and an experiment file sets them.

A component is a class in a module of the same name (`balancing/getmtl.py` holds the balancer `getmtl`), so its name
leads to its source and adding one touches one new file: in a sub-folder of its kind (`balancing/gramian`), or in the
kind's folder of a family (`mtlscale/nas/architectures`). Names are read from the folder, without importing anything.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import json
import math
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, dataclass_transform

from mtlscale.config.errors import UserError
from mtlscale.config.option_values import fitted
from mtlscale.config.paths import is_file
from mtlscale.config.registry.extensions import shipped_modules
from mtlscale.config.registry.helpers import find_beside, helper_files, plugin_hash
from mtlscale.config.registry.import_order import AsWritten, use_own_pipelines
from mtlscale.config.registry.installed import entry_modules, package_hash
from mtlscale.config.registry.nearest import file_hint, nearest
from mtlscale.config.registry.report_parts import declared_by
from mtlscale.config.registry.synonyms import plain

FileKind = bool | Literal["checkpoint", "tokenizer"]
PACKAGES = {
    "balancers": "mtlscale.balancing",
    "architectures": "mtlscale.architectures",
    "encoders": "mtlscale.encoders",
    "objectives": "mtlscale.objectives",
    "datasets": "pipelines",
}
_FOLDERS = {"balancers": "balancing"}  # of a kind in a family, where it is not called as the kind is

METRICS = "mtlscale.metrics"  # the files of its sub-packages have several metrics each

_PLUGINS: dict[str, dict[str, type[Component]]] = {kind: {} for kind in (*PACKAGES, "metrics")}
_NAME = re.compile(r"\w[\w.+-]{0,99}")
_SOURCES: dict[type[Component], str] = {}  # class of a plugin -> hash of its file's code


@dataclasses.dataclass(frozen=True)
class Knob:
    """The admissible range of one setting, and its default search range.

    `search` is the default range of a sweep: (low, high, "log" | "linear") or choices.
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    choices: tuple[Any, ...] = ()
    search: tuple[Any, ...] = ()
    help: str = ""
    # The path of a file, or of a folder with a pretrained model or its tokenizer; it counts by its content.
    file: FileKind = False
    # It came after runs were made: at its default it is no part of a run, so that these runs stay what they are.
    # Raising RESULTS_VERSION makes all runs anew: then every `later` goes.
    later: bool = False

    def range(self) -> str:
        """Return the admissible values in words, as error messages and `mtlscale list` print them."""
        if self.choices:
            return " | ".join(str(choice) for choice in self.choices)
        if self.low is None and self.high is None:
            return ""

        lower_bracket = "(" if self.open_low or self.low is None else "["
        upper_bracket = ")" if self.open_high or self.high is None else "]"
        return (
            f"{lower_bracket}{'-∞' if self.low is None else format(self.low, 'g')}, "
            f"{'∞' if self.high is None else format(self.high, 'g')}{upper_bracket}"
        )

    def admits(self, value: Any) -> bool:
        """Return whether a value, or every entry of a list, is admissible."""
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
    later: bool = False,
) -> Any:
    """Declare a component's setting with its default, admissible range and default search range.

    Args:
        default: The default value; a list or mapping is copied for every instance.
        low: The smallest admissible value.
        high: The largest admissible value.
        open_low: Whether `low` itself is excluded.
        open_high: Whether `high` itself is excluded.
        choices: The admissible values, in place of a range.
        search: The default range of a sweep: (low, high, "log" | "linear") or choices.
        help: The text that `mtlscale list` shows.
        file: Whether the setting names a file, or the kind of folder that it names (`Knob.file`).
        later: Whether it came after runs were made (`Knob.later`).
    """
    spec = Knob(low, high, open_low, open_high, tuple(choices), tuple(search), help, file, later)

    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata={"knob": spec})
    return dataclasses.field(default=default, metadata={"knob": spec})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(knob,))
class Component:
    """Base of everything chosen by name; subclasses are frozen, keyword-only dataclasses whose fields are knobs."""

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
            if any(isinstance(entry, float) and not math.isfinite(entry) for entry in _entries(value)):
                raise UserError(f"{self.name}: {field.name} = {value!r} should be finite")

    @classmethod
    def knobs(cls) -> dict[str, tuple[Any, Knob]]:
        """Return each setting's default and range."""
        result = {}

        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            default = field.default
            if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            result[field.name] = (default, field.metadata.get("knob", Knob()))
        return result

    def knob_values(self) -> dict[str, Any]:
        """Return the settings that a run is known by: all but later ones at their defaults."""
        values = {name: (getattr(self, name), default, spec) for name, (default, spec) in self.knobs().items()}
        return {name: value for name, (value, default, spec) in values.items() if not spec.later or value != default}

    @classmethod
    def check_class(cls) -> None:
        """Check the class of a plugin when it is loaded.

        Raises:
            ValueError: If the class declares something that its kind does not support.
        """

    def rehearse(self) -> None:
        """Check an instance before anything starts.

        Raises:
            UserError: If it plainly does not do what its kind does.
        """

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]


def _entries(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def names(kind: str, *, plugins: bool = True) -> list[str]:
    """List all names of one kind, sorted, without importing their modules.

    Args:
        kind: A key of `PACKAGES`, or "metrics".
        plugins: Whether to include the components of loaded plugins and of installed packages.
    """
    if plugins:
        load_installed()
    return sorted({*_shipped(kind), *(_PLUGINS[kind] if plugins else ())})


@functools.cache
def _shipped(kind: str) -> tuple[str, ...]:
    """Return the shipped names of a kind; cached, since it is called many times a run."""
    return tuple(shipped_metrics() if kind == "metrics" else _modules(kind))


@functools.cache
def shipped_metrics() -> dict[str, type[Any]]:
    """Return name -> class of the shipped metrics, in the order of their files."""
    modules = [importlib.import_module(module) for module in shipped_modules(METRICS, "metrics")]
    return {name: cls for (_, name), cls in _classes_of(modules, "").items()}


@functools.cache
def _modules(kind: str) -> dict[str, str]:
    """Return name -> module of the shipped components of a kind, without importing any."""
    if kind == "datasets":
        use_own_pipelines()
    return {module.rpartition(".")[2]: module for module in shipped_modules(PACKAGES[kind], _FOLDERS.get(kind, kind))}


def component(kind: str, name: str) -> type[Any]:
    """Return the class of a component.

    Raises:
        UserError: If no component has this name; the message lists the nearest names.
    """
    if name in _PLUGINS[kind]:
        return _PLUGINS[kind][name]
    if name not in _shipped(kind):
        load_installed()
        if name in _PLUGINS[kind]:
            return _PLUGINS[kind][name]
        hint = other_kind(name, kind) or (file_hint(name) if kind == "datasets" else "")
        hint = hint or nearest(name, names(kind), listing=kind)
        raise UserError(f"unknown {kind[:-1]} {name!r}: {hint}")
    return _shipped_component(kind, name)


def other_kind(name: str, *kinds: str) -> str:
    """Return a clause with the other kinds of component that have a name; "" if it may be meant for one of `kinds`."""
    if any(plain(candidate) == plain(name) for kind in kinds for candidate in names(kind)):
        return ""
    others = [
        _NOUNS.get(other, other[:-1])
        for other in PACKAGES
        if other not in kinds and any(plain(known) == plain(name) for known in names(other))
    ]
    return (
        f"it is {' and '.join(('an ' if other[0] in 'aeio' else 'a ') + other for other in others)}" if others else ""
    )


_NOUNS = {"datasets": "data set"}


@functools.cache
def _shipped_component(kind: str, name: str) -> type[Any]:
    """Import a shipped component's class; cached, since it is called many times a run."""
    if kind == "metrics":
        return shipped_metrics()[name]
    module = importlib.import_module(_modules(kind)[name])
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Component) and value.__dict__.get("name") == name:
            return value
    raise TypeError(f"{module.__name__} defines no component named {name!r}")


def from_plugin(component: Component) -> bool:
    """Return whether a component comes from a user's file; a plugin has no shipped name."""
    return component.name in _PLUGINS.get(getattr(component, "kind", ""), {})


def build(kind: str, name: str, options: dict[str, Any] | None = None, where: str = "") -> Any:
    """Build a component with the given options.

    Args:
        kind: A key of `PACKAGES`, or "metrics".
        options: Knob -> value, as an experiment file or a run's spec has it.
        where: The beginning of error messages; default: the name.

    Raises:
        UserError: If an option is unknown or ill-typed; the message names the known ones.
    """
    cls = component(kind, name)
    options = dict(options or {})
    knobs = cls.knobs()
    for key in options:
        if key not in knobs:
            hint = nearest(key, list(knobs)) if knobs else "it has none"
            raise UserError(f"{where or name}: unknown option {key!r}; {hint}")

    types = {field.name: field.type for field in dataclasses.fields(cls)}
    for key, value in options.items():
        default, spec = knobs[key]
        if spec.file and isinstance(value, dict):  # a file reference as a run's spec keeps it
            continue
        if spec.file and value is not None and not isinstance(value, str):
            expected = "file" if spec.file is True else "folder"
            raise UserError(f"{where or name}: {key} = {value!r} should be the path of a {expected}")
        annotation: Any = types[key]
        written_type = annotation.__name__ if type(annotation) is type else str(annotation)
        try:
            options[key] = fitted(value, written_type, default)
        except ValueError as error:
            raise UserError(f"{where or name}: {key} = {value!r} {error}") from None
    try:
        return cls(**options)
    except UserError:
        raise
    except Exception as error:
        user_error = plugin_error(cls, error)
        if user_error is None:
            raise
        raise user_error from error


def plugin_error(cls: type[Component], error: BaseException) -> UserError | None:
    """Return the one-line error for an exception in a plugin's code, with its file and line.

    Returns:
        None if the class is shipped.
    """
    if not source_hash(cls):
        return None
    path = Path(str(sys.modules[cls.__module__].__file__))
    kind = str(getattr(cls, "kind", ""))[:-1]
    return UserError(f"{_error_location(path, error)}: {kind} {cls.name}: {_first_line(error)}; mend the plugin")


def _error_location(path: Path, error: BaseException) -> str:
    """Return the file, with the line where an error arose if it is known."""
    names = (str(path), str(path.absolute()))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"{path}:{line}" if line else str(path)


def _first_line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def source_hash(cls: type[Component]) -> str:
    """Return the hash of the code of a plugin's file; "" if the class is shipped."""
    return _SOURCES.get(cls, "")


def plugin_file(cls: type[Component]) -> str:
    """Return the name of a plugin's file; "" if the class is shipped."""
    return Path(str(sys.modules[cls.__module__].__file__)).name if source_hash(cls) else ""


def load_plugins(paths: Sequence[Path]) -> None:
    """Load every plugin with `load_plugin`.

    Raises:
        UserError: If two plugins have the same file name, or define the same component.
    """
    paths_by_stem: dict[str, Path] = {}
    helpers: dict[str, Path] = {}
    owners: dict[tuple[str, str], Path] = {}
    for path in paths:
        first_path = paths_by_stem.setdefault(path.stem, path)
        if first_path.absolute() != path.absolute():
            raise UserError(f"plugins {first_path} and {path} have the same name; rename one of the files")
        components_here = load_plugin(path)
        for name, file in helper_files(path, path.read_bytes()).items():
            first_file = helpers.setdefault(name, file)
            if first_file != file:
                raise UserError(f"plugins import {first_file} and {file}, which have the same name; rename one")
        for key in components_here:
            if owners.setdefault(key, path).absolute() != path.absolute():
                raise UserError(f"plugins {owners[key]} and {path} both define the {key[0][:-1]} {key[1]}; rename one")


def load_plugin(path: Path) -> list[tuple[str, str]]:
    """Import a user's file, register what it defines by its names, and return that as (kind, name).

    A component belongs to the kind whose base class it derives from.

    Raises:
        UserError: If the file is missing, cannot be imported, defines no component, or takes a shipped name.
    """
    if not is_file(path):
        raise UserError(f"plugin {path} does not exist")
    if path.suffix != ".py":
        raise UserError(f"plugin {path} is no Python file (.py)")

    use_own_pipelines()  # the plugin may import them
    source = path.read_bytes()
    try:
        helpers, digest = helper_files(path, source), plugin_hash(path, source)
    except (SyntaxError, ValueError):
        helpers, digest = {}, ""  # importing it says more
    module = _imported(f"mtlscale_plugin_{path.stem}", path, (path.absolute(), source, digest), tuple(helpers))
    sys.modules[module.__name__] = module  # another file of this name may have been loaded since

    classes = _classes_of([module], f"plugin {path}")
    if not classes and not declared_by(module.__name__):
        raise UserError(
            f"plugin {path} defines no balancer, architecture, encoder, objective, metric or pipeline with a name, and "
            "no column or section of a report"
        )

    _register(classes, digest)
    parts = declared_by(module.__name__)
    return [*classes, *((f"{part.kind}s", key) for part in parts for key in part.keys)]


@functools.cache
def load_installed() -> None:
    """Register the components of all installed packages, found by their entry points.

    Raises:
        UserError: If an entry point cannot be imported, or two packages register one name.
    """
    owners: dict[tuple[str, str], str] = {}
    for package, module in entry_modules().items():
        below = [part for name, part in list(sys.modules.items()) if name.startswith(f"{module.__name__}.")]
        classes = _classes_of([module, *below], f"package {package}")
        for key in classes:
            if owners.setdefault(key, package) != package:
                raise UserError(
                    f"packages {owners[key]} and {package} both register the {key[0][:-1]} {key[1]}; uninstall one"
                )
        _register(classes, package_hash(module.__name__))


def _classes_of(modules: Sequence[ModuleType], where: str) -> dict[tuple[str, str], type[Component]]:
    """Return (kind, name) -> component that modules define; errors begin with `where`, which is "" for shipped ones."""
    classes: dict[tuple[str, str], type[Component]] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Component) and "name" in value.__dict__:
                kind = getattr(value, "kind", "")
                if value.__module__ == module.__name__ and isinstance(kind, str) and kind in _PLUGINS:
                    if where:
                        _check_class(where, value, kind)
                    classes[kind, value.name] = value
    return classes


def _register(classes: dict[tuple[str, str], type[Component]], digest: str) -> None:
    for (kind, name), cls in classes.items():
        _PLUGINS[kind][name] = cls
        _SOURCES[cls] = digest


@functools.cache
def _imported(name: str, path: Path, version: tuple[Path, bytes, str], helpers: tuple[str, ...]) -> ModuleType:
    """Import a plugin, once for each version of it: where its file is, since it may read others there, and its code."""
    find_beside(path, helpers)
    spec = importlib.util.spec_from_file_location(name, path, loader=AsWritten(name, str(path.absolute())))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    previous_module = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look a class's module up

    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name)
        if previous_module is not None:
            sys.modules[name] = previous_module
        where = f"plugin {_error_location(path, error)}"
        if isinstance(error, UserError):
            raise UserError(f"{where}: {error}") from error
        raise UserError(f"{where} cannot be imported: {_first_line(error)}") from error
    return module


def _check_class(origin: str, cls: type[Component], kind: str) -> None:
    """Raise `UserError` if a plugin's class cannot be named, described and run."""
    where = f"{origin}: {cls.__name__}"
    if not isinstance(cls.name, str) or not _NAME.fullmatch(cls.name):
        raise UserError(f"{where}: name = {cls.name!r} should be a word of letters, digits, _, + or -")
    if cls.name in _shipped(kind):
        raise UserError(f"{origin}: {cls.name} is a shipped {kind[:-1]}; give yours another name")
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
