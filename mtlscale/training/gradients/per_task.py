"""Gradients of each task from the sums of a step's losses: added up over micro-batches, then over workers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mtlscale.config import UserError
from mtlscale.data import Losses, Workers
from mtlscale.training.gradients.gramian import Gradients, accumulate

# Samples x parameters up to which T backward passes through a small network run faster as one batched pass (measured
# on a CPU: 2 x at 64 samples and 8,000 parameters, even at 128 and 80,000).
_BATCHED_WORK = 1 << 22


@dataclass
class Partition:
    """Parameters that an update moves, by whose they are.

    Attributes:
        shared: what tasks share.
        own: what is a task's own, by task.
        extra: those of an objective, which follow its terms alone.
        independent: nothing is shared, every task has its own network.
        vectorised: the tasks' backward passes below the representation may run as one.
        joint: all tasks' gradients have to come back in one backward pass.
        same_inputs: the tasks have their inputs in common.
        partial: the modules have other parameters, which another update moves.
        modules: modules of the network, input side first, as positions of their parameters in `shared`; a parameter may
            be in none.
    """

    shared: list[nn.Parameter]
    own: list[list[nn.Parameter]]  # by task
    extra: list[nn.Parameter] = field(default_factory=list)  # parameters of an objective, which follow its terms alone
    independent: bool = False
    vectorised: bool = False
    joint: bool = False
    same_inputs: bool = True
    partial: bool = False
    modules: list[list[int]] = field(default_factory=list)

    @functools.cached_property
    def all(self) -> list[nn.Parameter]:
        return [*self.shared, *(p for group in self.own for p in group), *self.extra]


@dataclass(frozen=True)
class AtHeads:
    """Gradients at the representation by task, as functions of the heads' parameters."""

    tasks: list[int]
    rows: list[Tensor]


@dataclass(frozen=True)
class AtRepresentation:
    """Representation z that some tasks share, and their gradients there [tasks, *z.shape]."""

    z: Tensor
    tasks: Sequence[int]
    grads: Tensor


@dataclass
class TaskGradients:
    """Gradients of the tasks' sums of losses times `factors`, with what turns them into means."""

    shared: list[Gradients]  # [T] x shared parameters
    own: list[Gradients]  # [T] x the task's parameters
    extra_shared: Gradients  # gradients of an objective's terms
    extra_own: Gradients
    tasks: list[int] = field(default_factory=list)  # the task of each sum and count, in the order they came
    sums: list[Tensor] = field(default_factory=list)
    counts: list[Tensor] = field(default_factory=list)

    @classmethod
    def empty(cls, partition: Partition) -> TaskGradients:
        return cls(
            [[None] * len(partition.shared) for _ in partition.own],
            [[None] * len(group) for group in partition.own],
            [None] * len(partition.shared),
            [None] * len(partition.extra),
        )

    def note(self, losses: Losses) -> None:
        """Record the values of the sums and counts."""
        self.tasks += losses.tasks
        self.sums += [total.detach() for total in losses.sums]
        self.counts += losses.counts

    def all(self) -> list[Tensor]:
        """Return every gradient there is; of sparse ones the values."""
        return values_of([*self.shared, *self.own, self.extra_shared, self.extra_own])


def values_of(rows: Iterable[Gradients]) -> list[Tensor]:
    """Return the gradients that are not None; of sparse ones the values."""
    existing = [g for gradients in rows for g in gradients if g is not None]
    return [g.coalesce().values() if g.is_sparse else g for g in existing]


def scatter(
    tasks: Sequence[int], sums: Sequence[Tensor] | Tensor, counts: Sequence[Tensor], size: int, device: torch.device
) -> Tensor:
    """Return sums of losses and counts, added up by task, [2, T] float64."""
    if not tasks:
        return torch.zeros(2, size, dtype=torch.float64, device=device)
    columns = (sums if isinstance(sums, Tensor) else torch.stack(list(sums)), torch.stack(list(counts)))
    values = torch.stack([column.to(torch.float64) for column in columns])
    if list(tasks) == list(range(size)):
        return values
    result = torch.zeros(2, size, dtype=torch.float64, device=values.device)
    return result.index_add_(1, torch.tensor(list(tasks)).to(values.device, non_blocking=True), values)


def by_task(products: Tensor, tasks: Sequence[int], size: int) -> Tensor:
    """Return [T, T] with the products of some tasks' gradients, zeros elsewhere."""
    if list(tasks) == list(range(size)):
        return products
    result = products.new_zeros(size, size)
    index = torch.tensor(list(tasks)).to(products.device, non_blocking=True)
    result[index[:, None], index] = products
    return result


def collect(
    micros: Iterable[Iterable[Losses]],
    partition: Partition,
    factors: Sequence[float] | None,
    extra_factor: float = 1.0,
    earlier: TaskGradients | None = None,
    at_heads: list[AtHeads] | None = None,
) -> TaskGradients:
    """Differentiate every task's sum of losses, batch by batch, so that one batch's graph is alive at a time.

    Args:
        factors: factor of each task's sum before it is differentiated (the scale of mixed precision), None for ones.
        extra_factor: factor of the objective's terms.
        earlier: gradients of the step's earlier micro-batches, which these are added to.
        at_heads: a list that gets the gradients at the representation, which may be differentiated by the heads.
    """
    task_gradients = TaskGradients.empty(partition) if earlier is None else earlier

    for micro in micros:
        for losses in micro:
            task_gradients.note(losses)
            term = losses.extra if losses.extra is not None and losses.extra.requires_grad else None

            if losses.sums:
                _differentiate(task_gradients, losses, partition, factors, losses.keep or term is not None, at_heads)

            if term is not None:
                targets = [*partition.shared, *partition.extra]
                grads = torch.autograd.grad(term * extra_factor, targets, retain_graph=losses.keep, allow_unused=True)
                accumulate(task_gradients.extra_shared, grads[: len(partition.shared)])
                accumulate(task_gradients.extra_own, grads[len(partition.shared) :])

    return task_gradients


