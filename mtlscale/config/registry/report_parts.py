"""Columns and sections of reports, shipped ones and those of plugins, by the modules that declare them.

What they are, only the report knows.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config.errors import UserError
from mtlscale.config.registry.source_code import code_hash

PLUGIN = "mtlscale_plugin_"  # how the modules of plugin files begin
_LIST = "__report_parts__"  # the attribute of a module with its parts: a file that is loaded again has its own
_MODULES: dict[str, None] = {}


@dataclass(frozen=True)
class ReportPart:
    """One declared part of a report.

    Attributes:
        kind: "column" or "section".
        keys: The names that no other part of the kind may have.
        content: What the report makes of it.
        module: The module that declares it.
    """

    kind: str
    keys: tuple[str, ...]
    content: Any
    module: str

    def applies(self, plugins: Collection[str]) -> bool:
        """Return whether it is of a report whose experiments name these plugin files; others are of every report."""
        return not self.module.startswith(PLUGIN) or self.module.removeprefix(PLUGIN) in plugins

    @property
    def plugin(self) -> str:
        """The plugin's file, or the package that it comes from; "" if it is shipped."""
        if self.module.startswith("mtlscale."):
            return ""
        file = f"{self.module.removeprefix(PLUGIN)}.py"
        return file if self.module.startswith(PLUGIN) else self.module.partition(".")[0]


def register(kind: str, keys: Sequence[str], content: Any, module: str) -> None:
    """Add a part; a module that declares it again replaces it.

    Raises:
        UserError: If a shipped part has one of the names, or one of an installed package.
    """
    part = ReportPart(kind, tuple(keys), content, module)
    for other in parts(kind):
        shared = set(keys) & set(other.keys)
        if shared and other.module != module:
            raise UserError(f"{kind} {min(shared)} is one of {other.plugin or 'mtlscale'}; give yours another name")

    declared = declared_by(module)
    declared[:] = [other for other in declared if other.kind != kind or not set(keys) & set(other.keys)]
    declared.append(part)
    _MODULES[module] = None


def parts(kind: str, plugins: Collection[str] = ()) -> list[ReportPart]:
    """Return the parts of a kind in reports of experiments with these plugins, in the order of their modules.

    Args:
        kind: "column" or "section".
        plugins: The plugin files, as `stems` gives them.
    """
    return [part for module in _MODULES for part in declared_by(module) if part.kind == kind and part.applies(plugins)]


def stems(plugins: Iterable[Path]) -> frozenset[str]:
    """Return the names of plugin files without folder and suffix."""
    return frozenset(path.stem for path in plugins)


def declared_by(module: str) -> list[ReportPart]:
    """Return what a module has declared."""
    declared: list[ReportPart] = vars(sys.modules[module]).setdefault(_LIST, []) if module in sys.modules else []
    return declared


def plugin_sources(plugins: Collection[str]) -> list[str]:
    """Return the hashes of the code of these plugin files, and of packages, that add to reports."""
    modules = {part.module for kind in ("column", "section") for part in parts(kind, plugins) if part.plugin}
    files = (getattr(sys.modules[module], "__file__", None) for module in sorted(modules))
    return [code_hash(Path(file).read_bytes()) for file in files if file]


@functools.cache
def load_folder(package: str) -> None:
    """Import the modules of a package, each of which declares a part that is shipped."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def failed(part: str, plugin: str, error: Exception) -> str:
    """Return what a report says of a plugin's part that raised."""
    cause = next(iter(str(error).splitlines()), "")
    return f"{part} of {plugin}: {type(error).__name__}: {cause}".removesuffix(": ")
