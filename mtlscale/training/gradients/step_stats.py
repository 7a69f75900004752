"""Step statistics that a balancer gets and what follows from its answer, over any leading dimensions.

The leading dimensions are those of one run, none, or of a batch of trials.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, State, balanced_tasks
from mtlscale.config import UserError

_LARGE = 1 << 14  # entries from which a tensor is added up by itself, not copied together with others


class Diverged(Exception):
    """Loss or gradient that is not a finite number; the message names method, task and step."""


@dataclass(frozen=True)
class StepStats:
    """Statistics of one step on the host, float64.

    Attributes:
        losses: mean losses [..., T], NaN where a task has no label.
        present: which tasks have a label [..., T].
        balanced: which of them the balancer is asked about [..., T].
        bad: which losses the balancer cannot take [..., T]; None where it can take all.
        counts: numbers of labelled entries [..., T].
        scale: factors of the losses [..., T].
        k: products of the tasks' gradients as they were differentiated, [..., T, T], of `modules` [M, T, T]; or None.
    """

    losses: Tensor
    present: Tensor
    balanced: Tensor
    bad: Tensor | None
    counts: Tensor
    scale: Tensor
    k: Tensor | None

    @classmethod
    def of(
        cls,
        numbers: Tensor,
        balancer: Balancer,
        size: int,
        *,
        scaled: bool,
        gramian: bool,
        modules: int | None = None,
    ) -> StepStats:
        """Read the statistics off one tensor [..., n]: sums, counts, factors if `scaled`, then products if `gramian`.

        With `modules`, the products are those of so many modules.
        """
        sums, counts, remaining = numbers[..., :size], numbers[..., size : 2 * size], numbers[..., 2 * size :]

        scale = torch.ones_like(sums)
        if scaled:
            scale, remaining = remaining[..., :size], remaining[..., size:]

        k = None
        if modules is not None:
            k = remaining[..., : modules * size * size].reshape(modules, size, size)
        elif gramian:
            k = remaining[..., : size * size].unflatten(-1, (size, size))

        losses, present, bad = mean_losses(sums, counts, balancer)
        squares = None if k is None else k.diagonal(dim1=-2, dim2=-1)
        if squares is not None and modules is not None:
            squares = squares.sum(0)
        balanced = balanced_tasks(balancer, losses, present, squares)
        return cls(losses, present, balanced, bad, counts, scale, k)

    @property
    def per_sum(self) -> Tensor:
        """The factors [..., T] from the sum of a task's losses to what is balanced."""
        return self.scale / self.counts.clamp(min=1)

    def gramian(self, per_sum: Tensor) -> Tensor | None:
        """Return the products of the gradients times `per_sum` [..., T], as [..., T, T]."""
        return None if self.k is None else self.k * per_sum.unsqueeze(-1) * per_sum.unsqueeze(-2)


def all_finite(numbers: Tensor) -> bool:
    """Return whether all numbers of a tensor on the host are finite."""
    return math.isfinite(numbers.sum().item()) or bool(numbers.isfinite().all())  # a sum may overflow


def mean_losses(sums: Tensor, counts: Tensor, balancer: Balancer) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return mean losses, which tasks are present, and which losses the balancer cannot take.

    All are [..., T] like `sums` and `counts`; mean losses are NaN where a task is absent.
    """
    present = counts > 0
    losses = sums / counts
    refuses_negative = balancer.positive_losses and not balancer.takes_negative
    if all_finite(losses) and not (refuses_negative and losses.min().item() < 0):
        return losses, present, None

    bad = present & ~losses.isfinite()
    if refuses_negative:
        bad |= present & (losses < 0)
    return losses, present, bad


def bad_loss(balancer: Balancer, losses: Tensor, bad: Tensor, names: Sequence[str], step: int) -> Exception:
    """Return the exception for losses [T] of which some are `bad` [T]."""
    index = int(bad.nonzero()[0])
    name, value = names[index], float(losses[index])
    if value == value and abs(value) != float("inf"):
        return UserError(f"{balancer.name} needs losses ≥ 0, but task {name} has {value:g} in step {step}")
    return Diverged(f"{balancer.name}: loss of task {name} is {value} in step {step}")


def finite(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return whether all numbers of many tensors are finite, as one tensor on their device."""
    filled = [tensor for tensor in tensors if tensor.numel()]
    if not filled:
        return torch.ones((), dtype=torch.bool, device=device)
    if device.type == "cpu" and _finite_sums(filled):
        return torch.ones((), dtype=torch.bool)
    norms = torch._foreach_norm(filled, float("inf"))
    return torch.stack([norm.double() for norm in norms]).isfinite().all()


