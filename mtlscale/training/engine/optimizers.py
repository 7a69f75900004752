"""The optimisers of a run, without torch's compiler.

torch's own import the compiler to tell it to leave them alone, which takes two seconds of every process that trains.
Nothing here is compiled. Where another torch notes this in another way, the import is back and nothing else changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from mtlscale.config import TrainingSpec

AnyOptimizer = TypeVar("AnyOptimizer", bound=Optimizer)

_LEFT_ALONE = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def make_optimizer(
    settings: TrainingSpec, parameters: Sequence[Tensor], betas: tuple[float, float] | None = None
) -> Optimizer:
    """Return the optimiser that the settings choose, of the given parameters."""
    decay = settings.weight_decay
    if settings.optimizer in ("sgd", "nesterov"):
        nesterov = settings.optimizer == "nesterov" and settings.momentum > 0  # without momentum they are the same
        return _uncompiled(SGD)(
            parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=decay, nesterov=nesterov
        )
    adam: type[Adam] = Adam if settings.optimizer == "adam" else AdamW
    return _uncompiled(adam)(parameters, lr=settings.lr, weight_decay=decay, foreach=True, betas=betas or (0.9, 0.999))


def _uncompiled(optimizer_class: type[AnyOptimizer]) -> type[AnyOptimizer]:
    """Return the class with the same mathematics and without the decorators that import the compiler."""
    for name in _LEFT_ALONE:
        function = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if function is not None and not hasattr(function, "__dynamo_disable"):
            setattr(function, "__dynamo_disable", function)

    step = torch.no_grad()(inspect.unwrap(optimizer_class.step))
    return cast(type[AnyOptimizer], type(optimizer_class.__name__, (optimizer_class,), {"step": step}))
