"""Settings to start with, for a data set of a user's own."""

from __future__ import annotations

from typing import Any

METHODS: tuple[str | dict[str, Any], ...] = (
    "stl",
    "equal",
    "uncertainty",
    "pcgrad",
    {"name": "getmtl", "relative": True, "eps": 0.4},
)
_STEPS, _IMAGE_STEPS, _GRAPH_STEPS = 1500, 300, 800  # of training, about
_EPOCHS = (5, 60)  # fewest and most
_BATCHES = ((2_000, 32), (20_000, 64))  # samples in train below which a batch has this size
_LARGE_BATCH = 256
_OWN_NETWORKS = 20  # tasks, at most, that have a graph network each in `stl`
_MANY_TASKS = 100  # tasks from which methods that compare their gradients take long
_ONE_HOT_CATEGORIES = 100  # of a column, at most, that are written as columns of 0 and 1


def starter_methods(tasks: int, *, graphs: bool = False) -> list[str | dict[str, Any]]:
    """Return the methods to begin with; one task leaves nothing to balance, and many take as many graph networks."""
    if tasks < 2:
        return ["stl"]
    if graphs and tasks > _MANY_TASKS:
        return ["equal", "uncertainty"]
    return [method for method in METHODS if method != "stl" or not graphs or tasks <= _OWN_NETWORKS]


def starter_encoder(*, images: bool, graphs: bool = False, categories: int = 0) -> dict[str, Any]:
    """Return a small encoder of pictures, of molecules, or of a table whose columns have so many categories."""
    if graphs:
        return {"name": "mpnn", "width": 64, "rounds": 3}
    if categories > _ONE_HOT_CATEGORIES:
        return {"name": "embedding_mlp", "hidden": [64, 64]}
    return {"name": "resnet18", "width": 8, "stem": "small"} if images else {"name": "mlp", "hidden": [64, 64]}


def starter_training(train: int, *, images: bool, graphs: bool = False) -> dict[str, Any]:
    """Return epochs, batch size and learning rate for so many training samples."""
    batch = next((size for below, size in _BATCHES if train < below), _LARGE_BATCH)
    steps = _IMAGE_STEPS if images else _GRAPH_STEPS if graphs else _STEPS
    epochs = min(_EPOCHS[1], max(_EPOCHS[0], round(steps * batch / max(1, train))))
    return {"epochs": epochs, "batch_size": batch, "lr": 1e-3}
