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
_STEPS, _IMAGE_STEPS = 1500, 300  # of training, about
_EPOCHS = (5, 60)  # fewest and most
_BATCHES = ((2_000, 32), (20_000, 64))  # samples in train below which a batch has this size
_LARGE_BATCH = 256
_ONE_HOT_CATEGORIES = 100  # of a column, at most, that are written as columns of 0 and 1


def starter_methods(tasks: int) -> list[str | dict[str, Any]]:
    """Return the methods to begin with; one task leaves nothing to balance."""
    return list(METHODS) if tasks > 1 else ["stl"]


def starter_encoder(*, images: bool, categories: int = 0) -> dict[str, Any]:
    """Return a small encoder of pictures, or of a table whose columns have at most so many categories."""
    if categories > _ONE_HOT_CATEGORIES:
        return {"name": "embedding_mlp", "hidden": [64, 64]}
    return {"name": "resnet18", "width": 8, "stem": "small"} if images else {"name": "mlp", "hidden": [64, 64]}


def starter_training(train: int, *, images: bool) -> dict[str, Any]:
    """Return epochs, batch size and learning rate for so many training samples."""
    batch = next((size for below, size in _BATCHES if train < below), _LARGE_BATCH)
    steps = _IMAGE_STEPS if images else _STEPS
    epochs = min(_EPOCHS[1], max(_EPOCHS[0], round(steps * batch / max(1, train))))
    return {"epochs": epochs, "batch_size": batch, "lr": 1e-3}
