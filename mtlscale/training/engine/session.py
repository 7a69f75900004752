"""The session of a phase: its modules, optimizers (Adam, SGD), learning rate schedule and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtlscale.architectures import (
    DiscardsSteps,
    KeepsMemory,
    MeasuresAffinity,
    MultiTaskModule,
    Penalised,
    SeesCompanion,
    Source,
    TakesPreferences,
    Turn,
    UpdatesItself,
    WeighsTasks,
    capability,
)
from mtlscale.config import TrainingSpec
from mtlscale.data import Batch, EpochSampler
from mtlscale.objectives import ObjectiveModule
from mtlscale.training.batches import Part
from mtlscale.training.gradients.look_ahead import uphill
from mtlscale.training.gradients.update import StepResult, Update
from mtlscale.training.probes.affinity import task_affinity
from mtlscale.training.probes.replay import random_state, replayed, statistics_kept
from mtlscale.training.probes.survival import Survival

Micros = Sequence[Sequence[Batch]]  # micro-batches of a step, each one batch per stream


@dataclass
class Updater:
    """Updater of a turn, one of the updates of a step: a source, an update, an optimiser, and the samples it works on.

    Attributes:
        share: stream -> indices of its samples among all; None for all of them.
        query: the same for the other half, for balancers that need losses of data the update does not see.
    """

    turn: Turn
    settings: TrainingSpec
    source: Source
    update: Update
    optimizer: torch.optim.Optimizer
    sampler: EpochSampler
    share: Mapping[str, Tensor] | None = None
    query: tuple[EpochSampler, Mapping[str, Tensor]] | None = None

    def steps(self, epoch: int) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor] | None]]:
        """Yield the indices of each step's samples, and of its query samples."""
        queries = None if self.query is None else _shared(self.query[0].epoch(epoch), self.query[1])
        for indices in _shared(self.sampler.epoch(epoch), self.share):
            yield indices, None if queries is None else next(queries)

    def schedule(self, step: int, total: int) -> None:
        """Set the learning rate of step `step` (from 0) of `total`."""
        if self.settings.schedule != "constant":
            last = self.turn.optimizer.last_lr
            for group in self.optimizer.param_groups:
                group["lr"] = last + (self.settings.lr - last) * schedule_factor(self.settings, step, total)

    def rests(self, epoch: int, epochs: int) -> bool:
        """Return whether its turn has not begun in epoch `epoch`, from 1, of `epochs`."""
        return epoch <= round(self.turn.warmup * epochs)

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])


