"""The rules of the house: private names stay in their package, nothing grows too large, no imports go in circles."""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("mtlscale", "pipelines") for path in (ROOT / folder).rglob("*.py"))
MOST_LINES_OF_A_MODULE = 400  # blank ones and docstrings aside
MOST_LINES_OF_A_CLASS = 280
MOST_LINES_OF_A_FUNCTION = 100  # one story may be that long
MOST_MODULES_OF_A_FOLDER = 15


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def package_of(module: str) -> str:
    """The room a module lives in: `mtlscale.config`, `pipelines`, or `mtlscale` for the few that stand in the hall."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "mtlscale" and (ROOT / Path(*parts[:2])).is_dir() else parts[0]


@functools.cache
def imports(module: str) -> tuple[tuple[str, str | None], ...]:
    """Return (module, name) of all imports, late and type-only ones too; the name is None for `import module`."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, str | None]]:
    stub = MODULES[module].with_suffix(".pyi")  # what a package with lazy names imports
    stubs = [ast.parse(stub.read_text(encoding="utf-8"))] if stub.exists() else []
    for node in itertools.chain.from_iterable(map(ast.walk, [tree(module), *stubs])):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{module}: imports are absolute here"
            yield from ((node.module, alias.name) for alias in node.names)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_imports(module: str) -> Iterator[str]:
    """Yield the private names that a module imports from other packages."""
    for target, name in imports(module):
        if target.split(".")[0] in ("mtlscale", "pipelines") and package_of(target) != package_of(module):
            whole = target if name is None else f"{target}.{name}"
            if any(map(is_private, whole.split("."))):
                yield f"{module} imports {whole}: export what it needs"


def large_parts(module: str) -> Iterator[str]:
    """Yield the module, its classes and its functions that have too many lines of code."""
    code = lines_of_code(module)
    if len(code) > MOST_LINES_OF_A_MODULE:
        yield f"{module} is too long"
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if isinstance(node, ast.ClassDef):
                most, length = MOST_LINES_OF_A_CLASS, len([n for n in code if node.lineno <= n <= node.end_lineno])
            else:
                most, length = MOST_LINES_OF_A_FUNCTION, node.end_lineno - node.lineno + 1
            if length > most:
                yield f"{node.name} of {module} is too long"


def lines_of_code(module: str) -> list[int]:
    """Return the numbers of the lines that are neither blank nor part of a docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    described = {
        number
        for node in ast.walk(tree(module))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        for number in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines = MODULES[module].read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.strip() and number not in described]


# One test for all modules: as tests of their own, a thousand of them cost more than what they look at.
def test_private_modules_and_names_are_imported_by_their_own_package_alone() -> None:
    assert len(MODULES) > 100
    assert not [problem for module in MODULES for problem in private_imports(module)]


def test_every_dependency_is_imported() -> None:
    module_names = {"scikit-learn": "sklearn", "pyyaml": "yaml", "vl-convert-python": "vl_convert", "pillow": "PIL"}
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [match[0] for line in listed if (match := re.match(r"[\w-]+", line)) is not None]
    imported = {target.split(".")[0] for module in MODULES for target, _ in imports(module)}
    assert [name for name in names if module_names.get(name, name) not in imported] == []


def test_modules_and_classes_stay_small() -> None:
    assert len(MODULES) > 100
    assert not [problem for module in MODULES for problem in large_parts(module)]


def test_folders_stay_small() -> None:
    """Folders of registered components aside, which have a module for each."""
    modules = Counter(path.parent for path in FILES if path.name != "__init__.py")
    registered = ("balancing/gramian", "balancing/losses", "report/columns", "report/sections")
    components = {ROOT / "mtlscale" / folder for folder in registered}
    large = [folder for folder, count in modules.items() if count > MOST_MODULES_OF_A_FOLDER]
    assert set(large) <= components


def test_tests_stand_in_folders_of_packages_and_what_they_share_in_support() -> None:
    packages = {path.name for path in (ROOT / "mtlscale").iterdir() if path.is_dir()} | {"pipelines", "studies"}
    several = {"browser", "cluster", "conformance", "device", "frozen", "house", "plugins", "support"}
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("*.py")} - {"."}
    assert folders <= packages | several
    assert {path.name for path in tests.glob("[!t]*.py")} == {"__init__.py", "conftest.py"}
    assert all(path.name.startswith("test_") for path in tests.glob("t*.py"))


def test_no_class_name_stands_in_two_packages() -> None:
    packages: dict[str, set[str]] = {}
    for module in MODULES:
        for node in tree(module).body:
            if isinstance(node, ast.ClassDef) and not is_private(node.name):
                packages.setdefault(node.name, set()).add(package_of(module))
    assert not {name: found for name, found in packages.items() if len(found) > 1}


def test_no_imports_go_in_a_circle() -> None:
    edges: dict[str, set[str]] = {}
    for module in MODULES:
        found = {target if name is None or f"{target}.{name}" not in MODULES else f"{target}.{name}"
                 for target, name in imports(module)}  # fmt: skip
        edges[module] = (found & MODULES.keys()) - {module}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join((*way[way.index(module) :], module))
        if module not in done:
            for other in sorted(edges[module]):
                visit(other, (*way, module))
            done.add(module)

    for module in edges:
        visit(module, ())


@pytest.mark.parametrize("package", [module for module, path in MODULES.items() if path.name == "__init__.py"])
def test_public_names_are_there(package: str) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])
    assert len(names) == len(set(names))
    for name in names:
        assert getattr(module, name, None) is not None, f"{package} has no {name}"
