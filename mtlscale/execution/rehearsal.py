"""Does an experiment work at all? Every method on every data set for two steps, in a home that is thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mtlscale.execution import leftovers
from mtlscale.execution.observer import Observer
from mtlscale.execution.runner import run
from mtlscale.records import Home, RunRecord, check_folder
from mtlscale.spec import ComponentSpec, Experiment, TrackingSpec, component

STEPS = 2
_TRAINING = {"epochs": 1, "steps_per_epoch": STEPS, "patience": None, "evaluate_every": 1, "checkpoint_seconds": 1e9}
_KINDS = ("architecture", "balancer", "objective")
_TRIALS = 2
_KEPT = ("data", "downloads", "cache")  # of a home folder


def shortened(experiment: Experiment) -> Experiment:
    """The experiment with one seed, epochs of two steps, one of each phase, and searches of two trials."""
    training = experiment.training.model_copy(update=_TRAINING)
    datasets = tuple(
        dataset.model_copy(update={"training": _kept(dataset.training)}) for dataset in experiment.datasets
    )
    methods = []
    for method in experiment.methods:
        parts = {kind: getattr(method, kind) for kind in _KINDS}
        short = {kind: _short(f"{kind}s", part) for kind, part in parts.items() if part is not None}
        methods.append(method.model_copy(update={**short, "training": _kept(method.training)}))
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


def _kept(training: Mapping[str, Any]) -> dict[str, Any]:
    """Of settings for a data set or a method those that do not make it longer."""
    return {key: value for key, value in training.items() if key not in _TRAINING}


def _short(kind: str, part: ComponentSpec) -> ComponentSpec:
    """The component with as few epochs for its phases as it allows."""
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
    observer: Observer | None = None,
) -> tuple[RunRecord, ...]:
    """How every run of the shortened experiment has ended. Data that are not prepared yet are, and kept, as they are
    needed again; everything else is removed."""
    check_folder(home.root)
    with (
        tempfile.TemporaryDirectory(prefix=leftovers.prefix("fast")) as folder,
        _shared(home, Home(Path(folder))) as there,
    ):
        found = run(
            shortened(experiment),
            home=there,
            source=source,
            address=address,
            download=download,
            observer=observer,
        )
        return found.records


@contextmanager
def _shared(home: Home, other: Home) -> Iterator[Home]:
    """The other home with the data of the first; folders in which nothing came to lie are removed."""
    kept = [home.root / name for name in _KEPT]
    missing = [path for path in (*kept, home.root, *home.root.parents) if not path.exists()]
    for path in kept:
        path.mkdir(parents=True, exist_ok=True)
        (other.root / path.name).symlink_to(path)
    try:
        yield other
    finally:
        for path in missing:
            with suppress(OSError):  # something is in it
                path.rmdir()
