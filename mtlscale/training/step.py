"""One training step: batches to an update, the same for every architecture, balancer and objective.

The T task losses stay separate scalars. A balancer that needs only losses costs one backward pass; one that needs the
Gramian costs one differentiation per task, which on suites with their own inputs per task is the same work. Sums and
counts are added up over micro-batches and workers before anything is divided, so that k workers with batch b compute
what one worker with batch k*b computes, whatever the balancer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import MultiTaskModule
from mtlscale.balancing._base import Balancer, JacobianBalancer, State, balance
from mtlscale.components import UserError
from mtlscale.data import Workers
from mtlscale.objectives._base import ObjectiveModule
from mtlscale.tasks import Batch, Outputs, TaskSuite
from mtlscale.training.gradients import (
    Gradients,
    accumulate,
    combine,
    cross_gramian,
    dense_jacobian,
    gramian,
)
from mtlscale.training.losses import task_loss

Micro = Sequence[Batch]  # one batch per stream

# Samples x parameters up to which T backward passes through a small network run faster as one batched pass (measured
# on a CPU: 2 x at 64 samples and 8,000 parameters, even at 128 and 80,000).
_BATCHED_WORK = 1 << 22


class Diverged(Exception):
    """A loss or gradient is not a finite number; the message names method, task and step."""


def mean_losses(sums: Tensor, counts: Tensor, balancer: Balancer) -> tuple[Tensor, Tensor, Tensor]:
    """sums, counts [..., T] -> mean losses [..., T], NaN where absent; which are present; which the balancer cannot
    take."""
    present = counts > 0
    losses = sums / counts
    bad = present & ~losses.isfinite()
    if balancer.positive_losses:
        bad |= present & (losses < 0)
    return losses, present, bad


def bad_loss(balancer: Balancer, losses: Tensor, bad: Tensor, names: Sequence[str], step: int) -> Exception:
    """What to raise for losses [T] of which some are `bad` [T]."""
    index = int(bad.nonzero()[0])
    name, value = names[index], float(losses[index])
    if value == value and abs(value) != float("inf"):
        return UserError(f"{balancer.name} needs losses ≥ 0, but task {name} has {value:g} in step {step}")
    return Diverged(f"{balancer.name}: loss of task {name} is {value} in step {step}")


def bad_gramian(balancer: Balancer, k: Tensor, names: Sequence[str], step: int) -> Diverged:
    """What to raise for a Gramian [T, T] that is not finite."""
    index = int((~k.isfinite()).any(dim=1).nonzero()[0])
    return Diverged(f"{balancer.name}: gradient of task {names[index]} is not finite in step {step}")


def head_weights(balancer: Balancer, weights: Tensor, present: Tensor) -> Tensor:
    """[..., T] factors of the tasks' own gradients where parameters are shared."""
    if balancer.heads == "weighted":
        return weights
    value = 1.0 if balancer.heads == "sum" else 1.0 / weights.shape[-1]
    return present.to(weights.dtype) * value


@dataclass
class StepResult:
    losses: Tensor  # [T] float64, NaN where the task had no label in this step
    weights: Tensor  # [T] float64, of the shared update
    skipped: bool = False  # the loss scale of AMP overflowed; nothing was updated


@dataclass
class _TaskGradients:
    """Gradients of the *sums* of the task losses, with what turns them into means."""

    shared: list[Gradients]  # [T] x shared parameters
    own: list[Gradients]  # [T] x the task's parameters
    sums: Tensor  # [T] float64
    counts: Tensor  # [T] float64
    extra_shared: Gradients
    extra_own: Gradients


