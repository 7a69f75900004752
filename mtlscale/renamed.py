"""Old names of packages and of what they export, which work for one release with a warning that names the new one."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

PACKAGES = {
    "mtlscale.spec": "mtlscale.config",
    "mtlscale.exported": "mtlscale.inference",
    "mtlscale.environments": "mtlscale.rl.environments",
}


class _Alias(importlib.abc.Loader):
    """Loader that returns the module of the new name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the old name's in its place


class _Finder(importlib.abc.MetaPathFinder):
    """Finder of modules by their old names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        for old, new in PACKAGES.items():
            if fullname == old or fullname.startswith(f"{old}."):
                name = new + fullname[len(old) :]
                if importlib.util.find_spec(name) is None:
                    return None
                _warn(fullname, name)
                return importlib.machinery.ModuleSpec(fullname, _Alias(name))
        return None


def install() -> None:
    """Let imports find the old names."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # before the folders that an earlier version left


def moved_names(
    package: str, homes: Mapping[str, Sequence[str]], renamed: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package for names that have moved to other modules, or have others now.

    Args:
        package: The package that had them.
        homes: Module -> the names that it has now.
        renamed: Old name -> the name that the package has now.
    """
    moved = {name: (module, name) for module, names in homes.items() for name in names}
    moved |= {old: (package, new) for old, new in (renamed or {}).items()}

    def get(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, new = moved[name]
        _warn(f"{package}.{name}", f"{module}.{new}")
        return getattr(importlib.import_module(module), new)

    return get


def refuse_old_names(cls: type, names: Mapping[str, str]) -> None:
    """Raise `ValueError` if a class has an attribute by its old name, which nothing would call.

    Args:
        cls: The class of a plugin.
        names: Old name -> new name.
    """
    for old, new in names.items():
        if old in vars(cls):
            raise ValueError(f"{cls.__name__}: {old} is called {new} now; rename it")


def renamed_names(
    package: str, new_names: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package for names that are called differently now.

    Args:
        package: The package that exports them.
        new_names: Old name -> new name.
        otherwise: The `__getattr__` for all other names.
    """

    def get(name: str) -> Any:
        if name in new_names:
            _warn(f"{package}.{name}", f"{package}.{new_names[name]}")
            return getattr(importlib.import_module(package), new_names[name])
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is called {new} now; the old name goes with the next release", FutureWarning, stacklevel=3)
