"""The session of a phase: its modules, optimizers (Adam, SGD), learning rate schedule and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mtlscale.architectures import Hooks, MultiTaskModule, Source, StepView, Turn
from mtlscale.config import TrainingSpec
from mtlscale.data import Batch, EpochSampler
from mtlscale.objectives import ObjectiveModule
from mtlscale.training.gradients.look_ahead import uphill
from mtlscale.training.gradients.strategies import plus
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
        main_updater = self.main
        self.survival = Survival(
            model, main_updater.update, main_updater.source, objective, main_updater.optimizer
        )  # of the main updater's steps
        self.best: dict[str, dict[str, Tensor]] = {}  # "" or the task -> the parameters of its best epoch

    @property
    def main(self) -> Updater:
        return self.updaters[self.place]

    def step(
        self,
        updater: Updater,
        micros: Micros,
        query: Micros | None = None,
        others: Mapping[str, Micros] = MappingProxyType({}),
    ) -> StepResult:
        """Take one turn: differentiate, combine, step. A skipped step moves nothing.

        Args:
            micros: The turn's micro-batches.
            query: Those of its query, for balancers that need losses of other data.
            others: Name of a turn of the same step -> its micro-batches, for sources that see them.
        """
        update = updater.update
        for any_updater in self.updaters:
            # The previous step's gradients would take memory beside this step's activations.
            any_updater.update.strategy.zero()

        hooks = self._hooks_of(updater)
        view = self._view(updater, micros, others, hooks)
        for hook in hooks:
            hook.before_step(view)

        repeats = update.balancer.needs_post_step_losses and not update.partition.independent and len(update.names) > 1
        rng_states = random_state(update.device) if repeats else None
        sizes = updater.source.sizes(micros) if update.amp == "fp16" else None

        with self._uphill(updater, micros, sizes, view.scale):
            result = update(
                [updater.source(micro) for micro in micros],
                sizes=sizes,
                scale=view.scale,
                penalty=view.penalty,
                query=None if query is None else [updater.source(micro, terms=False) for micro in query],
            )

        if result.skipped:
            for hook in hooks:
                hook.discard_step()
            return result

        for hook in hooks:
            hook.on_gradients()
        updater.optimizer.step()
        for hook in reversed(hooks):  # who came last looks at the step before others change what no optimiser moves
            hook.after_step(updater.lr, update.workers.sum)

        if rng_states is not None:
            with replayed(rng_states, update.device), statistics_kept(self.model), torch.no_grad():
                losses_after = [updater.source(micro, terms=False) for micro in micros]
                update.look_again(losses_after, self._task_scale(updater))

        return result

    @property
    def hooks(self) -> list[Hooks]:
        """Whoever takes part in training beside the optimisers."""
        return [self.model] if self.objective is None else [self.model, self.objective]

    def _hooks_of(self, updater: Updater) -> list[Hooks]:
        """Return who takes part in a turn."""
        hooks = self.hooks if updater.turn.objective else [self.model]
        return [*hooks, updater.source, self.survival] if updater is self.main else [*hooks, updater.source]

    def _view(self, updater: Updater, micros: Micros, others: Mapping[str, Micros], hooks: Sequence[Hooks]) -> StepView:
        """Return what the hooks of a turn may see of a step."""
        update = updater.update

        def penalty() -> Tensor | None:
            total = None
            for hook in hooks:
                total = plus(total, hook.penalty())
            return total

        def affinity() -> Tensor:
            context = (micros, updater.lr, update.workers, update.device)
            return task_affinity(self.model, update.partition, updater.source, *context)

        def hint(name: str, value: Tensor) -> None:
            if name in update.balancer.hints:
                update.state = {**update.state, name: value}

        return StepView(
            number=update.count,
            main=updater is self.main,
            seed=updater.sampler.seed,
            micros=micros,
            scale=self._task_scale(updater),
            penalty=penalty,
            affinity=affinity,
            hint=hint,
            turns={u.turn.name: (others.get(u.turn.name, ()), u.optimizer) for u in self.updaters},
        )

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
            self.model.discard_step()
            yield

    def _task_scale(self, updater: Updater) -> Tensor | None:
        """Return the factors [T] of a turn's losses: the product of the network's and the objective's."""
        of_network = self.model.task_weights() if updater.turn.source == "tasks" else None
        of_objective = self.objective.task_weights() if self.objective is not None and updater.turn.objective else None
        scales = [w.detach().to(torch.float64) for w in (of_network, of_objective) if w is not None]
        return None if not scales else scales[0] if len(scales) == 1 else scales[0] * scales[1]

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
        return {
            "model": self.model.state_dict(),
            "objective": None if self.objective is None else self.objective.state_dict(),
            "optimizers": {updater.turn.name: updater.optimizer.state_dict() for updater in self.updaters},
            "updates": {updater.turn.name: updater.update.state_dict() for updater in self.updaters},
            "best": self.best,
            "memory": self.model.memory_state(),
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
        self.model.load_memory_state(content["memory"])


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
