"""Lazy imports for the public names of a package: torch, pandas, ray and mlflow take seconds to import."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def lazily(package: str) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, and make `dir` list the package's names.

    Names that it imports under `if TYPE_CHECKING` are imported on first use.
    """
    module = sys.modules[package]

    @functools.cache
    def modules() -> dict[str, str]:
        return _typed_imports(inspect.getsource(module))

    def get(name: str) -> Any:
        if name.startswith("__") or name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules()[name]), name)

    def names() -> list[str]:
        """List the public names and the package's modules imported until now; listing imports nothing."""
        namespace = vars(module)
        modules_here = {name: value for name, value in namespace.items() if isinstance(value, ModuleType)}
        submodules = [name for name, value in modules_here.items()
                      if value.__name__.startswith(f"{package}.") and not name.startswith("_")]  # fmt: skip
        return sorted(
            {
                *modules(),
                *namespace.get("__all__", ()),
                *submodules,
                *(name for name in namespace if name.startswith("__")),
            }
        )

    module.__dict__["__dir__"] = names
    return get


def _typed_imports(source: str) -> dict[str, str]:
    """Return name -> module of the imports that a package makes for type checkers alone."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
