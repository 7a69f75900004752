"""Installed packages of components: those that name a module as an entry point of the group `mtlscale.components`."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from pathlib import Path
from types import ModuleType

from mtlscale.config.errors import UserError
from mtlscale.config.registry.source_code import code_hash

GROUP = "mtlscale.components"


@functools.cache
def entry_modules() -> dict[str, ModuleType]:
    """Import the modules of all entry points; return distribution -> module.

    Raises:
        UserError: If one cannot be imported; the message names its package.
    """
    imported = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        package = entry.dist.name if entry.dist is not None else entry.name
        try:
            module = entry.load()
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")
            raise UserError(
                f"package {package}: its entry point {entry.name} = {entry.value} cannot be imported: {reason}; "
                "mend or uninstall it"
            ) from error
        if not isinstance(module, ModuleType):
            raise UserError(f"package {package}: its entry point {entry.name} = {entry.value} should name a module")
        imported[f"{package} ({entry.name})"] = module
    return imported


def modules() -> list[ModuleType]:
    """Return the modules of all entry points."""
    return list(entry_modules().values())


@functools.cache
def package_hash(name: str) -> str:
    """Return the hash of the code of an installed package's files; of a single module that file's hash."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    if spec is None:
        return ""
    if spec.submodule_search_locations is None:
        return code_hash(Path(str(spec.origin)).read_bytes())

    root = Path(next(iter(spec.submodule_search_locations)))
    texts = [
        f"{file.relative_to(root).as_posix()} {code_hash(file.read_bytes())}" for file in sorted(root.rglob("*.py"))
    ]
    return code_hash(repr(texts).encode())
