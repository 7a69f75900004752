"""Smoke test of an experiment: every method on every data set for two steps, in a home that is thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mtlscale.config import ComponentSpec, Experiment, TrackingSpec, component
from mtlscale.execution import temp_files
from mtlscale.execution.runner import run
from mtlscale.records import Home, RunRecord, check_folder
from mtlscale.records.events import Sink

STEPS = 2
_TRAINING = {"epochs": 1, "steps_per_epoch": STEPS, "patience": None, "evaluate_every": 1, "checkpoint_seconds": 1e9}
_KINDS = ("architecture", "balancer", "objective")
_TRIALS = 2
_SHARED_FOLDERS = ("data", "downloads", "cache")  # folders of the home that the test shares


def shortened(experiment: Experiment) -> Experiment:
    """Return the experiment with one seed, epochs of two steps, one epoch per phase and searches of two trials."""
    training = experiment.training.model_copy(update=_TRAINING)
    datasets = tuple(
        dataset.model_copy(update={"training": _shortened(dataset.training)}) for dataset in experiment.datasets
    )

    methods = []
    for method in experiment.methods:
        parts = {kind: getattr(method, kind) for kind in _KINDS}
        short = {kind: _short(f"{kind}s", part) for kind, part in parts.items() if part is not None}
        methods.append(method.model_copy(update={**short, "training": _shortened(method.training)}))

    search = experiment.search
    if search is not None:
        search = search.model_copy(update={"budget": min(search.budget, _TRIALS), "grace": 1, "interval": 1})

    return experiment.model_copy(
        update={
            "datasets": datasets,
            "methods": tuple(methods),
            "seeds": experiment.seeds[:1],
            "training": training,
            "search": search,
            "tracking": TrackingSpec(enabled=False, models=False),
        }
    )


def _shortened(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a data set or a method without those that make it longer."""
    return {key: value for key, value in training.items() if key not in _TRAINING}


def _short(kind: str, part: ComponentSpec) -> ComponentSpec:
    """Return the component with as few epochs for its phases as it allows."""
    least = {
        name: int(spec.low)
        for name, (_, spec) in component(kind, part.name).knobs().items()
        if name.endswith("_epochs") and spec.low is not None
    }
    return part.model_copy(update={"options": {**part.options, **least}}) if least else part


def rehearse(
    experiment: Experiment,
    *,
    home: Home,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    sinks: Sequence[Sink] = (),
) -> tuple[RunRecord, ...]:
    """Run the smoke test and return the record of every run of the shortened experiment.

    Data that are not prepared yet are prepared and kept, as they are needed again; everything else is removed.
    """
    check_folder(home.root)

    with (
        tempfile.TemporaryDirectory(prefix=temp_files.prefix("fast")) as folder,
        _shared(home, Home(Path(folder))) as temporary_home,
    ):
        board, _ = run(
            shortened(experiment), temporary_home, source=source, address=address, download=download, sinks=sinks
        )
        assert board is not None
        return board.records


@contextmanager
def _shared(home: Home, other: Home) -> Iterator[Home]:
    """Give the other home the data of the first; at the end, remove folders that stayed empty."""
    shared_folders = [home.root / name for name in _SHARED_FOLDERS]
    missing = [path for path in (*shared_folders, home.root, *home.root.parents) if not path.exists()]
    for path in shared_folders:
        path.mkdir(parents=True, exist_ok=True)
        (other.root / path.name).symlink_to(path)

    try:
        yield other
    finally:
        for path in missing:
            with suppress(OSError):  # something is in it
                path.rmdir()
