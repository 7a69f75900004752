"""Extension points: functions that a family (`mtlscale.nas`, `mtlscale.rl`) or an installed package adds to the core.

A family is a package of mtlscale with a module `extension.py`; an installed package names a module of its own as an
entry point of the group `mtlscale.components`. Either module may have `EXTENDS`: extension point -> functions, each as
"package.module:function", so that nothing is imported before it is needed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mtlscale.config.errors import UserError
from mtlscale.config.registry.installed import modules
from mtlscale.config.registry.nearest import nearest

FAMILIES = "mtlscale"  # the package whose sub-packages are looked at
POINTS = {
    "evaluator": "(suite, workers, device, dtype) -> Evaluator or None: measures a suite by more than its samples",
    "before_training": "(trainer, options): prepares a trainer on its worker",
    "after_training": "(trainer, folder): writes files of a finished run",
    "studies": "(records, looks) -> ReportSection ...: adds studies to a report",
    "structure_charts": "(records, titles, files) -> Chart ...: adds charts to a report",
    "sink": "(experiment, home) -> Sink or None: takes the events of an experiment",
    "search_algorithm": "(search, setup, finished records) -> Tune searcher or None: draws the settings of trials",
}


def extensions(point: str) -> list[Callable[..., Any]]:
    """Return the functions that extend the core at a point, those of families first.

    Raises:
        UserError: If a function cannot be imported; the message names it.
    """
    return [_imported(target) for extends in _declared() for target in extends.get(point, ())]


def families() -> list[str]:
    """Return the families that are installed, by their folders: nothing is imported."""
    return sorted(file.parent.name for file in _folder_of(FAMILIES).glob("*/extension.py"))


@functools.cache
def _declared() -> tuple[dict[str, list[str]], ...]:
    """Return what every family and installed package declares."""
    family_modules = (importlib.import_module(f"{FAMILIES}.{name}.extension") for name in families())
    return tuple(_checked(module.__name__, getattr(module, "EXTENDS", {})) for module in (*family_modules, *modules()))


def _checked(module: str, extends: Any) -> dict[str, list[str]]:
    for point, targets in dict(extends).items():
        if point not in POINTS:
            raise UserError(f"{module}: unknown extension point {point!r}; {nearest(point, list(POINTS))}")
        if isinstance(targets, str) or not all(isinstance(target, str) and ":" in target for target in targets):
            raise UserError(f'{module}: EXTENDS[{point!r}] should be a list of "package.module:function"')
    return dict(extends)


@functools.cache
def _imported(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"extension {target} cannot be imported: {error}; mend or uninstall its package") from error
    return function


def shipped_modules(package: str, folder: str) -> Iterator[str]:
    """Yield the modules of the shipped components of a kind, by their files: nothing is imported.

    Args:
        package: The package of the kind; its components lie in sub-packages.
        folder: The folder of the kind in a family, such as "architectures" in `mtlscale/nas/architectures`.

    Raises:
        UserError: If the package is not installed.
    """
    root = _folder_of(package)
    rooms = {f"{package}.{file.parent.name}": file.parent for file in root.glob("[!_]*/__init__.py")}
    for family in families():
        rooms[f"{FAMILIES}.{family}.{folder}"] = _folder_of(FAMILIES) / family / folder

    for room, room_folder in sorted(rooms.items()):
        yield from (f"{room}.{file.stem}" for file in sorted(room_folder.glob("[!_]*.py")))


@functools.cache
def _folder_of(package: str) -> Path:
    parent, _, name = package.rpartition(".")
    if parent:
        return _folder_of(parent) / name
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(f"package {package!r} is not installed; reinstall mtlscale")
    return Path(spec.origin).parent
