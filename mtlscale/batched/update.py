"""Update of many trials: a step's parts in; losses, weights and gradients out.

It does what the update of one run does (`mtlscale.training.Update`), over a leading dimension; how gradients arise is
in `differentiate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.balancing.losses.equal import Equal
from mtlscale.batched import differentiate
from mtlscale.batched.balancer import BatchedBalancer
from mtlscale.batched.batch_plan import StreamBatch
from mtlscale.batched.differentiate import Gradients, fit
from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.optimizer_step import squares
from mtlscale.batched.streams import Streams
from mtlscale.config import Run
from mtlscale.training import (
    StepResult,
    StepStats,
    bad_gradient,
    bad_loss,
    bad_weights,
    counters,
    derive_seed,
    first_state,
    head_weights,
    noisy_tasks,
    traced,
    with_hints,
)


class Leaving(Exception):
    """Trials that cannot go on: their positions and why."""

    def __init__(self, causes: Mapping[int, Exception]) -> None:
        super().__init__(str(causes))
        self.causes = causes


class BatchedUpdate:
    """Update that turns the losses of B trials into gradients of the slots.

    It holds the balancers and, on the host, their states.
    """

    def __init__(self, runs: Sequence[Run], network: BatchedNetwork, train: Streams, dtype: torch.dtype) -> None:
        self.network, self.layout, self.train = network, network.layout, train
        self.names, self.precision = network.layout.names, torch.finfo(dtype).eps
        self.balancers: list[Balancer] = [run.parts.balancer for run in runs]
        self.balancer = BatchedBalancer(self.balancers)

        states = [
            first_state(
                balancer,
                self.names,
                network.suite,
                lambda _: train.by_name,
                derive_seed("balancer", run.seed),
                noisy_tasks(run, network.suite),
            )
            for run, balancer in zip(runs, self.balancers, strict=True)
        ]
        self.balanced: Tensor | None = None  # tasks [B, T] that the last step balanced
        self.state: State = {key: torch.stack([state[key] for state in states]).cpu() for key in states[0]}

    @property
    def _first_balancer(self) -> Balancer:
        """The balancer to ask for what all trials' balancers have in common."""
        return self.balancers[0]

    @property
    def _balances(self) -> bool:
        return not self.layout.independent and len(self.names) > 1

    @property
    def needs_post_step_losses(self) -> bool:
        return self._first_balancer.needs_post_step_losses and self._balances

    def __call__(
        self, values: Sequence[Tensor], parts: Sequence[StreamBatch], step: int
    ) -> tuple[StepResult, Gradients]:
        """Return losses and weights [B, T] on the host, and the gradients of the slots.

        `step` is the number of the step, from 1.

        Raises:
            Leaving: If a trial has diverged; nothing has moved then.
        """
        layout = self.layout
        if any(balancer.ascent for balancer in self.balancers):
            values = self._uphill(values, parts, step)
        by_losses = self._first_balancer.needs == "losses" or not layout.shared or len(self.names) == 1
        tapped = None if by_losses else self._tapped(values, parts, step)

        if tapped is not None:
            graph, rows, k = tapped
            stats = self._step_stats(graph, step, k)
            per_sum = stats.per_sum
            weights = self._balance(stats, stats.gramian(per_sum), step)
            own_factors = head_weights(self._first_balancer, weights, stats.present, stats.balanced) * per_sum
            return StepResult(stats.losses, weights, stats.balanced), differentiate.joined(
                graph, layout, rows, weights * per_sum, own_factors
            )

        expanded = layout.joined and not by_losses
        graph = differentiate.forward(self.network, self.train, values, parts, expanded=expanded)

        if by_losses:
            stats = self._step_stats(graph, step)
            weights = self._balance(stats, None, step)
            per_sum, of_heads = stats.per_sum, None
            if self._first_balancer.heads != "weighted" and not layout.independent:
                of_heads = head_weights(self._first_balancer, weights, stats.present, stats.balanced) * per_sum
            return StepResult(stats.losses, weights, stats.balanced), differentiate.weighted(
                graph, layout, weights * per_sum, of_heads
            )

        rows = differentiate.by_task(graph, layout)
        stats = self._step_stats(graph, step, differentiate.gramian(rows, layout, graph.sums))
        per_sum = stats.per_sum
        weights = self._balance(stats, stats.gramian(per_sum), step)
        own_factors = head_weights(self._first_balancer, weights, stats.present, stats.balanced) * per_sum
        return StepResult(stats.losses, weights, stats.balanced), differentiate.combine(
            rows, layout, weights * per_sum, own_factors
        )

    def _uphill(self, values: Sequence[Tensor], parts: Sequence[StreamBatch], step: int) -> list[Tensor]:
        """Return the slots as they are for balancers that look ahead: moved along the gradient of the mean loss."""
        graph = differentiate.forward(self.network, self.train, values, parts)
        stats = self._step_stats(graph, step)
        gradients = differentiate.weighted(graph, self.layout, stats.present * stats.per_sum, None)

        lengths = torch.tensor([balancer.ascent for balancer in self.balancers], dtype=torch.float64)
        device = values[0].device
        norms = squares(gradients, self.layout, len(lengths), device).sqrt()
        factors = torch.where(norms > 0, lengths.to(device).unsqueeze(1) / torch.where(norms > 0, norms, 1.0), 0.0)
        return [
            value if g is None else value + g * fit(slot.of_task(factors), g)
            for slot, value, g in zip(self.layout.slots, values, gradients, strict=True)
        ]

    def _tapped(
        self, values: Sequence[Tensor], parts: Sequence[StreamBatch], step: int
    ) -> tuple[differentiate.Graph, Gradients, Tensor] | None:
        """Return losses, own gradients and the products of the shared ones, where they come without these."""
        taps = self.network.taps
        if taps is None:
            return None
        result = differentiate.tapped(self.network, self.train, values, parts[0], taps, check=step == 1)
        if result is None:
            self.network.taps = None
        return result

    def of_equal(self, values: Sequence[Tensor], parts: Sequence[StreamBatch]) -> Gradients | None:
        """Return the gradients of equal weights at the same parameters; None where these are the trials' own."""
        if isinstance(self._first_balancer, Equal):
            return None
        graph = differentiate.forward(self.network, self.train, values, parts)
        stats = self._stats_of(graph)
        weights = stats.present / stats.present.sum(1, keepdim=True).clamp(min=1)
        return differentiate.weighted(graph, self.layout, weights * stats.per_sum, None)

    @torch.no_grad()
    def look_again(self, values: Sequence[Tensor], parts: Sequence[StreamBatch], step: int) -> None:
        """Tell the balancers the losses of the same parts after the optimisers' step, computed without gradients.

        Raises:
            Leaving: If a trial's losses are not finite.
        """
        stats = self._step_stats(differentiate.forward(self.network, self.train, values, parts), step)
        assert self.balanced is not None, "a step comes first"
        self.state = self.balancer.look_again(stats.losses * stats.scale, self.state, stats.present & self.balanced)

    def on_epoch_end(self, losses: Tensor) -> None:
        """Tell the balancers the training losses [B, T] averaged over the epoch."""
        self.state = self.balancer.on_epoch_end(losses, self.state)

    def counters(self, trial: int) -> dict[str, int]:
        """Return what a trial's balancer counted."""
        return counters(self.balancers[trial].counters, {key: value[trial] for key, value in self.state.items()})

    def traces(self, trial: int) -> dict[str, Any]:
        """Return what a trial's balancer wants noted with each epoch."""
        return dict(traced(self.balancers[trial], {key: value[trial] for key, value in self.state.items()}))

    def keep(self, positions: Sequence[int]) -> None:
        """Keep only the trials at these positions."""
        self.balancers = [self.balancers[position] for position in positions]
        self.state = {key: value[list(positions)] for key, value in self.state.items()}
        self.balanced = None if self.balanced is None else self.balanced[list(positions)]
        if self.balancers:
            self.balancer = BatchedBalancer(self.balancers)

    def _step_stats(self, graph: differentiate.Graph, step: int, k: Tensor | None = None) -> StepStats:
        """Return what the balancers get, on the host: here alone, a step waits for the device."""
        stats = self._stats_of(graph, k)

        causes: dict[int, Exception] = {}
        if stats.k is not None and not bool(stats.k.isfinite().all()):
            for b in (~stats.k.isfinite()).flatten(1).any(1).nonzero().flatten().tolist():
                causes[b] = bad_gradient(self.balancers[b], stats.k[b], self.names, step)
        if stats.bad is not None:
            for b in stats.bad.any(1).nonzero().flatten().tolist():
                causes[b] = bad_loss(self.balancers[b], stats.losses[b], stats.bad[b], self.names, step)

        if causes:
            raise Leaving(causes)

        return stats

    def _stats_of(self, graph: differentiate.Graph, k: Tensor | None = None) -> StepStats:
        numbers = [graph.sums.detach(), graph.counts, *([] if k is None else [k.flatten(1)])]
        host = torch.cat([n.to(torch.float64) for n in numbers], dim=1).cpu()
        stats = StepStats.of(host, self._first_balancer, len(self.names), scaled=False, gramian=k is not None)
        return stats if self._balances else replace(stats, balanced=stats.present)

    def _balance(self, stats: StepStats, k: Tensor | None, step: int) -> Tensor:
        """Return the weights [B, T] of the shared updates."""
        if not self._balances:
            return stats.present.to(torch.float64)
        state = with_hints(self._first_balancer, self.state, self.precision, stats.scale)
        weights, after = self.balancer.balance(stats.losses * stats.scale, k, state, stats.balanced)
        if not bool(weights.isfinite().all()):
            invalid = (~weights.isfinite()).any(1).nonzero().flatten().tolist()
            raise Leaving({b: bad_weights(self.balancers[b], weights[b], step) for b in invalid})

        self.state, self.balanced = after, stats.balanced
        return weights