class Step:
    """The step of one run. `balancer_state` and `loss_scale` are its only state; both travel in checkpoints.

    gramian_every: balance anew every so many steps and reuse the weights in between (an approximation).
    amp: "bf16" runs the network under autocast; "fp16" scales the losses too and skips steps that overflow.
    """

    def __init__(
        self,
        model: MultiTaskModule,
        suite: TaskSuite,
        balancer: Balancer,
        optimizer: torch.optim.Optimizer,
        *,
        objective: ObjectiveModule | None = None,
        workers: Workers | None = None,
        clip: float | None = None,
        amp: Literal["off", "bf16", "fp16"] = "off",
        gramian_every: int = 1,
        seed: int = 0,
        state: State | None = None,
    ) -> None:
        self.model, self.suite, self.balancer, self.optimizer = model, suite, balancer, optimizer
        self.objective = objective
        self.workers = workers or Workers()
        self.clip, self.amp, self.gramian_every = clip, amp, gramian_every
        self.names = [task.name for task in suite.tasks]
        if model.joint_backward and (balancer.needs != "losses" or balancer.heads != "weighted"):
            raise UserError(
                f"this architecture combines the tasks' gradients itself; use a balancer that weights losses (equal, "
                f"uncertainty, dwa) instead of {balancer.name}"
            )
        self.shared = [p for p in model.shared_parameters() if p.requires_grad]
        self.own = [[p for p in model.task_parameters(name) if p.requires_grad] for name in self.names]
        self.extra = [] if objective is None else [p for p in objective.parameters() if p.requires_grad]
        self.device = next(model.parameters()).device
        for module in model.modules():
            # T gradients of a vocabulary cost the rows that occur; what reaches the optimiser is dense.
            if isinstance(module, nn.Embedding):
                module.sparse = True
        self.balancer_state = balancer.init(len(self.names), seed=seed) if state is None else state
        self.balancer_state = {k: v.to(self.device) for k, v in self.balancer_state.items()}
        self.loss_scale = 2.0**16 if amp == "fp16" else 1.0
        self.good_steps = 0  # since the loss scale last changed
        self.skipped = 0
        self.count = 0
        self.reused: Tensor | None = None  # weights kept between balancings

    def __call__(self, micros: Sequence[Micro], query: Sequence[Micro] | None = None) -> StepResult:
        """Update the parameters from the micro-batches of one step.

        query: a second draw of training batches, for balancers that need validation gradients. Raises `Diverged`.
        """
        self.count += 1
        reuse = self.reused is not None and (self.count - 1) % self.gramian_every != 0
        if self.model.joint_backward and len(micros) > 1:
            raise UserError("this architecture needs the gradients of a whole step at once: set accumulate to 1")
        if self.balancer.needs == "losses" or not self.shared or len(self.names) == 1 or reuse:
            single = len(micros) == 1
            result = self._by_losses(micros[0], reuse) if single else self._by_gradients(micros, None)
        elif self.balancer.at == "representation":
            if len(micros) > 1:
                raise UserError(f"{self.balancer.name} works at the representation: set accumulate to 1")
            result = self._by_representation(micros[0])
        else:
            result = self._by_gradients(micros, query)
        if self.objective is not None:
            self.objective.reduce(self.workers.sum)
        if result.skipped:
            self.loss_scale, self.good_steps, self.skipped = self.loss_scale / 2, 0, self.skipped + 1
            return result
        self._clip()
        self.optimizer.step()
        self.model.after_step(self.optimizer.param_groups[0]["lr"], self.workers.sum)
        if self.objective is not None:
            self.objective.after_step(self.optimizer.param_groups[0]["lr"])
        self.good_steps += 1
        if self.amp == "fp16" and self.good_steps % 2000 == 0:
            self.loss_scale *= 2
        return result

    # -- forward ---------------------------------------------------------------------------------------------------

    def _forward(self, batch: Batch) -> Outputs:
        if self.amp == "off":
            return self.model(batch)
        dtype = torch.bfloat16 if self.amp == "bf16" else torch.float16
        with torch.autocast(self.device.type, dtype=dtype):
            outputs = self.model(batch)
        return Outputs(
            {name: value.float() for name, value in outputs.predictions.items()},
            outputs.representation,
            outputs.branches,
        )

    def _losses(self, batch: Batch, outputs: Outputs) -> list[tuple[int, Tensor, Tensor]]:
        """(task index, sum of losses, count) of each of the batch's tasks."""
        result = []
        for name, target in batch.samples.targets.items():
            index = self.names.index(name)
            task = self.suite.tasks[index]
            total, count = task_loss(task.loss, outputs.predictions[name], target, batch.samples.weights)
            result.append((index, total, count))
        return result

    # -- balancing -------------------------------------------------------------------------------------------------

    def _task_scale(self) -> Tensor:
        """[T] factors of the task losses: T times the objective's task weights, or ones."""
        weights = None if self.objective is None else self.objective.task_weights()
        if weights is None:
            return torch.ones(len(self.names), dtype=torch.float64, device=self.device)
        return weights.to(torch.float64) * len(self.names)

    def _means(self, sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """(mean losses [T] with NaN where absent, present [T]); raises `Diverged`. One host synchronisation."""
        losses, present, bad = mean_losses(sums, counts, self.balancer)
        if bool(bad.any()):
            raise bad_loss(self.balancer, losses, bad, self.names, self.count)
        return losses, present

    def _balance(self, losses: Tensor, k: Tensor | None, present: Tensor) -> Tensor:
        """Weights [T] of the shared update, on mean losses and the Gramian of mean gradients."""
        if self.model.independent or len(self.names) == 1:
            return present.to(losses.dtype)
        if k is not None and not bool(k.isfinite().all()):
            raise bad_gramian(self.balancer, k, self.names, self.count)
        weights, self.balancer_state = balance(self.balancer, losses, k, self.balancer_state, present)
        return weights

    def _head_weights(self, weights: Tensor, present: Tensor) -> Tensor:
        """[T] factors of the tasks' own gradients."""
        if self.model.independent:
            return weights
        return head_weights(self.balancer, weights, present)

    # -- the three ways to an update -------------------------------------------------------------------------------

    def _by_losses(self, micro: Micro, reuse: bool) -> StepResult:
        """One backward pass of the weighted losses."""
        size = len(self.names)
        parts: list[Tensor | None] = [None] * size
        found: list[tuple[int, Tensor, Tensor]] = []
        extra: Tensor | None = None
        for batch in micro:
            outputs = self._forward(batch)
            for index, total, count in self._losses(batch, outputs):
                before = parts[index]
                parts[index] = total if before is None else before + total
                found.append((index, total.detach(), count))
            term = None if self.objective is None else self.objective.term(batch, outputs)
            extra = term if extra is None else extra if term is None else extra + term
        sums, counts = self._scatter([f[0] for f in found], [f[1] for f in found], [f[2] for f in found])
        self.workers.sum_many([sums, counts])
        losses, present = self._means(sums, counts)
        scale = self._task_scale()
        if reuse:
            assert self.reused is not None
            weights = self.reused * present
        else:
            weights = self._balance(losses * scale, None, present)
        per_sum = scale / counts.clamp(min=1)  # from the sum of a task's losses to what is balanced
        heads = self._head_weights(weights, present)
        plain = bool(self.model.independent or self.balancer.heads == "weighted")
        self._zero()
        penalty = self._penalty(share=True)
        if plain:
            total_loss = _weighted(parts, weights * per_sum)
            for more in (extra, penalty):
                total_loss = more if total_loss is None else total_loss if more is None else total_loss + more
            if total_loss is not None and total_loss.requires_grad:
                (total_loss * self.loss_scale).backward()
        else:
            own = [p for group in self.own for p in group]
            head_loss = _weighted(parts, heads * per_sum)
            shared_loss = _weighted(parts, weights * per_sum)
            assert head_loss is not None and shared_loss is not None
            if extra is not None:
                shared_loss = shared_loss + extra
            grads = torch.autograd.grad(head_loss * self.loss_scale, own, retain_graph=True, allow_unused=True)
            _assign(own, grads)
            targets = [*self.shared, *self.extra]
            _assign(targets, torch.autograd.grad(shared_loss * self.loss_scale, targets, allow_unused=True))
            if penalty is not None:
                (penalty * self.loss_scale).backward()
        return self._finish_dense(losses, weights)

    def _by_gradients(self, micros: Sequence[Micro], query: Sequence[Micro] | None) -> StepResult:
        """One differentiation per task, the Gramian of the means, one combination."""
        g = self._task_gradients(micros)
        losses, present = self._means(g.sums, g.counts)
        task_scale = self._task_scale()
        per_sum = task_scale / (g.counts.clamp(min=1) * self.loss_scale)
        direction: list[Tensor] | None = None
        if isinstance(self.balancer, JacobianBalancer):
            jacobian = dense_jacobian(g.shared, per_sum, self.shared)
            direction, self.balancer_state = self.balancer.direction(
                jacobian, (losses * task_scale).nan_to_num(), self.balancer_state
            )
            weights = torch.full_like(losses, float("nan"))
        elif self.balancer.needs == "validation" and self.shared:
            weights = self._by_query(g, per_sum, query, present)
        else:
            k = None
            if self.balancer.needs == "gramian" and self.shared:
                k = gramian(g.shared, per_sum)
                if self.amp == "fp16" and not bool(k.isfinite().all()):
                    return StepResult(losses, torch.full_like(losses, float("nan")), skipped=True)
            weights = self._balance(losses * task_scale, k, present)
            self.reused = weights if self.gramian_every > 1 else None
        self._zero()
        if direction is None:
            _assign(self.shared, combine(g.shared, weights * per_sum, self.shared))
        else:
            _assign(self.shared, direction)
        self._assign_own(g.own, self._head_weights(weights, present) * per_sum)
        for parameters, gradients in ((self.shared, g.extra_shared), (self.extra, g.extra_own)):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    gradient = (gradient.to_dense() if gradient.is_sparse else gradient) / self.loss_scale
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        penalty = self._penalty()
        if penalty is not None:
            penalty.backward()
            self._densify()
        return StepResult(losses, weights)

    def _by_representation(self, micro: Micro) -> StepResult:
        """Gramian of the gradients at the shared representation (MGDA-UB), one backward pass through the trunk.

        Tasks with inputs of their own have representations of different samples, hence orthogonal gradients there.
        """
        size = len(self.names)
        sums = torch.zeros(size, dtype=torch.float64, device=self.device)
        counts = torch.zeros_like(sums)
        at_z: list[list[tuple[Tensor, list[tuple[int, Tensor]]]]] = []
        own: list[Gradients] = [[None] * len(group) for group in self.own]
        k = torch.zeros(size, size, dtype=torch.float64, device=self.device)
        extra: Tensor | None = None
        for batch in micro:
            outputs = self._forward(batch)
            z = outputs.representation
            if z is None or not outputs.branches:
                raise UserError(
                    f"{self.balancer.name} needs an architecture with one shared representation, such as hps"
                )
            losses_here = self._losses(batch, outputs)
            grads = self._at_representation(own, outputs, losses_here)
            found = [(index, grad) for (index, _, _), grad in zip(losses_here, grads, strict=True)]
            for index, total, count in losses_here:
                sums[index] += total.detach()
                counts[index] += count
            at_z.append([(z, found)])
            if found:
                flat = torch.stack([grad.reshape(-1) for _, grad in found])
                index_tensor = torch.tensor([index for index, _ in found], device=self.device)
                k[index_tensor[:, None], index_tensor] += (flat @ flat.T).to(torch.float64)
            term = None if self.objective is None else self.objective.term(batch, outputs)
            extra = term if extra is None else extra if term is None else extra + term
        self.workers.sum_many([sums, counts, k])
        losses, present = self._means(sums, counts)
        per_sum = self._task_scale() / counts.clamp(min=1)
        weights = self._balance(
            losses * self._task_scale(), k * per_sum[:, None] * per_sum / self.loss_scale**2, present
        )
        self._zero()
        self._assign_own(own, self._head_weights(weights, present) * per_sum)
        outputs_z: list[Tensor] = []
        grads_z: list[Tensor] = []
        for group in at_z:
            for z, found in group:
                total_z = torch.zeros_like(z)
                for index, grad in found:
                    total_z += grad * (weights[index] * per_sum[index]).to(grad.dtype)
                outputs_z.append(z)
                grads_z.append(total_z)
        if extra is not None:
            outputs_z.append(extra * self.loss_scale)
            grads_z.append(torch.ones_like(extra))
        targets = [*self.shared, *self.extra]
        _assign(targets, torch.autograd.grad(outputs_z, targets, grads_z, allow_unused=True))
        penalty = self._penalty(share=True)
        if penalty is not None:
            (penalty * self.loss_scale).backward()
        return self._finish_dense(losses, weights)

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _task_gradients(self, micros: Sequence[Micro], tasks_only: bool = False) -> _TaskGradients:
        """Gradients of every task's sum of losses, added up over micro-batches and workers."""
        size = len(self.names)
        g = _TaskGradients(
            [[None] * len(self.shared) for _ in range(size)],
            [[None] * len(group) for group in self.own],
            torch.empty(0),
            torch.empty(0),
            [None] * len(self.shared),
            [None] * len(self.extra),
        )
        indices: list[int] = []
        sums: list[Tensor] = []
        counts: list[Tensor] = []
        for micro in micros:
            for batch in micro:
                outputs = self._forward(batch)
                losses = self._losses(batch, outputs)
                term = None
                if self.objective is not None and not tasks_only:
                    term = self.objective.term(batch, outputs)
                self._differentiate(g, outputs, losses, keep=term is not None)
                indices += [index for index, _, _ in losses]
                sums += [total.detach() for _, total, _ in losses]
                counts += [count for _, _, count in losses]
                if term is not None and term.requires_grad:
                    grads = torch.autograd.grad(term * self.loss_scale, [*self.shared, *self.extra], allow_unused=True)
                    accumulate(g.extra_shared, grads[: len(self.shared)])
                    accumulate(g.extra_own, grads[len(self.shared) :])
        g.sums, g.counts = self._scatter(indices, sums, counts)
        self._reduce(g)
        return g

    def _scatter(self, indices: list[int], sums: list[Tensor], counts: list[Tensor]) -> tuple[Tensor, Tensor]:
        """([T], [T]) float64: sums of losses and counts added up by task."""
        result = torch.zeros(2, len(self.names), dtype=torch.float64, device=self.device)
        if indices:
            values = torch.stack([torch.stack(sums).to(torch.float64), torch.stack(counts).to(torch.float64)])
            result.index_add_(1, torch.tensor(indices, device=self.device), values)
        return result[0], result[1]

    def _differentiate(
        self, g: _TaskGradients, outputs: Outputs, losses: list[tuple[int, Tensor, Tensor]], keep: bool
    ) -> None:
        """Add the gradients of one batch's sums of losses; `keep` the graph for what else hangs on it."""
        z = outputs.representation
        if z is None or len(losses) == 1 or not outputs.branches:
            for position, (index, total, _) in enumerate(losses):
                grads = torch.autograd.grad(
                    total * self.loss_scale,
                    [*self.shared, *self.own[index]],
                    retain_graph=keep or position < len(losses) - 1,
                    allow_unused=True,
                )
                accumulate(g.shared[index], grads[: len(self.shared)])
                accumulate(g.own[index], grads[len(self.shared) :])
            return
        at_z = self._at_representation(g.own, outputs, losses)
        if self.model.vectorised and len(z) * sum(p.numel() for p in self.shared) <= _BATCHED_WORK:
            rows = torch.autograd.grad(
                z, self.shared, torch.stack(at_z), retain_graph=keep, allow_unused=True, is_grads_batched=True
            )
            for position, (index, _, _) in enumerate(losses):
                accumulate(g.shared[index], [None if row is None else row[position] for row in rows])
            return
        for position, (index, _, _) in enumerate(losses):
            more = keep or position < len(losses) - 1
            grads = torch.autograd.grad(z, self.shared, at_z[position], retain_graph=more, allow_unused=True)
            accumulate(g.shared[index], grads)

    def _at_representation(
        self, own: list[Gradients], outputs: Outputs, losses: list[tuple[int, Tensor, Tensor]]
    ) -> list[Tensor]:
        """Gradients of the batch's sums of losses at the representation; those of the heads are added to `own`."""
        branches = [outputs.branches[self.names[index]] for index, _, _ in losses]
        heads = [p for index, _, _ in losses for p in self.own[index]]
        total = sum((total for _, total, _ in losses[1:]), losses[0][1])
        found = torch.autograd.grad(total * self.loss_scale, [*branches, *heads], retain_graph=True, allow_unused=True)
        rest = list(found[len(branches) :])
        for index, _, _ in losses:
            accumulate(own[index], rest[: len(self.own[index])])
            del rest[: len(self.own[index])]
        return [torch.zeros_like(z) if at is None else at for z, at in zip(branches, found, strict=False)]

    def _reduce(self, g: _TaskGradients) -> None:
        """Sum over workers. A worker without a gradient contributes zeros, so all send the same shapes."""
        if self.workers.size == 1:
            return
        rows = [(g.extra_shared, self.shared), (g.extra_own, self.extra)] if self.objective is not None else []
        rows += [(row, self.shared) for row in g.shared]
        rows += [(row, group) for row, group in zip(g.own, self.own, strict=True)]
        everything = [g.sums, g.counts]
        for gradients, parameters in rows:
            for index, parameter in enumerate(parameters):
                gradient = gradients[index]
                dense = torch.zeros_like(parameter) if gradient is None else gradient
                dense = dense.to_dense() if dense.is_sparse else dense.contiguous()
                gradients[index] = dense
                everything.append(dense)
        self.workers.sum_many(everything)

    def _by_query(self, g: _TaskGradients, per_sum: Tensor, query: Sequence[Micro] | None, present: Tensor) -> Tensor:
        """Look ahead along the balancer's current weights, differentiate the query losses there, come back."""
        assert query is not None, "the loop draws a query batch for balancers that need validation gradients"
        eta = self.balancer.eta  # type: ignore[attr-defined]
        ahead = self.balancer.lookahead(self.balancer_state)  # type: ignore[attr-defined]
        move = combine(g.shared, ahead.to(per_sum) * per_sum * eta, self.shared)
        before = [p.detach().clone() for p in self.shared]
        with torch.no_grad():
            for parameter, delta in zip(self.shared, move, strict=True):
                if delta is not None:
                    parameter.sub_(delta)
        q = self._task_gradients(query, tasks_only=True)
        with torch.no_grad():
            for parameter, value in zip(self.shared, before, strict=True):
                parameter.copy_(value)
        losses, query_present = self._means(q.sums, q.counts)
        query_scale = self._task_scale() / (q.counts.clamp(min=1) * self.loss_scale)
        cross = cross_gramian(q.shared, g.shared, query_scale, per_sum)
        return self._balance(losses, cross, present & query_present)

    def _assign_own(self, own: list[Gradients], factors: Tensor) -> None:
        """The tasks' own gradients times their factors [T]."""
        for parameters, gradients, factor in zip(self.own, own, factors.tolist(), strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = (gradient.to_dense() if gradient.is_sparse else gradient) * factor

    def _penalty(self, share: bool = False) -> Tensor | None:
        """The objective's penalty on parameters; with `share`, this worker's part of it, to be summed over workers."""
        penalty = None if self.objective is None else self.objective.penalty()
        return penalty / self.workers.size if penalty is not None and share else penalty

    def _finish_dense(self, losses: Tensor, weights: Tensor) -> StepResult:
        """Sum `.grad` over workers and undo the loss scale."""
        parameters = self._densify()
        if self.workers.size > 1:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.workers.sum_many([p.grad for p in parameters if p.grad is not None])
        if self.amp == "fp16":
            grads = [p.grad for p in parameters if p.grad is not None]
            torch._foreach_div_(grads, self.loss_scale)
            if not bool(torch.stack([g.isfinite().all() for g in grads]).all()):
                return StepResult(losses, weights, skipped=True)
        return StepResult(losses, weights)

    def _densify(self) -> list[Tensor]:
        """All parameters, their sparse gradients made dense: Adam and its like take no others."""
        parameters: list[Tensor] = [*self.shared, *(p for group in self.own for p in group), *self.extra]
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        return parameters

    def _zero(self) -> None:
        for parameter in (*self.shared, *(p for group in self.own for p in group), *self.extra):
            parameter.grad = None

    def _clip(self) -> None:
        """Clip the norm of the whole gradient, or of each network where nothing is shared."""
        if self.clip is None:
            return
        if self.model.independent:
            for group in self.own:
                nn.utils.clip_grad_norm_(group, self.clip)
        else:
            nn.utils.clip_grad_norm_([*self.shared, *(p for group in self.own for p in group)], self.clip)


def _weighted(parts: Sequence[Tensor | None], weights: Tensor) -> Tensor | None:
    """Sum of weights[t] * parts[t] without stacking, so that each part keeps a graph of its own."""
    total: Tensor | None = None
    for part, weight in zip(parts, weights.unbind(), strict=True):
        if part is not None:
            term = part * weight.to(part.dtype)
            total = term if total is None else total + term
    return total


def _assign(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient
