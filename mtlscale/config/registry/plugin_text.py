"""Plugin files read as text: their hashes and the names of their components, without importing them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mtlscale.config.errors import UserError
from mtlscale.config.registry.source_code import code_hash

MOST_BYTES = 1 << 20  # of a plugin file


@dataclass(frozen=True)
class PluginText:
    """The content of a plugin file, as far as it can be known without running it."""

    path: Path
    sha256: str
    code_hash: str  # by which runs know it: a plugin that is contributed has no helpers
    components: frozenset[str]  # names that its classes have


def read_plugin(path: Path) -> PluginText:
    """Read a plugin file without running it.

    Raises:
        UserError: If the file cannot be read, is far too long, or is no Python.
    """
    try:
        with path.open("rb") as file:
            source = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"plugin {path} cannot be read ({error.strerror}); name another file") from None
    if len(source) > MOST_BYTES:
        raise UserError(f"plugin {path} is larger than {MOST_BYTES >> 20} MiB, no plugin; name a Python file")

    try:
        return PluginText(
            path,
            hashlib.sha256(source).hexdigest(),
            code_hash(source),
            frozenset(_component_names(ast.parse(source))),
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"plugin {path} is no Python ({type(error).__name__}); mend or drop it") from None


def _component_names(module: ast.Module) -> Iterator[str]:
    """Yield the texts that a module's classes have as their `name`."""
    for node in module.body:
        for statement in node.body if isinstance(node, ast.ClassDef) else ():
            targets: list[ast.expr] = []
            if isinstance(statement, ast.Assign):
                targets = statement.targets
            elif isinstance(statement, ast.AnnAssign):
                targets = [statement.target]

            value = getattr(statement, "value", None)
            is_name = any(isinstance(target, ast.Name) and target.id == "name" for target in targets)
            if is_name and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value