def _finite_sums(tensors: Sequence[Tensor]) -> bool:
    """Return whether all sums are finite, ten times as fast as norms on a CPU; False (overflow) proves nothing."""
    sums = [tensor.sum() for tensor in tensors if tensor.numel() >= _LARGE]
    small = [tensor for tensor in tensors if tensor.numel() < _LARGE]
    if small:
        sums.append(torch.cat([tensor.flatten() for tensor in small]).sum())
    return all(cmath.isfinite(total.item()) for total in sums)


def bad_gradient(balancer: Balancer, k: Tensor, names: Sequence[str], step: int) -> Diverged:
    """Return the exception for products of gradients [..., T, T] that are not finite.

    A task's gradient has an infinite norm or none; its products with others spoil their rows, but not their norms.
    """
    bad = ~k.isfinite().reshape(-1, len(names), len(names))
    of_tasks = bad.diagonal(dim1=-2, dim2=-1).any(0)
    return bad_gradients(balancer, of_tasks if bool(of_tasks.any()) else bad.any(-1).any(0), names, step)


def bad_gradients(balancer: Balancer, bad: Tensor, names: Sequence[str], step: int, hint: str = "") -> Diverged:
    """Return the exception for gradients that are not finite, of the tasks `bad` [T].

    Where no task is known to be the cause, the message says so and ends with a `hint`.
    """
    guilty = [names[index] for index in bad.nonzero().flatten().tolist()]
    if not guilty:
        return Diverged(f"{balancer.name}: gradient of the shared parameters is not finite in step {step}{hint}")
    of = f"gradient of task {guilty[0]} is" if len(guilty) == 1 else f"gradients of tasks {', '.join(guilty)} are"
    return Diverged(f"{balancer.name}: {of} not finite in step {step}")


def bad_weights(balancer: Balancer, weights: Tensor, step: int) -> Diverged:
    """Return the exception for weights of which some are not finite."""
    value = float(weights[~weights.isfinite()].reshape(-1)[0])
    return Diverged(f"{balancer.name}: weights of {balancer.name} are {value} in step {step}")


def with_hints(balancer: Balancer, state: State, precision: float, scale: Tensor) -> State:
    """Return the state with the hints filled in that the balancer asks for.

    The hints are `precision`, the relative rounding error of the gradients, and `task_scale` [..., T], the factors of
    the losses. A `preference` stays: the session sets it where it is drawn anew.
    """
    if not balancer.hints:
        return state
    hints = {"precision": lambda old: torch.full_like(old, precision), "task_scale": lambda old: scale.to(old)}
    return {**state, **{name: hints[name](state[name]) for name in balancer.hints if name in hints}}


def clip_factors(squares: Tensor, limit: Tensor | float) -> Tensor:
    """Return the factors [...] by which gradients are multiplied so that their norm is at most `limit`.

    `squares` [...] are the sums of their entries' squares.
    """
    return (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)


def head_weights(balancer: Balancer, weights: Tensor, present: Tensor, balanced: Tensor) -> Tensor:
    """Return the factors [..., T] of the tasks' own gradients where parameters are shared.

    Args:
        balancer: Says how heads follow the shared direction.
        weights: Weights of the shared update [..., T].
        present: Which tasks have a label [..., T].
        balanced: Which tasks the shared direction is made of [..., T].
    """
    if balancer.heads == "weighted":
        return weights
    of_heads = present.to(weights.dtype)
    return of_heads if balancer.heads == "sum" else of_heads / balanced.sum(-1, keepdim=True).clamp(min=1)
