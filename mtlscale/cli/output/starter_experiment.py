"""The experiment file to start with, for a data set that `mtlscale inspect` has looked at."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mtlscale.execution.preparing.starter_settings import starter_encoder, starter_methods, starter_training

if TYPE_CHECKING:
    from mtlscale.execution.preparing.inspection import SourceReport

_MANY_TARGETS = 100


def starter_experiment(report: SourceReport, source: str, file: Path) -> str:
    """Return the text of an experiment file.

    Args:
        report: What the source is taken as.
        source: The source, a path or a URL.
        file: The file that will hold the text; a path of the source becomes relative to its folder.
    """
    dataset = {
        "name": report.dataset,
        "label": starter_label(report, source),
        "source": _relative(source, file.absolute().parent),
        "options": report.options,
    }

    images = report.dataset != "table"
    graphs = any((column.role, column.kind) == ("input", "smiles") for column in report.columns)
    training = starter_training(report.splits.get("train", report.rows), images=images, graphs=graphs)
    categories = (column.distinct for column in report.columns if (column.role, column.kind) == ("input", "category"))
    encoder = starter_encoder(images=images, graphs=graphs, categories=max(categories, default=0))
    methods = starter_methods(2 if report.targets[0].kind == "multilabel" else len(report.targets), graphs=graphs)

    names = ", ".join(column.name for column in report.targets[:6]) + (" and others" if len(report.targets) > 6 else "")
    parts = [
        f"# Written by `mtlscale inspect {Path(source).name}`: {report.rows} samples. Change what you like.\n",
        f"name: {_flow(file.stem)}\ndescription: {_flow(f'Our own data: {names}.')}\n",
        _yaml({"datasets": [dataset]}),
        f"methods: {_flow(methods)}\n",
        _floors(len(report.targets), images=images, graphs=graphs),
        "seeds: [0, 1, 2]\n",
        f"model:\n  encoder: {_flow(encoder)}\n",
        f"training: {_flow(training)}\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _floors(targets: int, *, images: bool, graphs: bool) -> str:
    if images:
        return "floors: [constant]  # what a method that sees no input reaches\n"
    # Trees of hundreds of targets take hours and gigabytes, and those of a molecule's thousand counts minutes a seed.
    trees = [] if graphs or targets > _MANY_TARGETS else ["forest", "boosting"]
    return f"floors: {_flow(['constant', 'linear', *trees])}  # what a method without a network reaches\n"


def starter_label(report: SourceReport, source: str) -> str:
    """Return the name of the source without its endings, as a data set's label and an experiment's name."""
    return re.sub(r"\W+", "_", Path(source).name.partition(".")[0]).strip("_") or report.dataset


def _relative(source: str, folder: Path) -> str:
    """Return a path below the experiment file's folder relative to it, another whole; a URL stays as it is."""
    if not Path(source).exists():
        return source
    relative = os.path.relpath(Path(source).absolute(), folder)
    return str(Path(source).absolute()) if relative.startswith("..") else relative


def _yaml(entry: dict[str, Any]) -> str:
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)


def _flow(entry: object) -> str:
    text = yaml.safe_dump(entry, sort_keys=False, default_flow_style=True, allow_unicode=True, width=1000)
    return text.removesuffix("...\n").strip()
