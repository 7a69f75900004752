"""Gradient strategies: from the losses of a step to its gradients.

They are one backward pass of weighted losses, or one differentiation per task. Three more are in
`representation_gramian`, `layerwise_gramian` and `modulewise_gramian`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from mtlscale.balancing import (
    Balancer,
    JacobianBalancer,
    State,
    ValidationBalancer,
    balance,
    balanced_tasks,
    direct,
    look_ahead_weights,
)
from mtlscale.data import Losses, Workers
from mtlscale.training.gradients.gramian import Gradients, combine, cross_gramian, dense_jacobian, gramian, nonzero
from mtlscale.training.gradients.head_alignment import align_heads
from mtlscale.training.gradients.overlap import Overlap
from mtlscale.training.gradients.per_task import (
    AtHeads,
    AtRepresentation,
    Partition,
    TaskGradients,
    collect,
    reduce,
    scatter,
    values_of,
)
from mtlscale.training.gradients.step_stats import (
    Diverged,
    StepStats,
    all_finite,
    bad_gradient,
    bad_gradients,
    bad_loss,
    bad_weights,
    finite,
    head_weights,
    with_hints,
)

Micro = Iterable[Losses]  # the losses of one micro-batch, one per stream; differentiated as they come
Penalty = Callable[[], Tensor | None]
Amp = Literal["off", "bf16", "fp16"]


@dataclass(frozen=True)
class StepRequest:
    """Request of a step: its losses and the state it starts from.

    `reused` are weights [T] to keep, NaN for tasks that they were not made for, None to balance anew. `earlier` are the
    gradients of micro-batches that were differentiated before. With `retain`, the losses can be differentiated again
    after the step.
    """

    micros: Sequence[Micro]
    sizes: Sequence[float] | None
    scale: Tensor | None
    penalty: Penalty
    query: Sequence[Micro] | None
    state: State
    loss_scale: float
    reused: Tensor | None
    step: int
    earlier: TaskGradients | None = None
    retain: bool = False

    def reuses(self, balanced: Tensor) -> bool:
        """Return whether weights are kept that were made for the tasks that are balanced in this step, bool [T]."""
        return self.reused is not None and torch.equal(~self.reused.isnan(), balanced)


@dataclass(frozen=True)
class Draft:
    """Draft of an update that has not been accepted yet: its gradients are in place, its state is not.

    `balanced` are the tasks that the balancer was asked about. `unmoved` are parameters that the step is not to move
    at all.
    """

    losses: Tensor
    weights: Tensor
    balanced: Tensor
    state: State
    finite: bool = True
    unmoved: Sequence[nn.Parameter] = ()


class OtherTasks(Exception):
    """Weights that were to be kept, in a step that has other tasks than the one they were made for."""


class Overflow(Exception):
    """Overflow of the gradients of a step, with the losses [T] that it had."""

    def __init__(self, losses: Tensor) -> None:
        super().__init__("overflow")
        self.losses = losses


@dataclass(frozen=True)
class GradientStrategy:
    """Gradient strategies for one partition and balancer, which leave the gradients in `.grad`.

    They hold no state but what can be computed anew. `precision` is the relative rounding error of the gradients.
    `checks_gradients` says whether `.grad` is looked at in every type, not in fp16 alone: the step then waits for the
    device once more.
    """

    names: tuple[str, ...]
    partition: Partition
    balancer: Balancer
    workers: Workers
    device: torch.device
    amp: Amp
    precision: float
    overlap: Overlap | None = None  # sums gradients over workers while the backward pass of weighted losses goes on
    checks_gradients: bool = False
    # Numbers of tasks and shapes for which layer by layer is no cheaper.
    costly_shapes: set[tuple[int, ...]] = field(default_factory=set)

    def by_losses(self, request: StepRequest) -> Draft:
        """Draft the update by one backward pass of the weighted losses."""
        partition = self.partition
        tasks: list[int] = []
        sums: list[Tensor] = []
        counts: list[Tensor] = []
        extra: Tensor | None = None
        for losses in request.micros[0]:
            tasks, sums, counts = tasks + losses.tasks, sums + losses.sums, counts + losses.counts
            extra = plus(extra, losses.extra)

        root = torch.stack(sums) if sums else None
        table = scatter(tasks, [] if root is None else root.detach(), counts, len(self.names), self.device)
        stats = self.stats(request, self.workers.sum(table))
        if self._balances and request.reused is not None and not request.reuses(stats.balanced):
            raise OtherTasks
        weights, state = self.balance(request, stats, None)
        per_sum = stats.per_sum

        self.zero()
        penalty = self._shared_penalty(request)
        inputs = partition.all if partition.partial else None

        if partition.independent or self.balancer.heads == "weighted":
            outputs, seeds = _seeded(root, tasks, weights * per_sum, plus(extra, penalty), request.loss_scale)
            with nullcontext() if self.overlap is None else self.overlap.reducing():
                if outputs:
                    torch.autograd.backward(outputs, seeds, retain_graph=request.retain, inputs=inputs)
            finite = self._finish(request, summed=self.overlap is not None)
            return Draft(stats.losses, weights, stats.balanced, state, finite)

        of_heads = self._head_weights(weights, stats) * per_sum
        own_parameters = [p for group in partition.own for p in group]
        targets = [*partition.shared, *partition.extra]
        passes = ((of_heads, None, own_parameters, True), (weights * per_sum, extra, targets, request.retain))
        for factors, term, parameters, keep in passes:
            outputs, seeds = _seeded(root, tasks, factors, term, request.loss_scale)
            if outputs and parameters:
                gradients = torch.autograd.grad(outputs, parameters, seeds, retain_graph=keep, allow_unused=True)
                _assign(parameters, gradients)

        if penalty is not None:
            (penalty * request.loss_scale).backward(inputs=inputs)

        return Draft(stats.losses, weights, stats.balanced, state, self._finish(request))

    def by_gradients(self, request: StepRequest) -> Draft:
        """Draft the update by one differentiation per task, the Gramian of the means, and one combination."""
        balancer, shared = self.balancer, self.partition.shared
        at_heads: list[AtHeads] | None = [] if self.aligns_heads(request) else None
        task_gradients, table, unscaled = self._collect(
            request, request.micros, earlier=request.earlier, at_heads=at_heads
        )
        needs_gramian = balancer.needs == "gramian" and bool(shared) and len(self.names) > 1
        k = gramian(task_gradients.shared, self.ones()) if needs_gramian and request.reused is None else None
        stats = self._with_gradients(self.stats(request, table, k, task_gradients.all), task_gradients)
        if needs_gramian and request.reused is not None and not request.reuses(stats.balanced):
            request = replace(request, reused=None)
            stats = self.stats(request, table, gramian(task_gradients.shared, self.ones()), task_gradients.all)
        per_sum = stats.per_sum * unscaled

        direction: list[Tensor] | None = None
        if isinstance(balancer, JacobianBalancer):
            numbers = torch.stack([per_sum, (stats.losses * stats.scale).nan_to_num()])
            factors, losses = numbers.to(self.device, non_blocking=True)
            jacobian = dense_jacobian(task_gradients.shared, factors, shared)
            if not bool(finite(jacobian, self.device)):
                raise self._bad_rows(request, task_gradients)
            direction, state = direct(balancer, jacobian, losses, request.state, stats.balanced)
            weights = torch.full_like(stats.losses, float("nan"))
        elif isinstance(balancer, ValidationBalancer) and shared:
            weights, state = self._by_query(balancer, request, task_gradients, per_sum, stats)
        else:
            weights, state = self.balance(request, stats, stats.gramian(per_sum))

        self.zero()
        _assign(shared, combine(task_gradients.shared, weights * per_sum, shared) if direction is None else direction)
        self.assign_own(task_gradients.own, self._head_weights(weights, stats) * per_sum)
        if at_heads is not None and int(stats.balanced.sum()) > 1:  # a task alone has nobody to align with
            align_heads(
                at_heads, self.partition, weights, per_sum, self.workers, cast(Any, balancer), retain=request.retain
            )
        _add(shared, task_gradients.extra_shared, request.loss_scale)
        _add(self.partition.extra, task_gradients.extra_own, request.loss_scale)

        penalty = request.penalty()
        if penalty is not None:
            penalty.backward(inputs=self.partition.all if self.partition.partial else None)
            densify(self.partition.all)

        all_finite = self.all_finite()
        if not all_finite and self.amp != "fp16":
            raise self._bad_rows(request, task_gradients)
        return Draft(stats.losses, weights, stats.balanced, state, all_finite)

    def through(
        self,
        request: StepRequest,
        task_gradients: TaskGradients,
        at_z: Sequence[AtRepresentation],
        extra: Tensor | None,
        weights: Tensor,
        per_sum: Tensor,
        stats: StepStats,
        ready_gradients: Mapping[int, Sequence[Tensor | None]] = MappingProxyType({}),
    ) -> bool:
        """Propagate the weighted losses back from the representation, with an objective's terms, in one backward pass.

        The tasks' own gradients are in `task_gradients`; `weights` and `per_sum` are [T]. `ready_gradients` are
        gradients by task that are there already, by their parameters' positions among what is shared. Return whether
        all gradients are finite.
        """
        self.zero()
        self.assign_own(task_gradients.own, self._head_weights(weights, stats) * per_sum)

        along = weights * per_sum
        on_device = along.to(self.device, non_blocking=True)

        outputs, grads = [], []
        for entry in at_z:
            first, last = entry.tasks[0], entry.tasks[-1]
            contiguous = list(entry.tasks) == list(range(first, last + 1))  # as in one stream: nothing more is copied
            factors = (
                on_device[first : last + 1] if contiguous else along[list(entry.tasks)].to(on_device, non_blocking=True)
            )
            outputs.append(entry.z)
            wide = entry.grads.flatten(1)
            wide = wide if wide.dtype == torch.float64 else wide.float()  # weights keep their digits
            grads.append((factors.to(wide.dtype) @ wide).to(entry.z.dtype).view_as(entry.z))

        if extra is not None and extra.requires_grad:
            outputs.append(extra * request.loss_scale)
            grads.append(torch.ones_like(extra))

        shared = self.partition.shared
        targets = [*(p for index, p in enumerate(shared) if index not in ready_gradients), *self.partition.extra]
        _assign(targets, torch.autograd.grad(outputs, targets, grads, retain_graph=request.retain, allow_unused=True))

        if ready_gradients:
            rows = [list(row) for row in zip(*ready_gradients.values(), strict=True)]
            parameters = [shared[index] for index in ready_gradients]
            _assign(parameters, combine(rows, along[list(at_z[0].tasks)], parameters))

        penalty = self._shared_penalty(request)
        if penalty is not None:
            (penalty * request.loss_scale).backward(inputs=self.partition.all if self.partition.partial else None)
        return self._finish(request)

    def _by_query(
        self,
        balancer: ValidationBalancer,
        request: StepRequest,
        task_gradients: TaskGradients,
        per_sum: Tensor,
        stats: StepStats,
    ) -> tuple[Tensor, State]:
        """Look ahead along the balancer's current weights, differentiate the query losses there, and come back."""
        assert request.query is not None, "whoever uses a balancer that needs query losses hands them over"
        shared, ahead = self.partition.shared, look_ahead_weights(balancer, request.state, stats.balanced)

        originals = [p.detach().clone() for p in shared]
        with torch.no_grad():
            move = combine(task_gradients.shared, ahead.to(per_sum) * per_sum * balancer.eta, shared)
            for parameter, delta in zip(shared, move, strict=True):
                if delta is not None:
                    parameter.sub_(delta)

        try:
            query_gradients, table, unscaled = self._collect(request, request.query, terms=False)
        finally:
            with torch.no_grad():
                for parameter, value in zip(shared, originals, strict=True):
                    parameter.copy_(value)

        products = cross_gramian(query_gradients.shared, task_gradients.shared, self.ones(), self.ones())
        query_stats = self.stats(request, table, products, query_gradients.all)
        query_stats = self._with_gradients(query_stats, query_gradients)
        assert query_stats.k is not None
        cross = query_stats.k * (query_stats.per_sum * unscaled)[:, None] * per_sum[None, :]

        # The balancer gets the query losses as they are: what they were multiplied by concerns their gradients alone.
        state = with_hints(balancer, request.state, self.precision, torch.ones_like(stats.scale))
        judged = stats.balanced & query_stats.balanced
        weights, state = balance(balancer, query_stats.losses, cross, state, judged)
        if not torch.equal(judged, stats.balanced):  # a task that is not among the query data keeps the weight it has
            weights = look_ahead_weights(balancer, state, stats.balanced).to(weights)
        return weights, state

    # -- pieces ----------------------------------------------------------------------------------------------------

    def table(self, task_gradients: TaskGradients) -> Tensor:
        """Return the sums of losses and the counts by task, [2, T], on this worker."""
        return scatter(task_gradients.tasks, task_gradients.sums, task_gradients.counts, len(self.names), self.device)

    def stats(
        self,
        request: StepRequest,
        table: Tensor,
        k: Tensor | None = None,
        gradients: Callable[[], Sequence[Tensor]] | None = None,
    ) -> StepStats:
        """Return what the balancer gets, on the host; here a step waits for the device.

        Args:
            table: sums of losses and counts [2, T].
            k: products of gradients [T, T], or [M, T, T].
            gradients: returns those that may have overflowed in fp16.

        Raises:
            Diverged: If a loss or a product is not a finite number.
            UserError: If a loss is negative and the balancer cannot take that.
            Overflow: If gradients overflowed in fp16.
        """
        size, scale = len(self.names), request.scale

        parts = [table.reshape(-1)]
        if scale is not None:
            parts.append(scale.to(torch.float64))
        if k is not None:
            parts.append(k.reshape(-1))

        checked = gradients is not None and self.amp == "fp16"
        if checked and gradients is not None:
            parts.append(finite(gradients(), self.device).to(torch.float64).reshape(1))

        host = (torch.cat(parts) if len(parts) > 1 else parts[0]).cpu()
        modules = len(k) if k is not None and k.ndim == 3 else None
        stats = StepStats.of(
            host, self.balancer, size, scaled=scale is not None, gramian=k is not None, modules=modules
        )
        if not self._balances:
            stats = replace(stats, balanced=stats.present)

        if stats.bad is not None and bool(stats.bad.any()):
            raise bad_loss(self.balancer, stats.losses, stats.bad, self.names, request.step)
        infinite = stats.k is not None and not all_finite(stats.k)
        if self.amp == "fp16" and (infinite or (checked and not bool(host[-1]))):
            raise Overflow(stats.losses)
        if infinite and stats.k is not None:
            raise bad_gradient(self.balancer, stats.k, self.names, request.step)

        return stats

    def zero(self) -> None:
        for parameter in self.partition.all:
            parameter.grad = None

    def aligns_heads(self, request: StepRequest) -> bool:
        """Return whether the heads of this step also follow the weighted sum of all tasks' gradients."""
        partition, balanced = self.partition, request.reused is None and len(self.names) > 1
        return self.balancer.aligns_heads and balanced and bool(partition.shared) and not partition.independent

    def _collect(
        self,
        request: StepRequest,
        micros: Sequence[Micro],
        terms: bool = True,
        earlier: TaskGradients | None = None,
        at_heads: list[AtHeads] | None = None,
    ) -> tuple[TaskGradients, Tensor, Tensor | float]:
        """Return a step's gradients and table, summed over workers, and the factors from these to sums of losses."""
        factors, sizes = self.factors(request)
        task_gradients = collect(micros, self.partition, factors, request.loss_scale, earlier, at_heads)
        table = self.table(task_gradients)
        reduce(task_gradients, table, self.partition, self.workers, terms)
        return task_gradients, table, sizes / request.loss_scale

    def factors(self, request: StepRequest) -> tuple[list[float] | None, Tensor | float]:
        """Return what the sums of losses are multiplied by before they are differentiated in fp16, and the sizes [T].

        The factors are the loss scale over the sizes, so that the scale means the same for a label and for a map.
        """
        if self.amp != "fp16":
            return None, 1.0
        sizes = torch.tensor(request.sizes or [1.0] * len(self.names), dtype=torch.float64)
        if self.workers.size > 1:  # a worker without a sample knows no size
            sizes = self.workers.max(sizes.to(self.device)).cpu()
        return (request.loss_scale / sizes).tolist(), sizes

    def ones(self) -> Tensor:
        return torch.ones(len(self.names), dtype=torch.float64, device=self.device)

    def balance(self, request: StepRequest, stats: StepStats, k: Tensor | None) -> tuple[Tensor, State]:
        """Return the weights [T] of the shared update, or [M, T], and the balancer's next state."""
        if not self._balances:
            return stats.present.to(torch.float64), request.state
        if request.reused is not None:
            return request.reused.nan_to_num(), request.state

        state = with_hints(self.balancer, request.state, self.precision, stats.scale)
        weights, after = balance(self.balancer, stats.losses * stats.scale, k, state, stats.balanced)
        if not all_finite(weights):
            raise bad_weights(self.balancer, weights, request.step)
        return weights, after

    @property
    def _balances(self) -> bool:
        return not self.partition.independent and len(self.names) > 1

    def _with_gradients(self, stats: StepStats, task_gradients: TaskGradients) -> StepStats:
        """Return the statistics by which a task is at rest only if its gradients are 0, too."""
        # Of other balancers' tasks, Gramians tell this.
        by_rows = isinstance(self.balancer, JacobianBalancer | ValidationBalancer)
        if not by_rows or not self._balances or torch.equal(stats.balanced, stats.present):
            return stats
        squares = nonzero(task_gradients.shared)
        return replace(stats, balanced=balanced_tasks(self.balancer, stats.losses, stats.present, squares))

    def _head_weights(self, weights: Tensor, stats: StepStats) -> Tensor:
        """Return the factors [T] of the gradients of tasks' own parameters."""
        if self.partition.independent:
            return weights
        return head_weights(self.balancer, weights, stats.present, stats.balanced)

    def assign_own(self, own: list[Gradients], factors: Tensor) -> None:
        """Assign the tasks' own gradients times their factors [T]."""
        for parameters, gradients, factor in zip(self.partition.own, own, factors.tolist(), strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = (gradient.to_dense() if gradient.is_sparse else gradient) * factor

    def _shared_penalty(self, request: StepRequest) -> Tensor | None:
        """Return this worker's part of a penalty whose gradient will be summed over workers."""
        penalty = request.penalty()
        return None if penalty is None else penalty / self.workers.size

    def _finish(self, request: StepRequest, *, summed: bool = False) -> bool:
        """Sum `.grad` over workers, unless `summed`, and undo the loss scale; return whether all is finite."""
        parameters = densify(self.partition.all)
        if self.workers.size > 1 and not summed and parameters:
            _sum_gradients(parameters, self.workers)
        if self.amp == "fp16":
            torch._foreach_div_([p.grad for p in parameters if p.grad is not None], request.loss_scale)
        return self.all_finite()

    def all_finite(self) -> bool:
        """Return whether `.grad` of all parameters is finite, or not asked for."""
        if not self.checks_gradients and self.amp != "fp16":
            return True
        return bool(finite([p.grad for p in self.partition.all if p.grad is not None], self.device))

    def _bad_rows(self, request: StepRequest, task_gradients: TaskGradients) -> Diverged:
        """Return the exception for gradients by task, summed over workers, of which some are not finite."""
        rows = [values_of([shared, own]) for shared, own in zip(task_gradients.shared, task_gradients.own, strict=True)]
        bad = torch.stack([~finite(row, self.device) for row in rows]).cpu()
        return bad_gradients(self.balancer, bad, self.names, request.step)


def densify(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """Make sparse gradients dense, since Adam and its like take no others, and return all parameters."""
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()
    return parameters


def _sum_gradients(parameters: Sequence[nn.Parameter], workers: Workers) -> None:
    """Sum `.grad` over workers."""
    missing = [p for p in parameters if p.grad is None]
    owner_counts = parameters[0].new_tensor([float(p.grad is not None) for p in parameters])
    for parameter in missing:
        parameter.grad = torch.zeros_like(parameter)
    workers.sum_many([*(p.grad for p in parameters if p.grad is not None), owner_counts])
    if missing:
        for parameter, count in zip(parameters, owner_counts.tolist(), strict=True):
            # An optimiser with momentum would move a parameter of zero gradient.
            parameter.grad = parameter.grad if count else None


def _seeded(
    root: Tensor | None, tasks: Sequence[int], factors: Tensor, term: Tensor | None, loss_scale: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of a backward pass, sums of losses `root` [n] and a term, with the gradients at them."""
    # Seeds instead of products and sums in the graph, which small networks would notice.
    outputs, seeds = [], []
    if root is not None and root.requires_grad:
        by_sum = factors if list(tasks) == list(range(len(factors))) else factors[list(tasks)]
        outputs.append(root)
        seeds.append((by_sum * loss_scale).to(root, non_blocking=True))
    if term is not None and term.requires_grad:
        outputs.append(term)
        seeds.append(torch.full_like(term, loss_scale))
    return outputs, seeds


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return the sum of two terms, of which any may be missing; None where there is neither."""
    return a if b is None else b if a is None else a + b


def _add(parameters: Sequence[nn.Parameter], gradients: Gradients, loss_scale: float) -> None:
    """Add gradients of a scaled loss to `.grad`; a parameter may have none."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            gradient = (gradient.to_dense() if gradient.is_sparse else gradient) / loss_scale
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


def _assign(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient
