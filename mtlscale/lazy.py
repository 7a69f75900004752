"""Names of a package that are imported where they are asked for: torch, pandas, ray and mlflow take seconds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, which from now on lists these names in `dir`. homes: module -> the names it
    holds."""
    places = {name: module for module, names in homes.items() for name in names}
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(places[name]), name)

    def names() -> list[str]:
        """What is public, and modules of the package that have been imported: nothing is imported to say so."""
        there = vars(module)
        below = [name for name, value in there.items() if _below(value, package) and not name.startswith("_")]
        return sorted({*places, *there.get("__all__", ()), *below, *(name for name in there if name.startswith("__"))})

    module.__dict__["__dir__"] = names
    return get


def _below(value: object, package: str) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith(f"{package}.")
