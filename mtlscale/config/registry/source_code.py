"""Hashes of plugin code, taken from its syntax tree so that comments and formatting change no run id."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def code_hash(source: bytes) -> str:
    """Return a hash of a file's syntax tree: comments, blank lines, formatting and docstrings do not count.

    Raises:
        SyntaxError: If the source is no Python.
    """
    return hashlib.sha256("".join(_tree_text(ast.parse(source))).encode()).hexdigest()[:16]


def _tree_text(node: object) -> Iterator[str]:
    """Write a tree as text, without positions."""
    if isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(node, _DOCUMENTED):
                value = _without_docstring(value)
            # A later Python adds empty fields to its nodes; ids must not depend on the Python.
            if value is not None and value != []:
                yield f"{name}="
                yield from _tree_text(value)
                yield ","
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _tree_text(item)
            yield ","
        yield "]"
    else:
        yield repr(node)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    documents = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if documents and isinstance(first.value.value, str) else body  # type: ignore[union-attr]
