"""The package `pipelines`, found by its place: projects have a folder of that name, which would hide ours."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import Any

from mtlscale.config.errors import UserError

PACKAGE = "pipelines"
FOLDER = Path(__file__).parents[3] / PACKAGE  # beside mtlscale, in a checkout as behind a wheel


class _Finder(importlib.abc.MetaPathFinder):
    """Finder of the package beside mtlscale, whatever `sys.path` says."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != PACKAGE:
            return None
        return importlib.util.spec_from_file_location(
            PACKAGE, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
        )


_FINDER = _Finder()


def use_own_pipelines() -> None:
    """Have `pipelines` be mtlscale's from now on.

    Raises:
        UserError: If this program has imported another package of that name.
    """
    imported = sys.modules.get(PACKAGE)
    folders = [Path(folder) for folder in getattr(imported, "__path__", ())]
    if imported is not None and FOLDER not in folders:
        place = folders[0] if folders else getattr(imported, "__file__", "the program")
        raise UserError(
            f"{place} hides mtlscale's package `{PACKAGE}`, which prepares data sets, in this program; rename it"
        )
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def hidden() -> bool:
    """Return whether another package of that name would be found first, here and in Ray's workers."""
    for folder in (Path.cwd(), *map(Path, filter(None, sys.path))):
        if folder.resolve() == FOLDER.parent.resolve():
            return False
        if (folder / PACKAGE).is_dir() or (folder / f"{PACKAGE}.py").is_file():
            return True
    return False
