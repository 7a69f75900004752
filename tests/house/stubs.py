"""Write the stubs `__init__.pyi` of packages with lazy names, from their tables: `python tests/house/stubs.py`."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from mtlscale.lazy import TABLES

ROOT = Path(__file__).parents[2]
COMMAND = "python tests/house/stubs.py"


def lazy_packages() -> list[str]:
    """Return the packages that list their names in a table."""
    files = (path for folder in ("mtlscale", "pipelines") for path in (ROOT / folder).rglob("__init__.py"))
    lazy = [path.parent for path in files if "= lazily(" in path.read_text(encoding="utf-8")]
    return sorted(".".join(folder.relative_to(ROOT).parts) for folder in lazy)


def stub_file(package: str) -> Path:
    return ROOT.joinpath(*package.split("."), "__init__.pyi")


def stub(package: str) -> str:
    """Return a stub that imports a package's public names, in the order that lint asks for."""
    importlib.import_module(package)
    absolute = {name: importlib.util.resolve_name(module, package) for name, module in TABLES[package].items()}

    def order(name: str) -> tuple[str, int, str]:
        kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
        return absolute[name], kind, name

    imports = [f"from {absolute[name]} import {name} as {name}\n" for name in sorted(absolute, key=order)]
    return f"# Written by `{COMMAND}`.\n" + "".join(imports)


if __name__ == "__main__":
    for package in lazy_packages():
        stub_file(package).write_text(stub(package), encoding="utf-8")
