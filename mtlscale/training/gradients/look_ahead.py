"""Look-ahead: parameters moved uphill along the gradient of the mean loss, for the losses of one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mtlscale.balancing.losses.equal import Equal
from mtlscale.training.gradients.strategies import Micro
from mtlscale.training.gradients.update import Update


@contextmanager
def uphill(
    update: Update, micros: Sequence[Micro], length: float, sizes: Sequence[float] | None, scale: Tensor | None
) -> Iterator[None]:
    """Move the parameters `length` along the gradient of the equally weighted losses inside the context.

    Where nothing is shared, each task's network moves by that length. No parameter has a gradient inside.

    Args:
        update: The update whose parameters, workers and precision are meant.
        micros: The losses of each micro-batch, whose graphs are used up.
        length: The length of the way.
        sizes: As in the update's call.
        scale: As in the update's call.
    """
    partition, dtype = update.partition, update.partition.all[0].dtype
    plain = Update(
        update.names,
        partition,
        Equal(reduction="mean"),
        device=update.device,
        dtype=dtype,
        workers=update.workers,
        amp=update.amp,
    )
    plain.loss_scale = update.loss_scale
    plain(micros, sizes=sizes, scale=scale)

    groups = partition.own if partition.independent else [partition.all]
    originals: list[tuple[nn.Parameter, Tensor]] = []
    with torch.no_grad():
        for group in groups:
            moved = [p for p in group if p.grad is not None]
            originals += [(p, p.detach().clone()) for p in moved]
            _move(moved, length)
    plain.strategy.zero()

    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in originals:
                parameter.copy_(value)


def _move(parameters: Sequence[nn.Parameter], length: float) -> None:
    """Move the parameters by `length` along their gradients, taken together; not at all where these are zero."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    norm = torch.stack(torch._foreach_norm(gradients)).to(torch.float64).norm()
    factor = torch.where(norm > 0, length / torch.where(norm > 0, norm, 1.0), 0.0)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.add_(gradient * factor.to(gradient.dtype))
