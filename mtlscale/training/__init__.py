"""Training one run in one plain process: no Ray, no MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.training.augment import Augment
    from mtlscale.training.loop import Progress, Trainer, build_model, train
    from mtlscale.training.losses import task_loss
    from mtlscale.training.step import Diverged, Step

__all__ = [
    "Augment",
    "Diverged",
    "Progress",
    "Step",
    "Trainer",
    "build_model",
    "task_loss",
    "train",
]

__getattr__ = lazily(
    __name__,
    {
        "mtlscale.training.augment": ["Augment"],
        "mtlscale.training.loop": ["Progress", "Trainer", "build_model", "train"],
        "mtlscale.training.losses": ["task_loss"],
        "mtlscale.training.step": ["Diverged", "Step"],
    },
)
