"""Old names of packages and of what they export, which work for one release with a warning that names the new one."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader  # importing it imports much of the standard library

# Old name -> new name of modules that pages of the documentation imported, and of whole packages.
MODULES = {
    "mtlscale.spec.components": "mtlscale.config.registry.components",
    "mtlscale.data.splits": "mtlscale.data.sampling.splits",
    "mtlscale.report.leaderboard": "mtlscale.report.tables.leaderboard",
    "mtlscale.execution.prepare": "mtlscale.execution.preparing.prepare",
    "mtlscale.execution.local_cluster": "mtlscale.execution.cluster.local_cluster",
    "mtlscale.spec": "mtlscale.config",
    "mtlscale.exported": "mtlscale.inference",
    "mtlscale.environments": "mtlscale.rl.environments",
}
KINDS = ("balancing", "architectures", "encoders", "objectives")  # whose components lie in rooms by kind now
_ROOT = Path(__file__).parent


class _Alias:
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


class _Finder:
    """Finder of modules by their old names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        name = _new_name(fullname)
        if name is None or importlib.util.find_spec(name) is None:
            return None
        _warn(fullname, name)
        return importlib.machinery.ModuleSpec(fullname, cast("Loader", _Alias(name)))


def _new_name(fullname: str) -> str | None:
    """Return what a module is called now; None if its name is no old one."""
    for old, new in MODULES.items():
        if fullname == old or fullname.startswith(f"{old}."):
            return new + fullname[len(old) :]

    package, kind, name = [*fullname.split("."), "", ""][:3]
    if package != "mtlscale" or kind not in KINDS or fullname.count(".") != 2 or list(_ROOT.glob(f"{kind}/{name}*")):
        return None
    files = [*_ROOT.glob(f"{kind}/*/{name}.py"), *_ROOT.glob(f"*/{kind}/{name}.py")]
    return ".".join(("mtlscale", *files[0].relative_to(_ROOT).with_suffix("").parts)) if files else None


def install() -> None:
    """Let imports find the old names."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # before the folders that an earlier version left


def refuse_old_names(cls: type, names: Mapping[str, str]) -> None:
    """Raise `ValueError` if a class has an attribute by its old name, which nothing would call."""
    for old, new in names.items():
        if old in vars(cls):
            raise ValueError(f"{cls.__name__}: {old} is called {new} now; rename it")


def renamed_names(
    package: str, new_names: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package for names that are called differently now.

    Args:
        package: The package that exports them.
        new_names: Old name -> new name, with its package where that is another one.
        otherwise: The `__getattr__` for all other names.
    """

    def get(name: str) -> Any:
        if name in new_names:
            home, _, new = new_names[name].rpartition(".")
            _warn(f"{package}.{name}", f"{home or package}.{new}")
            return getattr(importlib.import_module(home or package), new)
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is called {new} now; the old name goes with the next release", FutureWarning, stacklevel=3)
