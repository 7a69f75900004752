"""Shell completion, which runs at every press of a key: nothing here imports torch, ray, mlflow or a pipeline."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def experiments(incomplete: str) -> list[str]:
    """Return shipped experiments, and YAML files."""
    from mtlscale.config import shipped

    return [*_starting(incomplete, shipped()), *_files(incomplete, (".yaml", ".yml"))]


def _files(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    """Return files with these endings and folders, as far as the path is written."""
    folder, sign, start = incomplete.rpartition("/")
    with contextlib.suppress(OSError):
        paths = [path for path in Path(folder + sign or ".").iterdir() if path.name.startswith(start)]
        visible = [path for path in paths if not path.name.startswith(".")]
        spellings = {path: f"{folder}{sign}{path.name}" for path in visible}
        return sorted(f"{name}/" if path.is_dir() else name for path, name in spellings.items()
                      if path.is_dir() or path.suffix in endings)  # fmt: skip
    return []


def components(kind: str) -> Callable[[str], list[str]]:
    """Return a completer for the names of one kind, which are the files of its package."""

    def complete(incomplete: str) -> list[str]:
        from mtlscale.config import names

        return _starting(incomplete, names(kind, plugins=False))

    return complete


datasets = components("datasets")


def data(incomplete: str) -> list[str]:
    """Return everything that can be prepared: data sets, and those of experiments."""
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
    """Return the kinds that `mtlscale list` takes."""
    return _starting(incomplete, KINDS)


def of_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the kind that was written before."""
    kind = str(context.params.get("what") or "methods")
    if kind == "experiments":
        return experiments(incomplete)
    if kind == "keys":
        from mtlscale.config.experiment.key_reference import key_reference

        return _starting(incomplete, [section.name for section in key_reference()])
    packages = {"methods": ("architectures", "balancers", "objectives"), "metrics": ()}.get(kind, (kind,))
    return [name for package in packages if package in KINDS for name in components(package)(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Return the labels in the file of the experiment on the line, unchecked: a check would import torch."""
    from mtlscale.config import FLOORS, UserError, find_experiment, read_settings, shipped

    experiment_words = (word for word in _line() if word in shipped() or word.endswith((".yaml", ".yml")))
    with contextlib.suppress(UserError):
        settings = read_settings(find_experiment(next(experiment_words, "")))
        labels = [_label(method) for method in settings.get("methods") or ()]
        return _starting(incomplete, {label for label in (*labels, *settings.get("floors", FLOORS)) if label})
    return []


def _line() -> list[str]:
    """Return the words on the command line: an option that still lacks its value keeps click from reading them."""
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()


def _label(method: object) -> str:
    entry = method if isinstance(method, dict) else {"name": method}
    return str(entry.get("label") or entry.get("name") or "")


def runs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the runs below the home folder."""
    from mtlscale.records import Home

    home = context.params.get("home")
    folder = Home.at(Path(home) if home else None).root / "runs"
    with contextlib.suppress(OSError):
        return _starting(incomplete, (path.name for path in folder.iterdir() if path.is_dir()))
    return []