class Session:
    """Modules, updaters and choices of one phase; its `state_dict` is all that a checkpoint needs of them.

    `main` is the turn whose losses and weights a record keeps; default is the first.
    """

    def __init__(
        self, model: MultiTaskModule, objective: ObjectiveModule | None, updaters: Sequence[Updater], main: str = ""
    ) -> None:
        self.model, self.objective, self.updaters = model, objective, list(updaters)
        self.place = [updater.turn.name for updater in updaters].index(main) if main else 0  # of the main updater
        self.survival = Survival(model, self.main.update, self.main.source, objective)  # of the main updater's steps
        self.best: dict[str, dict[str, Tensor]] = {}  # "" or the task -> the parameters of its best epoch

    @property
    def main(self) -> Updater:
        return self.updaters[self.place]

    def turns(
        self, parts: Sequence[Part], epoch: int, epochs: int, step: int, total: int
    ) -> Iterator[tuple[int, StepResult]]:
        """Take one step of each updater that does not rest, and yield its position and result.

        `step` counts from 0, of `total` in all epochs.
        """
        for position, (updater, part) in enumerate(zip(self.updaters, parts, strict=True)):
            updater.schedule(step, total)
            if not updater.rests(epoch, epochs):
                self.show(updater, [updater_part.micros for updater_part in parts])
                yield position, self.step(updater, part.micros, part.query)

    def show(self, updater: Updater, micros: Sequence[Micros]) -> None:
        """Show a updater's source the micro-batches and the optimiser of its companion, before the updater's step.

        `micros` are those of every updater in this step.
        """
        seeing = capability(updater.source, SeesCompanion)
        if seeing is not None and seeing.companion:
            companion = [candidate.turn.name for candidate in self.updaters].index(seeing.companion)
            seeing.look_at(micros[companion], self.updaters[companion].optimizer)

    def step(self, updater: Updater, micros: Micros, query: Micros | None = None) -> StepResult:
        """Take one turn: differentiate, combine, step, and notify network and objective.

        A skipped step moves nothing.
        """
        model, update = self.model, updater.update
        self._draw_preference(updater)
        for any_updater in self.updaters:
            # The previous step's gradients would take memory beside this step's activations.
            any_updater.update.strategy.zero()

        objective = self.objective if updater.turn.objective else None
        measuring = capability(model, MeasuresAffinity) if updater is self.main else None
        if measuring is not None and measuring.affinity_every and update.count % measuring.affinity_every == 0:
            partition, context = update.partition, (update.workers, update.device)
            measuring.add_affinity(task_affinity(model, partition, updater.source, micros, updater.lr, *context))

        repeats = update.balancer.needs_post_step_losses and not update.partition.independent and len(update.names) > 1
        rng_states = random_state(update.device) if repeats else None
        sizes = updater.source.sizes(micros) if update.amp == "fp16" else None
        scale = self._task_scale(updater)

        survival = self.survival if updater is self.main else None
        if survival is not None:
            survival.before_update(micros, scale, lambda: _penalty(model, objective))
        with self._uphill(updater, micros, sizes, scale):
            result = update(
                [updater.source(micro) for micro in micros],
                sizes=sizes,
                scale=scale,
                penalty=lambda: _penalty(model, objective),
                query=None if query is None else [updater.source(micro, terms=False) for micro in query],
            )

        if result.skipped:
            discarding = capability(model, DiscardsSteps)
            if discarding is not None:
                discarding.discard_step()
            if objective is not None:
                objective.discard_step()
            return result

        if objective is not None:
            objective.reduce(update.workers.sum)
        if survival is None:
            updater.optimizer.step()
        else:
            survival.step(updater.optimizer)
        updating = capability(model, UpdatesItself)
        if updating is not None:
            updating.after_step(updater.lr, update.workers.sum)
        if objective is not None:
            objective.after_step(updater.lr)

        if rng_states is not None:
            with replayed(rng_states, update.device), statistics_kept(model), torch.no_grad():
                losses_after = [updater.source(micro, terms=False) for micro in micros]
                update.look_again(losses_after, self._task_scale(updater))

        return result

    def _draw_preference(self, updater: Updater) -> None:
        """Draw the preference of this step, a function of seed and step alone, for network and balancer."""
        network, update = capability(self.model, TakesPreferences), updater.update
        if network is None:
            return
        rng = np.random.default_rng((updater.sampler.seed, update.count))
        drawn = torch.from_numpy(rng.dirichlet(np.full(len(update.names), network.concentration)))
        network.set_preference(drawn)
        if "preference" in update.balancer.hints:
            update.state = {**update.state, "preference": drawn}

    @contextmanager
    def _uphill(
        self, updater: Updater, micros: Micros, sizes: Sequence[float] | None, scale: Tensor | None
    ) -> Iterator[None]:
        """Hold the parameters uphill if the balancer looks ahead; the way there leaves random numbers as they were."""
        update, length = updater.update, updater.update.balancer.ascent
        if not length:
            yield
            return

        with ExitStack() as stack:
            with replayed(random_state(update.device), update.device), statistics_kept(self.model):
                losses = [updater.source(micro, terms=False) for micro in micros]
                stack.enter_context(uphill(update, losses, length, sizes, scale))
            discarding = capability(self.model, DiscardsSteps)
            if discarding is not None:
                discarding.discard_step()
            yield

    def _task_scale(self, updater: Updater) -> Tensor | None:
        """Return the factors [T] of a turn's losses: T times the objective's task weights, times the network's."""
        objective = self.objective if updater.turn.objective else None
        weights = None if objective is None else objective.task_weights()
        scale = None if weights is None else weights.to(torch.float64) * len(updater.update.names)

        weighing = capability(self.model, WeighsTasks) if updater.turn.source == "tasks" else None
        network_weights = None if weighing is None else weighing.task_weights()
        if network_weights is None:
            return scale
        network_weights = network_weights.detach().to(torch.float64)
        return network_weights if scale is None else network_weights * scale

    def keep(self, groups: Sequence[str]) -> None:
        """Record the current parameters as the best so far of the whole network (""), or of these tasks."""
        for group in groups:
            self.best[group] = self._snapshot(group)

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Load the best recorded parameters into the network inside the context."""
        final = deepcopy(self.model.state_dict())
        for state in self.best.values():
            self.model.load_state_dict(state, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(final)

    def _snapshot(self, group: str) -> dict[str, Tensor]:
        state = self.model.state_dict()
        if group:
            parameter_ids = {id(p) for p in self.model.task_parameters(group)}
            keys = {key for key, p in self.model.named_parameters() if id(p) in parameter_ids}
            modules = {key.rpartition(".")[0] for key in keys}
            keys |= {key for key, _ in self.model.named_buffers() if key.rpartition(".")[0] in modules}
            state = {key: state[key] for key in keys}
        return {key: value.detach().clone() for key, value in state.items()}

    def state_dict(self) -> dict[str, Any]:
        keeping = capability(self.model, KeepsMemory)
        return {
            "model": self.model.state_dict(),
            "objective": None if self.objective is None else self.objective.state_dict(),
            "optimizers": {updater.turn.name: updater.optimizer.state_dict() for updater in self.updaters},
            "updates": {updater.turn.name: updater.update.state_dict() for updater in self.updaters},
            "best": self.best,
            "memory": {} if keeping is None else keeping.memory_state(),
        }

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Restore a state that lies on the host: optimisers move to the device what belongs there, and nothing else."""
        self.model.load_state_dict(content["model"])
        if self.objective is not None:
            self.objective.load_state_dict(content["objective"])
        for updater in self.updaters:
            updater.optimizer.load_state_dict(content["optimizers"][updater.turn.name])
            updater.update.load_state_dict(content["updates"][updater.turn.name])
        self.best = dict(content["best"])
        keeping = capability(self.model, KeepsMemory)
        if keeping is not None:
            keeping.load_memory_state(content.get("memory", {}))


def _penalty(model: MultiTaskModule, objective: ObjectiveModule | None) -> Tensor | None:
    penalised = capability(model, Penalised)
    network_penalty = None if penalised is None else penalised.penalty()
    objective_penalty = None if objective is None else objective.penalty()
    return (
        network_penalty
        if objective_penalty is None
        else objective_penalty
        if network_penalty is None
        else network_penalty + objective_penalty
    )


def _shared(steps: Iterator[dict[str, Tensor]], share: Mapping[str, Tensor] | None) -> Iterator[dict[str, Tensor]]:
    """Convert positions within a share to indices among all samples."""
    for indices in steps:
        yield indices if share is None else {stream: share[stream][index] for stream, index in indices.items()}


def schedule_factor(settings: TrainingSpec, step: int, total: int) -> float:
    """Return the learning rate of a step (from 0) of `total`, over `settings.lr`.

    TOMATO's exponential decay has a continuous exponent, and AASPC's is inverse (with steps for its p).
    """
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "exponential":
        decayed: float = settings.decay_rate ** (step / settings.decay_steps)
        return decayed
    if settings.schedule == "inverse":
        inverse: float = (1 + step / settings.decay_steps) ** -settings.decay_rate
        return inverse
    return 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / total)).item())