def _scaled(losses: Losses, position: int, factors: Sequence[float] | None) -> Tensor:
    total = losses.sums[position]
    return total if factors is None else total * factors[losses.tasks[position]]


def _differentiate(
    task_gradients: TaskGradients,
    losses: Losses,
    partition: Partition,
    factors: Sequence[float] | None,
    keep: bool,
    at_heads: list[AtHeads] | None,
) -> None:
    """Add the gradients of one batch's sums of losses; `keep` the graph where other terms depend on it."""
    z, shared, last = losses.representation, partition.shared, len(losses.tasks) - 1
    split = z is not None and bool(losses.branches)
    if not split and at_heads is not None:
        raise UserError("the balancer needs an architecture with one shared representation, such as hps")

    if z is None or not split or (last == 0 and at_heads is None):
        for position, task in enumerate(losses.tasks):
            targets = [*shared, *partition.own[task]]
            retain = keep or position < last
            total = _scaled(losses, position, factors)
            grads = torch.autograd.grad(total, targets, retain_graph=retain, allow_unused=True)
            accumulate(task_gradients.shared[task], grads[: len(shared)])
            accumulate(task_gradients.own[task], grads[len(shared) :])
        return

    at_z = at_representation(task_gradients.own, losses, partition, factors, again=at_heads is not None)
    if at_heads is not None:
        at_heads.append(AtHeads(list(losses.tasks), at_z))
        at_z = [row.detach() for row in at_z]

    if partition.vectorised and len(z) * sum(p.numel() for p in shared) <= _BATCHED_WORK:
        rows = torch.autograd.grad(
            z, shared, torch.stack(at_z), retain_graph=keep, allow_unused=True, is_grads_batched=True
        )
        for position, task in enumerate(losses.tasks):
            accumulate(task_gradients.shared[task], [None if row is None else row[position] for row in rows])
        return

    for position, task in enumerate(losses.tasks):
        retain = keep or position < last
        accumulate(
            task_gradients.shared[task],
            torch.autograd.grad(z, shared, at_z[position], retain_graph=retain, allow_unused=True),
        )


def at_representation(
    own: list[Gradients],
    losses: Losses,
    partition: Partition,
    factors: Sequence[float] | None,
    *,
    again: bool = False,
) -> list[Tensor]:
    """Return the gradients of the batch's sums of losses at the representation; add those of the heads to `own`.

    One pass through all heads gives them, if each task reads a view of its own; otherwise one pass for each task. With
    `again` they may be differentiated once more, by the heads' parameters.
    """
    z = losses.representation
    if any(branch is z for branch in losses.branches):
        rows = []
        for position, task in enumerate(losses.tasks):
            targets = [losses.branches[position], *partition.own[task]]
            total = _scaled(losses, position, factors)
            at_z, *of_head = torch.autograd.grad(
                total, targets, retain_graph=True, create_graph=again, allow_unused=True
            )
            accumulate(own[task], [None if gradient is None else gradient.detach() for gradient in of_head])
            rows.append(torch.zeros_like(losses.branches[position]) if at_z is None else at_z)
        return rows

    heads = [p for task in losses.tasks for p in partition.own[task]]
    total = _scaled(losses, 0, factors)
    for position in range(1, len(losses.tasks)):
        total = total + _scaled(losses, position, factors)

    gradients = torch.autograd.grad(
        total, [*losses.branches, *heads], retain_graph=True, create_graph=again, allow_unused=True
    )
    of_heads = gradients[len(losses.branches) :]
    head_gradients = [None if gradient is None else gradient.detach() for gradient in of_heads]
    for task in losses.tasks:
        accumulate(own[task], head_gradients[: len(own[task])])
        del head_gradients[: len(own[task])]

    return [
        torch.zeros_like(z) if gradient is None else gradient
        for z, gradient in zip(losses.branches, gradients, strict=False)
    ]


def reduce(task_gradients: TaskGradients, table: Tensor, partition: Partition, workers: Workers, terms: bool) -> None:
    """Sum gradients and `table` over workers, in place.

    A worker without a gradient contributes zeros, so that all send the same shapes. `terms` says whether an objective's
    gradients are among them.
    """
    if workers.size == 1:
        return
    rows: list[tuple[Gradients, list[nn.Parameter]]] = []
    if terms:
        rows += [(task_gradients.extra_shared, partition.shared), (task_gradients.extra_own, partition.extra)]
    rows += [(row, partition.shared) for row in task_gradients.shared]
    rows += list(zip(task_gradients.own, partition.own, strict=True))

    everything = [table]
    for gradients, parameters in rows:
        everything += dense_everywhere(gradients, parameters)
    workers.sum_many(everything)


def dense_everywhere(gradients: Gradients, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Make gradients dense in place so that they can be sent, zeros where there was none, and return them."""
    dense_gradients = []
    for index, parameter in enumerate(parameters):
        gradient = gradients[index]
        dense = torch.zeros_like(parameter) if gradient is None else gradient
        dense_gradients.append(dense.to_dense() if dense.is_sparse else dense.contiguous())
        gradients[index] = dense_gradients[-1]
    return dense_gradients
