"""Which package a name means where a user's folder has a module of that name, too.

The package `pipelines` is found by its place, since many projects have a folder of that name. The command line and
Ray's workers also find the standard library and mtlscale's dependencies before the user's modules: Python looks into
the working folder and `PYTHONPATH` first, so a `datasets.py` there would take theirs away.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from mtlscale.config.errors import UserError

PACKAGE = "pipelines"
FOLDER = Path(__file__).parents[3] / PACKAGE  # beside mtlscale, in a checkout as behind a wheel

HELPERS: dict[str, str] = {}  # module that a plugin imports from beside itself -> the plugin's folder

_HOOK = f"{__name__}.in_worker"
_NAMES = "MTLSCALE_INSTALLED_FIRST"  # environment variable of workers: what installed packages they find first
_PATH = "PYTHONPATH"
_NEVER_MEANT = {"docs", "examples", "test", "tests"}  # some distributions install theirs by mistake
_REQUIRED = re.compile(r"^[\w.-]+")


class AsWritten(SourceFileLoader):
    """Loader of a file's text: Python's cache takes an edit in the same second that keeps the length for none."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder:
    """Finder of `pipelines` by its place, of plugins' helpers, and of some modules where packages are installed."""

    names: frozenset[str] = frozenset()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PACKAGE:
            return importlib.util.spec_from_file_location(
                PACKAGE, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
            )
        if helpers := HELPERS.get(fullname.partition(".")[0]):
            spec = PathFinder.find_spec(fullname, path or [helpers])
            if spec is not None and isinstance(spec.loader, SourceFileLoader):
                spec.loader = AsWritten(fullname, spec.loader.path)
            return spec
        return installed(fullname) if fullname in self.names else None


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


def use_installed_packages() -> None:
    """Have what mtlscale depends on go before modules of the working folder and of `PYTHONPATH` from now on.

    This is for processes that are mtlscale's own: a user's program may mean its own modules.
    """
    use_own_pipelines()
    _FINDER.names = sys.stdlib_module_names  # what follows imports some of them
    _FINDER.names = frozenset(_hidden(_folders()) - {PACKAGE})

    # Processes that are started from here, Ray's among them, import before anybody can add a finder.
    folders = list(filter(None, os.environ.get(_PATH, "").split(os.pathsep)))
    hiding = [folder for folder in folders if _hidden([folder]) - {PACKAGE}]
    if hiding:
        harmless = [folder for folder in folders if folder not in hiding]
        installations = filter(_is_installation, sys.path)
        os.environ[_PATH] = os.pathsep.join(dict.fromkeys([*harmless, *installations, *hiding]))


def worker_environment() -> dict[str, object]:
    """Return the runtime environment that this driver's workers need; {} where no folder hides anything.

    Workers have the working folder on their path, too. An environment costs them their quick start.
    """
    if not _hidden(_folders()):
        return {}
    return {"worker_process_setup_hook": _HOOK, "env_vars": {_NAMES: ",".join(sorted(_FINDER.names))}}


def in_worker() -> None:
    """Find modules in a worker of Ray as its driver does."""
    use_own_pipelines()
    _FINDER.names = frozenset(os.environ.get(_NAMES, "").split(",")) - {""}


def _folders() -> list[str]:
    return [str(Path.cwd()), *filter(None, sys.path)]


def _hidden(folders: Iterable[str]) -> set[str]:
    """Return what modules in these folders hide of mtlscale, its dependencies and the standard library."""
    return {name for folder in folders if not _is_installation(folder) for name in _modules_in(folder)}


@functools.cache
def _modules_in(folder: str) -> frozenset[str]:
    """Return the modules in a folder that mtlscale needs another one for."""
    try:
        entries = [path.name for path in Path(folder).iterdir()]
    except OSError:
        return frozenset()

    names = {entry.removesuffix(".py") for entry in entries if entry.endswith(".py")}
    names |= {entry for entry in entries if Path(folder, entry, "__init__.py").is_file()}
    names -= _NEVER_MEANT
    hiding = {name for name in names if name in sys.stdlib_module_names or (installed(name) and _is_needed(name))}
    is_ours = Path(folder).resolve() == FOLDER.parent.resolve()
    return frozenset(hiding | ({PACKAGE} if PACKAGE in {*names, *entries} and not is_ours else set()))


def installed(name: str) -> ModuleSpec | None:
    """Return where a module lies among the standard library and installed packages; None if it does not."""
    spec = PathFinder.find_spec(name, list(filter(_is_installation, sys.path)))
    return None if spec is None or spec.origin is None else spec  # a folder without an `__init__.py` may be in parts


@functools.cache
def _is_installation(folder: str) -> bool:
    """Return whether a folder of the path holds the standard library, or packages that an installer has put there."""
    if folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")) or folder.endswith(".zip"):
        return True
    try:
        return Path(folder).name == "lib-dynload" or any(path.suffix == ".dist-info" for path in Path(folder).iterdir())
    except OSError:
        return False


def _is_needed(name: str) -> bool:
    """Return whether an installed module is of a distribution that mtlscale depends on, if only in part."""
    distributions = {_plain(distribution) for distribution in _distributions().get(name, ())}
    return not distributions or not distributions.isdisjoint(_needed())


@functools.cache
def _distributions() -> dict[str, list[str]]:
    from importlib import metadata

    return dict(metadata.packages_distributions())


@functools.cache
def _needed() -> frozenset[str]:
    """Return the distributions that mtlscale depends on, and what they do."""
    from importlib import metadata

    needed: set[str] = set()
    waiting = ["mtlscale"]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        try:
            requirements = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        waiting += [
            _plain(match[0])
            for requirement in requirements
            if (match := _REQUIRED.match(requirement)) and (name == "mtlscale" or "extra ==" not in requirement)
        ]
    return frozenset(needed)


def _plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
