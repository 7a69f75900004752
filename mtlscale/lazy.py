"""Lazy imports for the public names of a package: torch, pandas, ray and mlflow take seconds to import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

TABLES: dict[str, Mapping[str, str]] = {}  # package -> its public names -> their modules


def lazily(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's `__getattr__`, `__dir__` and `__all__`, which import a public name when it is first used.

    The package's stub `__init__.pyi` has the same names for type checkers; `python tests/house/stubs.py` writes it.

    Args:
        modules: Public name -> the module that it comes from, relative to the package if it begins with a point.
    """
    TABLES[package] = modules
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name], package), name)

    def names() -> list[str]:
        """List the public names and the package's modules imported until now; listing imports nothing."""
        namespace = vars(module)
        submodules = [name for name, value in namespace.items() if isinstance(value, ModuleType)
                      and value.__name__.startswith(f"{package}.") and not name.startswith("_")]  # fmt: skip
        return sorted({*modules, *submodules, *(name for name in namespace if name.startswith("__"))})

    return get, names, list(modules)


class Deferred:
    """A module that is imported when one of its names is first used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._module), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:
    torch, Tensor = Deferred("torch"), Any  # for modules that declare what a driver reads and compute what workers do
