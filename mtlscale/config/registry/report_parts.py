"""Columns and sections of reports, shipped ones and those of plugins, by the modules that declare them.

What they are, only the report knows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config.errors import UserError
from mtlscale.config.registry.source_code import code_hash

PLUGIN = "mtlscale_plugin_"  # how the modules of plugin files begin
_LIST = "__report_parts__"  # the attribute of a module with its parts: a file that is loaded again has its own
_MODULES: dict[str, None] = {}


@dataclass(frozen=True)
class Part:
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

    @property
    def plugin(self) -> str:
        """The plugin's file, or the package that it comes from; "" if it is shipped."""
        if self.module.startswith("mtlscale."):
            return ""
        file = f"{self.module.removeprefix(PLUGIN)}.py"
        return file if self.module.startswith(PLUGIN) else self.module.partition(".")[0]


def register(kind: str, keys: Sequence[str], content: Any, module: str) -> None:
    """Add a part to all reports of this process; a module that declares it again replaces it.

    Raises:
        UserError: If a part of another module has one of the names.
    """
    part = Part(kind, tuple(keys), content, module)
    for other in parts(kind):
        shared = set(keys) & set(other.keys)
        if shared and other.module != module:
            raise UserError(f"{kind} {min(shared)} is one of {other.plugin or 'mtlscale'}; give yours another name")

    own = declared_by(module)
    own[:] = [other for other in own if other.kind != kind or not set(keys) & set(other.keys)]
    own.append(part)
    _MODULES[module] = None


def parts(kind: str) -> list[Part]:
    """Return the parts of a kind, in the order of their modules."""
    return [part for module in _MODULES for part in declared_by(module) if part.kind == kind]


def declared_by(module: str) -> list[Part]:
    """Return what a module has declared."""
    found: list[Part] = vars(sys.modules[module]).setdefault(_LIST, []) if module in sys.modules else []
    return found


def plugin_sources() -> list[str]:
    """Return the hashes of the code of all plugins that add to reports."""
    modules = {part.module for kind in ("column", "section") for part in parts(kind) if part.plugin}
    files = (getattr(sys.modules[module], "__file__", None) for module in sorted(modules))
    return [code_hash(Path(file).read_bytes()) for file in files if file]
