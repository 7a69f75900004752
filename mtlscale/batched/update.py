"""The update of many trials: a step's parts in; losses, weights and gradients out. It says what the update of one run
does (`mtlscale.training.Update`), over a leading dimension; how gradients arise is in `differentiate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.batched import differentiate
from mtlscale.batched.balancer import BatchedBalancer
from mtlscale.batched.differentiate import Gradients
from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.parts import Part
from mtlscale.batched.streams import Streams
from mtlscale.spec import Run
from mtlscale.training import (
    Means,
    StepResult,
    bad_gradient,
    bad_loss,
    bad_weights,
    counters,
    derive_seed,
    first_state,
    head_weights,
    told,
    traced,
)


class Leaving(Exception):
    """Some trials cannot go on: their places and why."""

    def __init__(self, causes: Mapping[int, Exception]) -> None:
        super().__init__(str(causes))
        self.causes = causes


class BatchedUpdate:
    """Turns the losses of B trials into gradients of the slots. Holds the balancers and, on the host, their states."""

    def __init__(self, runs: Sequence[Run], network: BatchedNetwork, train: Streams, dtype: torch.dtype) -> None:
        self.network, self.layout, self.train = network, network.layout, train
        self.names, self.precision = network.layout.names, torch.finfo(dtype).eps
        self.balancers: list[Balancer] = [run.parts.balancer for run in runs]
        self.balancer = BatchedBalancer(self.balancers)
        states = [
            first_state(balancer, self.names, network.suite, lambda _: train.by_name, derive_seed("balancer", run.seed))
            for run, balancer in zip(runs, self.balancers, strict=True)
        ]
        self.state: State = {key: torch.stack([state[key] for state in states]).cpu() for key in states[0]}

    @property
    def _one(self) -> Balancer:
        """For what the balancers of all trials have in common."""
        return self.balancers[0]

    @property
    def _balances(self) -> bool:
        """Whether there is anything to balance."""
        return not self.layout.independent and len(self.names) > 1

    @property
    def looks_again(self) -> bool:
        return self._one.looks_again and self._balances

    def __call__(self, values: Sequence[Tensor], parts: Sequence[Part], step: int) -> tuple[StepResult, Gradients]:
        """Losses and weights [B, T] on the host and the gradients of the slots, in the step of that number, from 1.
        Raises `Leaving` where a trial has diverged; nothing has moved then."""
        layout = self.layout
        by_losses = self._one.needs == "losses" or not layout.shared or len(self.names) == 1
        found = None if by_losses else self._tapped(values, parts, step)
        if found is not None:
            graph, rows, k = found
            means = self._means(graph, step, k)
            per_sum = means.per_sum
            weights = self._balance(means, means.gramian(per_sum), step)
            own = head_weights(self._one, weights, means.present) * per_sum
            return StepResult(means.losses, weights), differentiate.joined(graph, layout, rows, weights * per_sum, own)
        expanded = layout.joined and not by_losses
        graph = differentiate.forward(self.network, self.train, values, parts, expanded=expanded)
        if by_losses:
            means = self._means(graph, step)
            weights = self._balance(means, None, step)
            per_sum, of_heads = means.per_sum, None
            if self._one.heads != "weighted" and not layout.independent:
                of_heads = head_weights(self._one, weights, means.present) * per_sum
            return StepResult(means.losses, weights), differentiate.weighted(graph, layout, weights * per_sum, of_heads)
        rows = differentiate.by_task(graph, layout)
        means = self._means(graph, step, differentiate.gramian(rows, layout, graph.sums))
        per_sum = means.per_sum
        weights = self._balance(means, means.gramian(per_sum), step)
        own = head_weights(self._one, weights, means.present) * per_sum
        return StepResult(means.losses, weights), differentiate.combine(rows, layout, weights * per_sum, own)

    def _tapped(
        self, values: Sequence[Tensor], parts: Sequence[Part], step: int
    ) -> tuple[differentiate.Graph, Gradients, Tensor] | None:
        """The losses, the tasks' own gradients and the products of the others, where they come without these."""
        taps = self.network.taps
        if taps is None:
            return None
        found = differentiate.tapped(self.network, self.train, values, parts[0], taps, check=step == 1)
        if found is None:
            self.network.taps = None
        return found

    @torch.no_grad()
    def look_again(self, values: Sequence[Tensor], parts: Sequence[Part], step: int) -> None:
        """After the optimisers' step: tell the balancers the losses of the same parts, computed without gradients.
        Raises `Leaving` where these are no numbers."""
        means = self._means(differentiate.forward(self.network, self.train, values, parts), step)
        self.state = self.balancer.look_again(means.losses * means.scale, self.state, means.present)

    def on_epoch_end(self, losses: Tensor) -> None:
        """losses [B, T]: training losses averaged over the epoch."""
        self.state = self.balancer.on_epoch_end(losses, self.state)

    def counters(self, place: int) -> dict[str, int]:
        """What a trial's balancer counted."""
        return counters(self.balancers[place].counters, {key: value[place] for key, value in self.state.items()})

    def traces(self, place: int) -> dict[str, Any]:
        """What a trial's balancer wants noted with each epoch."""
        return dict(traced(self.balancers[place], {key: value[place] for key, value in self.state.items()}))

    def keep(self, trials: Sequence[int]) -> None:
        """Go on with the trials at these places alone."""
        self.balancers = [self.balancers[place] for place in trials]
        self.state = {key: value[list(trials)] for key, value in self.state.items()}
        if self.balancers:
            self.balancer = BatchedBalancer(self.balancers)

    def _means(self, graph: differentiate.Graph, step: int, k: Tensor | None = None) -> Means:
        """What the balancers are told, on the host: the one place where a step waits for the device."""
        numbers = [graph.sums.detach(), graph.counts, *([] if k is None else [k.flatten(1)])]
        host = torch.cat([n.to(torch.float64) for n in numbers], dim=1).cpu()
        means = Means.of(host, self._one, len(self.names), scaled=False, gramian=k is not None)
        causes: dict[int, Exception] = {}
        if means.k is not None and not bool(means.k.isfinite().all()):
            for b in (~means.k.isfinite()).flatten(1).any(1).nonzero().flatten().tolist():
                causes[b] = bad_gradient(self.balancers[b], means.k[b], self.names, step)
        if bool(means.bad.any()):
            for b in means.bad.any(1).nonzero().flatten().tolist():
                causes[b] = bad_loss(self.balancers[b], means.losses[b], means.bad[b], self.names, step)
        if causes:
            raise Leaving(causes)
        return means

    def _balance(self, means: Means, k: Tensor | None, step: int) -> Tensor:
        """Weights [B, T] of the shared updates. Raises `Leaving` where a trial's are no numbers."""
        if not self._balances:
            return means.present.to(torch.float64)
        state = told(self._one, self.state, self.precision, means.scale)
        weights, after = self.balancer.balance(means.losses * means.scale, k, state, means.present)
        if not bool(weights.isfinite().all()):
            odd = (~weights.isfinite()).any(1).nonzero().flatten().tolist()
            raise Leaving({b: bad_weights(self.balancers[b], weights[b], step) for b in odd})

        self.state = after
        return weights
