"""The contract of a balancer: losses and the Gramian of the task gradients in, task weights out, no side effect."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from mtlscale.components import Component

State = dict[str, Tensor]
Needs = Literal["losses", "gramian", "jacobian", "validation"]


class Balancer(Component):
    """Turns task losses, and the Gramian of their gradients, into weights of the shared update `Jᵀ w`.

    Pure: everything it remembers is in `state`, a flat dictionary of tensors, so it can be checkpointed, batched over
    leading dimensions (losses [..., T], gramian [..., T, T], weights [..., T]) and gives the same answer on every
    worker. All tensors are float64 but for counters and generators' positions (int64).
    """

    kind: ClassVar[str] = "balancers"
    needs: ClassVar[Needs] = "losses"  # the cheapest thing that suffices
    cost: ClassVar[str] = "1 backward"  # of a step, for `mtlscale list`
    # Heads and other task parameters: weighted with the losses ("weighted"), or plain gradients times 1/T ("mean") or
    # times 1 ("sum"), matching the scale of the shared direction (docs/methods.md).
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "weighted"
    at: ClassVar[Literal["parameters", "representation"]] = "parameters"  # where the Gramian is taken
    positive_losses: ClassVar[bool] = False  # negative losses are an error that names the task
    per_task: ClassVar[tuple[str, ...]] = ()  # entries of the state whose last dimension is the task
    per_pair: ClassVar[tuple[str, ...]] = ()  # entries of the state whose last two dimensions are tasks
    counters: ClassVar[tuple[str, ...]] = ()  # entries that count events to report ("failures", "clamps")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        """The state before the first step, for leading dimensions `batch`."""
        return {}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        """losses [..., T], gramian [..., T, T] or None -> weights [..., T] and the next state."""
        raise NotImplementedError

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        """losses [..., T]: training losses averaged over the epoch."""
        return state


class JacobianBalancer(Balancer):
    """A balancer that needs the gradients themselves and answers with a direction instead of weights."""

    needs: ClassVar[Needs] = "jacobian"
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "sum"

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        """jacobian: one [T, *shape] tensor per shared parameter -> the update [*shape] of each, and the next state."""
        raise NotImplementedError


def balance(
    balancer: Balancer, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
) -> tuple[Tensor, State]:
    """Weights [T] where some tasks have no labels in this step (`present` [T], bool): those get weight 0 and their
    part of the state stays as it is; the others are balanced among themselves."""
    if bool(present.all()):
        return balancer(losses, gramian, state)
    weights = torch.zeros_like(losses)
    if not bool(present.any()):
        return weights, state
    index = present.nonzero().squeeze(-1)
    part = dict(state)
    for key in balancer.per_task:
        part[key] = state[key][..., index]
    for key in balancer.per_pair:
        part[key] = state[key][..., index, :][..., :, index]
    sub = None if gramian is None else gramian[..., index, :][..., :, index]
    answer, after = balancer(losses[..., index], sub, part)
    weights[..., index] = answer
    result = dict(after)
    for key in balancer.per_task:
        result[key] = state[key].clone()
        result[key][..., index] = after[key]
    for key in balancer.per_pair:
        result[key] = state[key].clone()
        result[key][..., index[:, None], index] = after[key]
    return weights, result


def check_length(balancer: Balancer, what: str, values: object, tasks: int) -> None:
    """`UserError` where a list of per-task settings has not one entry per task."""
    from mtlscale.components import UserError

    if not isinstance(values, tuple | list) or len(values) != tasks:
        given = len(values) if isinstance(values, tuple | list) else 0
        raise UserError(f"{balancer.name}: {what} has {given} entries, but there are {tasks} tasks")
