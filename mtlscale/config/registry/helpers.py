"""Modules beside a plugin that it imports: found there, part of the plugin's hash, and sent along with it."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mtlscale.config.errors import UserError
from mtlscale.config.registry import import_order
from mtlscale.config.registry.source_code import code_hash

_OURS = {"mtlscale", import_order.PACKAGE}


def helper_files(plugin: Path, source: bytes) -> dict[str, Path]:
    """Return name beside the plugin -> file of the modules that it imports from there, if only through others.

    Of a package all modules count.

    Raises:
        UserError: If a module there is no Python, or has the name of an installed one.
        SyntaxError: If the plugin is no Python.
    """
    folder = plugin.absolute().parent
    files: dict[str, Path] = {}
    waiting = sorted(_imported_names(source))
    known = set(waiting)
    while waiting:
        name = waiting.pop()
        module_files = _module_files(folder, name)
        if not module_files or name in _OURS:
            continue
        if name in sys.stdlib_module_names or import_order.installed(name) is not None:
            raise UserError(
                f"plugin {plugin} imports {name}, which is an installed module, and {module_files[0]} beside it has "
                "its name; rename that"
            )
        for file in module_files:
            files[file.relative_to(folder).as_posix()] = file
            try:
                imported = _imported_names(file.read_bytes())
            except (SyntaxError, ValueError) as error:
                raise UserError(f"plugin {plugin} imports {file}, which is no Python ({error}); mend it") from None
            waiting += sorted(imported - known)
            known |= imported
    files.pop(plugin.name, None)  # a helper may import the plugin
    return dict(sorted(files.items()))


def plugin_hash(plugin: Path, source: bytes) -> str:
    """Return the hash of the code of a plugin and of its helpers; that of its own code if it has none."""
    digest = code_hash(source)
    helpers = {name: code_hash(file.read_bytes()) for name, file in helper_files(plugin, source).items()}
    return hashlib.sha256(repr((digest, helpers)).encode()).hexdigest()[:16] if helpers else digest


def find_beside(plugin: Path, helpers: Iterable[str]) -> None:
    """Let imports of a plugin's helpers, by their names beside it, find them there.

    Raises:
        UserError: If this program has imported another module of that name.
    """
    folder = plugin.absolute().parent
    for name in {Path(helper).parts[0].removesuffix(".py") for helper in helpers}:
        module = sys.modules.get(name)
        earlier = import_order.HELPERS.get(name)
        if module is not None and earlier is None and not _lies_in(module, folder):
            raise UserError(f"plugin {plugin}: this program has imported another module {name}; rename the plugin's")
        stale = [key for key in sys.modules if key == name or key.startswith(f"{name}.")] if earlier is not None else []
        for key in stale:
            del sys.modules[key]  # of another plugin, or of an earlier text
        import_order.HELPERS[name] = str(folder)


def _lies_in(module: object, folder: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(place is not None and Path(place).is_relative_to(folder) for place in places)


def _module_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a module or package in a folder; none if there is no such module."""
    if (folder / f"{name}.py").is_file():
        return [folder / f"{name}.py"]
    package = folder / name
    if not (package / "__init__.py").is_file() and not list(package.glob("*.py")):
        return []
    return sorted(file for file in package.rglob("*.py") if file.is_file())


def _imported_names(source: bytes) -> set[str]:
    """Return the first parts of the names of all modules that a file imports, wherever it does."""
    return set(_first_names(ast.parse(source)))


def _first_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
