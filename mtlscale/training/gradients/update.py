"""Update: sums of losses in, gradients out, the same for every source, architecture, balancer and objective.

Everything that happens between a loss and an optimiser happens here and in `strategies`, once: reduction over workers,
the scale of mixed precision, the check that all is finite, steps that are skipped, tasks without labels, accumulation,
balancing and clipping. It knows no batch and no loss function. Sums and counts are added up over micro-batches and
workers before anything is divided, so that k workers with batch b compute what one worker with batch k·b computes.

The numbers a balancer sees are brought to the host in one copy, so that a step waits for the device once for them:
balancers solve problems of size T, for which a device's kernels would take longer to start than to run. It waits once
more, to learn whether all gradients are finite before anything moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, JacobianBalancer, State, balanced_tasks, look_again
from mtlscale.config import UserError
from mtlscale.data import Workers
from mtlscale.training.gradients.layerwise_gramian import by_layers
from mtlscale.training.gradients.modulewise_gramian import by_modules
from mtlscale.training.gradients.overlap import Overlap
from mtlscale.training.gradients.per_task import Partition, TaskGradients, collect, values_of
from mtlscale.training.gradients.representation_gramian import by_representation
from mtlscale.training.gradients.step_stats import Diverged, bad_gradients, clip_factors, finite
from mtlscale.training.gradients.strategies import (
    Amp,
    Draft,
    GradientStrategy,
    Micro,
    OtherTasks,
    Overflow,
    Penalty,
    StepRequest,
)

_OF_SHARED = ("gramian", "jacobian", "modules")  # what balancers need that is measured at shared parameters
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_GROWTH_STEPS = 2000  # steps without an overflow, after which the loss scale doubles
_FIRST_SCALE = 2.0**16


@dataclass
class StepResult:
    """Result of one step: its losses and weights, and whether it was skipped."""

    losses: Tensor  # [T] float64 on the host: mean losses, NaN where the task had no label in this step
    weights: Tensor  # [T] float64 on the host, of the shared update; NaN where there is no such number
    balanced: Tensor  # [T] bool on the host: the tasks that the balancer was asked about
    skipped: bool = False  # mixed precision overflowed: no parameter, optimiser or balancer state moved

    @property
    def balanced_losses(self) -> Tensor:
        """The losses [T] as the balancer sees them: NaN where it was not asked about the task."""
        return torch.where(self.balanced, self.losses, torch.nan)


def no_penalty() -> None:
    """Return no penalty, the default of an update."""
    return None


def _precision(amp: Amp, dtype: torch.dtype) -> float:
    """Return the relative rounding error of gradients."""
    return float(torch.finfo(_HALF.get(amp, dtype)).eps)


class Update:
    """Update that turns T sums of losses, the parameters' partition and a balancer into `.grad` of every parameter.

    Args:
        partition: the parameters, by whose they are.
        balancer: what weighs the losses or combines their gradients.
        device: where the parameters lie.
        dtype: type of the parameters.
        workers: the workers to sum over, by default this one alone.
        clip: limit of the gradient's norm; None for none.
        amp: the precision the losses were computed in; "fp16" scales them and skips steps that overflow.
        gramian_every: balance anew every so many steps and reuse the weights in between (an approximation), as long as
            the steps have the same tasks.
        seed: seed of the balancer's state, where `state` is not given.
        state: the balancer's first state.
        overlap: sum gradients over workers during the backward pass, which no other message may cross then.
        everywhere: a parameter that no loss of a step reaches has gradient 0, not none: its optimiser moves it all the
            same.
        checks_gradients: look at `.grad` in every type, not in fp16 alone; each step then waits for the device twice.
    """

    def __init__(
        self,
        names: Sequence[str],
        partition: Partition,
        balancer: Balancer,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        workers: Workers | None = None,
        clip: float | None = None,
        amp: Amp = "off",
        gramian_every: int = 1,
        seed: int = 0,
        state: State | None = None,
        overlap: bool = False,
        everywhere: bool = False,
        checks_gradients: bool = False,
    ) -> None:
        if partition.joint and (balancer.needs != "losses" or balancer.heads != "weighted"):
            raise UserError(
                f"this architecture combines the tasks' gradients itself; use a balancer that weights losses (equal, "
                f"uncertainty, dwa) instead of {balancer.name}"
            )

        balances = not (partition.independent or partition.partial or len(names) == 1)  # a turn may move heads alone
        if balances and not partition.shared and balancer.needs in _OF_SHARED:
            raise UserError(
                f"{balancer.name} balances the tasks' gradients at what they share, and nothing of that learns here; "
                "use a balancer that weights losses (equal, uncertainty, dwa)"
            )

        self.names, self.partition, self.balancer = tuple(names), partition, balancer
        self.device, self.workers = device, workers or Workers()
        self.clip, self.amp, self.gramian_every, self.everywhere = clip, amp, gramian_every, everywhere
        overlaps = Overlap(partition.all, self.workers) if overlap and self.workers.size > 1 else None
        self.strategy = GradientStrategy(
            self.names,
            partition,
            balancer,
            self.workers,
            device,
            amp,
            _precision(amp, dtype),
            overlaps,
            checks_gradients,
        )

        self.state = balancer.init(len(self.names), seed=seed) if state is None else state
        self.state = {key: value.to(self.place_of(key)) for key, value in self.state.items()}

        self.loss_scale = _FIRST_SCALE if amp == "fp16" else 1.0
        self.good_steps = 0  # steps since the loss scale last changed
        self.skipped = 0
        self.count = 0
        self.unknown_task = ""  # what a message says that cannot name the task of a bad gradient
        self.reused: Tensor | None = None  # weights [T] reused between balancings, NaN for tasks that had none
        self.balanced: Tensor | None = None  # tasks [T] that the last step balanced

    def place_of(self, entry: str) -> torch.device:
        """Return where an entry of the balancer's state lies.

        That is on the host, but for a balancer that needs the gradients themselves.
        """
        away = isinstance(self.balancer, JacobianBalancer) and entry not in self.balancer.on_host
        return self.device if away else torch.device("cpu")

    def repartition(self, partition: Partition, device: torch.device, dtype: torch.dtype) -> None:
        """Go on with other parameters, or with parameters that were moved to another device or type."""
        self.partition, self.device = partition, device
        precision = _precision(self.amp, dtype)
        self.strategy = replace(
            self.strategy, partition=partition, device=device, precision=precision, costly_shapes=set()
        )
        self.state = {key: value.to(self.place_of(key)) for key, value in self.state.items()}

    def __call__(
        self,
        micros: Sequence[Micro],
        *,
        sizes: Sequence[float] | None = None,
        scale: Tensor | None = None,
        penalty: Penalty = no_penalty,
        query: Sequence[Micro] | None = None,
        earlier: TaskGradients | None = None,
        retain: bool = False,
    ) -> StepResult:
        """Leave the gradients of one step, cut into micro-batches, in `.grad`; a skipped step leaves none.

        Args:
            micros: the losses of each micro-batch.
            sizes: [T], about how many terms each sum has in the whole step: in fp16 sums are divided by them before
                they are differentiated.
            scale: [T] factors of the task losses.
            penalty: returns a scalar on parameters alone, the same on every worker.
            query: losses of other data, for balancers that need them.
            earlier: what `collect` returned for the step's earlier micro-batches.
            retain: keep the losses' graph, so that it can be differentiated again; for one micro-batch that is a list.

        Raises:
            Diverged: If a loss, gradient or weight is not a finite number.
            UserError: If the architecture or balancer cannot work on several micro-batches.
        """
        self.count += 1
        if self.partition.joint and len(micros) > 1:
            raise UserError("this architecture needs the gradients of a whole step at once: set accumulate to 1")

        due = self.reused is None or (self.count - 1) % self.gramian_every == 0
        reused, state = None if due else self.reused, self.state
        request = StepRequest(
            micros, sizes, scale, penalty, query, state, self.loss_scale, reused, self.count, earlier, retain
        )

        if reused is not None and len(micros) == 1:
            request = replace(request, micros=[list(micros[0])])  # they may be asked for twice
        try:
            try:
                draft = self._strategy_of(request)(request)
            except OtherTasks:
                # Weights made for other tasks are of no use: balance anew.
                request = replace(request, reused=None)
                draft = self._strategy_of(request)(request)
        except Overflow as overflow:
            return self._skip(overflow.losses)
        if not draft.finite:
            if self.amp != "fp16":
                raise self._bad_gradient(request)
            return self._skip(draft.losses)

        self.state, self.balanced = draft.state, draft.balanced
        if self.gramian_every > 1 and self.balancer.needs == "gramian":
            self.reused = torch.where(draft.balanced, draft.weights, torch.nan)

        self.good_steps += 1
        if self.amp == "fp16" and self.good_steps % _GROWTH_STEPS == 0:
            self.loss_scale *= 2

        unmoved_ids = {id(parameter) for parameter in draft.unmoved}
        for parameter in draft.unmoved:
            parameter.grad = None

        self._clip()
        if self.everywhere:
            for parameter in self.partition.all:
                if parameter.grad is None and id(parameter) not in unmoved_ids:
                    parameter.grad = torch.zeros_like(parameter)

        return StepResult(draft.losses, draft.weights, draft.balanced)

    def collect(
        self, micro: Micro, sizes: Sequence[float] | None = None, earlier: TaskGradients | None = None
    ) -> TaskGradients:
        """Differentiate one micro-batch of a step whose other micro-batches come later, so that its graph can go.

        Args:
            sizes: as in the call, the same for all micro-batches of a step.
            earlier: what this method returned for the micro-batch before; it is added to in place.
        """
        request = StepRequest([micro], sizes, None, no_penalty, None, self.state, self.loss_scale, None, self.count)
        factors, _ = self.strategy.factors(request)
        return collect([micro], self.partition, factors, self.loss_scale, earlier)

    def _strategy_of(self, request: StepRequest) -> Callable[[StepRequest], Draft]:
        """Return the cheapest strategy that gives the balancer what it needs."""
        due = request.reused is None
        if self.balancer.needs == "modules" and len(self.names) > 1 and not self.partition.independent:
            return partial(by_modules, self.strategy)
        unbalanced = not self.partition.shared or len(self.names) == 1
        alone = len(request.micros) == 1 and request.earlier is None
        if alone and (self.balancer.needs == "losses" or unbalanced or not due):
            return self.strategy.by_losses
        aligned = self.strategy.aligns_heads(request)
        if aligned and not alone:
            raise UserError(f"{self.balancer.name} differentiates heads twice: set accumulate to 1")
        if self.balancer.at == "parameters" or unbalanced or not due:
            if self.balancer.needs == "gramian" and due and not unbalanced and alone and not aligned:
                return partial(by_layers, self.strategy)
            return self.strategy.by_gradients
        if not alone:
            raise UserError(f"{self.balancer.name} works at the representation: set accumulate to 1")
        return partial(by_representation, self.strategy)

    @torch.no_grad()
    def look_again(self, micros: Sequence[Micro], scale: Tensor | None = None) -> None:
        """Tell the balancer the losses of the same batch after the optimiser's step, computed without gradients."""
        task_gradients = TaskGradients.empty(self.partition)
        for micro in micros:
            for losses in micro:
                task_gradients.note(losses)
        request = StepRequest(micros, None, scale, no_penalty, None, self.state, 1.0, None, self.count)
        stats = self.strategy.stats(request, self.workers.sum(self.strategy.table(task_gradients)))
        present = stats.present if self.balanced is None else stats.present & self.balanced
        self.state = look_again(self.balancer, stats.losses * stats.scale, self.state, present)

    def on_epoch_end(self, losses: Tensor) -> None:
        """Tell the balancer the losses [T] averaged over the epoch's steps that balanced the task, NaN for no step."""
        if bool(losses.isnan().all()):
            return
        self.state = self.balancer.on_epoch_end(losses, self.state)

    def state_dict(self) -> dict[str, Any]:
        return {
            "balancer": self.state,
            "loss_scale": self.loss_scale,
            "good_steps": self.good_steps,
            "skipped": self.skipped,
            "count": self.count,
            "reused": self.reused,
            "balanced": self.balanced,
        }

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        self.state = {key: value.to(self.place_of(key)) for key, value in content["balancer"].items()}
        self.loss_scale, self.good_steps = content["loss_scale"], content["good_steps"]
        self.skipped, self.count = content["skipped"], content["count"]
        self.reused, self.balanced = content["reused"], content["balanced"]

    def _skip(self, losses: Tensor) -> StepResult:
        """Discard this step, and scale losses less from now on."""
        self.strategy.zero()
        self.loss_scale, self.good_steps, self.skipped = self.loss_scale / 2, 0, self.skipped + 1
        balanced = balanced_tasks(self.balancer, losses, ~losses.isnan())
        return StepResult(losses, torch.full_like(losses, float("nan")), balanced, skipped=True)

    def _bad_gradient(self, request: StepRequest) -> Diverged:
        """Return the exception for `.grad` that is not finite; it names the tasks as far as they can be told."""
        partition, device = self.partition, self.device
        rows = [[p.grad for p in group if p.grad is not None] for group in partition.own]
        bad = torch.stack([~finite(row, device) for row in rows]).to(torch.float64)

        if len(self.names) == 1:
            bad[0] = 1.0
        elif request.retain and not bool(bad.any()):
            for losses in request.micros[0]:
                for task, total in zip(losses.tasks, losses.sums, strict=True):
                    row = torch.autograd.grad(total, partition.shared, retain_graph=True, allow_unused=True)
                    bad[task] = float(not bool(finite(values_of([list(row)]), device)))

        bad = self.workers.max(bad).cpu() > 0
        return bad_gradients(self.balancer, bad, self.names, request.step, "" if request.retain else self.unknown_task)

    def _clip(self) -> None:
        """Clip the norm of the whole gradient, or of each network where nothing is shared."""
        if self.clip is None:
            return

        own_parameters = self.partition.own
        for group in (
            own_parameters
            if self.partition.independent
            else [[*self.partition.shared, *(p for g in own_parameters for p in g)]]
        ):
            gradients = [p.grad for p in group if p.grad is not None]
            if gradients:
                norms = torch.stack(torch._foreach_norm(gradients)).to(torch.float64)
                factor = clip_factors(norms.square().sum(), self.clip)
                torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))
