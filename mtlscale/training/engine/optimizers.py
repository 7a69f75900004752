"""The optimisers of a run (Adam, AdamW, SGD, Muon, Lion), without torch's compiler.

torch's own import the compiler to tell it to leave them alone, which takes two seconds of every process that trains.
Nothing here is compiled. Where another torch notes this in another way, the import is back and nothing else changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Muon, Optimizer

from mtlscale.config import TrainingSpec

AnyOptimizer = TypeVar("AnyOptimizer", bound=Optimizer)

_MUON_MOMENTUM = 0.95
_LION_BETAS = (0.9, 0.99)
_LEFT_ALONE = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def make_optimizer(
    settings: TrainingSpec,
    parameters: Sequence[Tensor],
    betas: tuple[float, float] | None = None,
    hidden: Sequence[Tensor] = (),
) -> Optimizer:
    """Return the optimiser that the settings choose, of the given parameters.

    `hidden` are the matrices of hidden layers among them, which alone Muon is for.
    """
    decay = settings.weight_decay
    if settings.optimizer in ("sgd", "nesterov"):
        nesterov = settings.optimizer == "nesterov" and settings.momentum > 0  # without momentum they are the same
        return _uncompiled(SGD)(
            parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=decay, nesterov=nesterov
        )
    if settings.optimizer == "muon":
        return MuonWithAdamW(parameters, hidden, settings.lr, decay, settings.momentum or _MUON_MOMENTUM)
    if settings.optimizer == "lion":
        return Lion(parameters, settings.lr, decay, betas or _LION_BETAS)
    adam: type[Adam] = Adam if settings.optimizer == "adam" else AdamW
    return _uncompiled(adam)(parameters, lr=settings.lr, weight_decay=decay, foreach=True, betas=betas or (0.9, 0.999))


def hidden_matrices(model: nn.Module, shared: Sequence[Tensor]) -> list[Tensor]:
    """Return the matrices among the shared parameters that are no table of vectors."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [p for p in shared if p.ndim == 2 and id(p) not in tables]


class MuonWithAdamW(Optimizer):
    """Optimiser that moves hidden matrices by torch's Muon and everything else by AdamW.

    Muon's steps are scaled to the size of AdamW's, so that one learning rate serves both.
    """

    def __init__(
        self, parameters: Sequence[Tensor], hidden: Sequence[Tensor], lr: float, weight_decay: float, momentum: float
    ) -> None:
        hidden_ids = {id(p) for p in hidden}
        matrices = [p for p in parameters if id(p) in hidden_ids]
        others = [p for p in parameters if id(p) not in hidden_ids]

        self._parts: list[Optimizer] = []
        if matrices:
            self._parts.append(
                _uncompiled(Muon)(
                    matrices, lr=lr, weight_decay=weight_decay, momentum=momentum, adjust_lr_fn="match_rms_adamw"
                )
            )
        if others:
            self._parts.append(_uncompiled(AdamW)(others, lr=lr, weight_decay=weight_decay, foreach=True))
        super().__init__([group for part in self._parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here has a closure
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state
            part.step()


class Lion(Optimizer):
    """Lion (Chen et al., NeurIPS 2023): the sign of an interpolation between momentum and gradient, decoupled decay."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: float, weight_decay: float, betas: tuple[float, float]
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "betas": betas})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                direction = momentum.lerp(parameter.grad, 1 - beta1).sign_()
                parameter.mul_(1 - lr * decay).add_(direction, alpha=-lr)
                momentum.lerp_(parameter.grad, 1 - beta2)


def _uncompiled(optimizer_class: type[AnyOptimizer]) -> type[AnyOptimizer]:
    """Return the class with the same mathematics and without the decorators that import the compiler."""
    for name in _LEFT_ALONE:
        function = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if function is not None and not hasattr(function, "__dynamo_disable"):
            setattr(function, "__dynamo_disable", function)

    step = torch.no_grad()(inspect.unwrap(optimizer_class.step))
    return cast(type[AnyOptimizer], type(optimizer_class.__name__, (optimizer_class,), {"step": step}))
