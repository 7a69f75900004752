"""What a shell may complete. Asked at every press of a key: nothing here imports torch, ray, mlflow or a pipeline."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def experiments(incomplete: str) -> list[str]:
    """Shipped experiments, and YAML files."""
    from mtlscale.spec import shipped

    return [*_starting(incomplete, shipped()), *_files(incomplete, (".yaml", ".yml"))]


def _files(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """Files with these endings and folders, as far as the path is written."""
    folder, sign, start = incomplete.rpartition("/")
    with contextlib.suppress(OSError):
        found = [path for path in Path(folder + sign or ".").iterdir() if path.name.startswith(start)]
        shown = [path for path in found if not path.name.startswith(".")]
        named = {path: f"{folder}{sign}{path.name}" for path in shown}
        return sorted(f"{name}/" if path.is_dir() else name for path, name in named.items()
                      if path.is_dir() or path.suffix in endings)  # fmt: skip
    return []


def components(kind: str) -> Callable[[str], list[str]]:
    """Names of one kind: the files of its package."""

    def complete(incomplete: str) -> list[str]:
        from mtlscale.spec import names

        return _starting(incomplete, names(kind, plugins=False))

    return complete


datasets = components("datasets")


def data(incomplete: str) -> list[str]:
    """What can be prepared: data sets, and those of experiments."""
    return [*datasets(incomplete), *experiments(incomplete)]


KINDS = (
    "methods",
    "balancers",
    "architectures",
    "objectives",
    "encoders",
    "metrics",
    "datasets",
    "experiments",
    "keys",
)


def kinds(incomplete: str) -> list[str]:
    return _starting(incomplete, KINDS)


def of_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the kind that was written before."""
    kind = str(context.params.get("what") or "methods")
    if kind == "experiments":
        return experiments(incomplete)
    if kind == "keys":
        from mtlscale.spec.key_reference import key_reference

        return _starting(incomplete, [section.name for section in key_reference()])
    found = {"methods": ("architectures", "balancers", "objectives"), "metrics": ()}.get(kind, (kind,))
    return [name for one in found if one in KINDS for name in components(one)(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Labels in the file of the experiment on the line: it is not checked, which would import torch."""
    from mtlscale.spec import FLOORS, UserError, find_experiment, read_settings, shipped

    named = (word for word in _line() if word in shipped() or word.endswith((".yaml", ".yml")))
    with contextlib.suppress(UserError):
        found = read_settings(find_experiment(next(named, "")))
        labels = [_label(method) for method in found.get("methods") or ()]
        return _starting(incomplete, {label for label in (*labels, *found.get("floors", FLOORS)) if label})
    return []


def _line() -> list[str]:
    """The words on the command line: an option that still lacks its value keeps click from reading them."""
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()


def _label(method: object) -> str:
    named = method if isinstance(method, dict) else {"name": method}
    return str(named.get("label") or named.get("name") or "")


def runs(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the runs below the home folder."""
    from mtlscale.records import Home

    home = context.params.get("home")
    folder = Home.at(Path(home) if home else None).root / "runs"
    with contextlib.suppress(OSError):
        return _starting(incomplete, (path.name for path in folder.iterdir() if path.is_dir()))
    return []
