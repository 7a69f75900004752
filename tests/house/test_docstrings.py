"""Docstrings agree with the code: `Args:` names parameters that there are, private helpers have one line or none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SECTION = re.compile(r"^Args:\n((?:[ ]{4}.*\n?|\n(?=[ ]{4}))*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}\*{0,2}(\w+)(?: \(.*?\))?:", re.MULTILINE)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def parts(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class declares and the parameters of its constructor."""
    declared = {statement.target.id for statement in node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)}  # fmt: skip
    constructors = [part for part in node.body if isinstance(part, FUNCTIONS) and part.name in ("__init__", "__new__")]
    return declared.union(*map(parameters, constructors))


def described(docstring: str) -> list[str]:
    """Return the names of the entries of an `Args:` section."""
    return [name for section in SECTION.findall(docstring) for name in ENTRY.findall(section)]


def unknown_names(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
            known = parts(node) if isinstance(node, ast.ClassDef) else parameters(node)
            for name in described(ast.get_docstring(node) or ""):
                if name not in known:
                    yield f"{node.name} has no {name}; it has {', '.join(sorted(known))}"


def texts_of_modules() -> dict[str, str]:
    files = [path for folder in ("mtlscale", "pipelines") for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_args_name_parameters() -> None:
    texts = texts_of_modules()
    assert sum(text.count("Args:") for text in texts.values()) > 200  # there is something to look at
    assert not [f"{path}: {problem}" for path, text in texts.items() for problem in unknown_names(text)]


def test_private_helpers_have_one_line_or_none() -> None:
    long = [
        f"{path}: {node.name}"
        for path, text in texts_of_modules().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, FUNCTIONS) and re.match("_(?!_)", node.name)
        if "\n" in (ast.get_docstring(node) or "")
    ]
    assert not long


def test_other_names_are_found() -> None:
    text = '''
class Cell:
    """The cell.

    Args:
        width: Channels.
        place: Its place.
    """

    width: int

    def forward(self, maps, *rest, **options):
        """Return the output.

        Args:
            maps: Maps [B, C],
                two lines: of them.
            *rest: More.
            place: Its place.
        """
'''
    assert list(unknown_names(text)) == [
        "Cell has no place; it has width",
        "forward has no place; it has maps, options, rest, self",
    ]
