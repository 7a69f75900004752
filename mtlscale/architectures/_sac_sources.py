"""The three losses of soft actor-critic as sources: what critics, actor and temperatures learn from the replay."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from mtlscale.architectures import _sac_losses as sac
from mtlscale.architectures._phases import NetworkSource, Supervised
from mtlscale.architectures._replay import Transitions
from mtlscale.data import Batch, Losses, Workers, slice_for
from mtlscale.spec import UserError

CRITICS, ACTOR, TEMPERATURE = "critics", "actor", "temperature"  # turns, their sources and groups of parameters
CHOOSE_CRITICS, CHOOSE_ACTOR = "choose_critics", "choose_actor"  # the same, of a search


class Settings(Protocol):
    """Those of the method that networks and losses look at."""

    @property
    def discount(self) -> float: ...

    @property
    def follow(self) -> float: ...

    @property
    def temperature(self) -> float: ...

    @property
    def reward_scale(self) -> float: ...

    @property
    def replay(self) -> int: ...

    @property
    def replay_batch(self) -> int: ...

    @property
    def first_episodes(self) -> int: ...

    @property
    def round_episodes(self) -> int: ...


class Learner(Protocol):
    """What the losses are of: networks, temperatures, a replay."""

    tasks: tuple[str, ...]
    actions: int
    settings: Settings
    steps: dict[str, int]  # turn -> its steps so far
    critics_moved: bool

    def drawn(self, turn: str, number: int) -> tuple[Transitions, Tensor]:
        """This worker's part of the transitions of a turn's step, and of standard normal numbers [T, B, actions]."""
        ...

    def acted(self, inputs: Tensor) -> Tensor:
        """What the actor says [T, B, 2 actions]."""
        ...

    def valued(self, inputs: Tensor, actions: Tensor, of_targets: bool = False) -> Tensor:
        """[critics, T, B]."""
        ...

    def log_alpha(self) -> Tensor:
        """[T]."""
        ...


class ReplaySource(NetworkSource):
    """A loss for each task on transitions drawn from the replay, in place of the set's samples. What is drawn is a
    function of the run's seed and the number of the step: workers take their parts of the same draw."""

    of_tasks = True

    def __init__(self, model: Learner, name: str) -> None:
        self.model, self.name, self.names = model, name, model.tasks
        self._seen: Sequence[Batch] | None = None  # a balancer may look at the same step again

    def bind(self, supervised: Supervised, amp: str) -> None:
        super().bind(supervised, amp)
        if amp != "off":
            raise UserError("soft actor-critic learns in the run's own precision: set amp to off")

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        if micro is not self._seen:
            self._seen = micro
            self.model.steps[self.name] += 1
        number = self.model.steps[self.name]
        losses = self.losses(*self.model.drawn(self.name, number))
        count = torch.full((), float(losses.shape[1]), dtype=torch.float64, device=losses.device)
        places = list(range(len(self.names)))
        yield Losses(places, list(losses.sum(1).unbind()), [count] * len(places))

    @abstractmethod
    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        """[T, B] of a worker's transitions and noise [T, B, actions]."""

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        return [float(self.model.settings.replay_batch)] * len(self.names)


class CriticSource(ReplaySource):
    """(Q(s, a) − r − γ (min Q'(s', a') − α log π(a'|s')))² of both critics."""

    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        model = self.model
        with torch.no_grad():
            actions, log = sac.squashed(model.acted(batch.after), noise)
            values = model.valued(batch.after, actions, of_targets=True)
            alpha, discount = model.log_alpha().exp(), model.settings.discount
            wanted = sac.target_values(model.settings.reward_scale * batch.rewards, values, log, alpha, discount)
        model.critics_moved = self.name == CRITICS
        return sac.critic_loss(model.valued(batch.inputs, batch.actions), wanted)


class ActorSource(ReplaySource):
    """α log π(a|s) − min Q(s, a)."""

    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        actions, log = sac.squashed(self.model.acted(batch.inputs), noise)
        return sac.actor_loss(self.model.valued(batch.inputs, actions), log, self.model.log_alpha().exp().detach())


class TemperatureSource(ReplaySource):
    """−log α (log π + wanted entropy)."""

    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        with torch.no_grad():
            _, log = sac.squashed(self.model.acted(batch.inputs), noise)
        return sac.temperature_loss(self.model.log_alpha(), log, -float(self.model.actions))


def part_of(count: int) -> Tensor:
    """This worker's places among so many."""
    workers = Workers.current()
    return slice_for(torch.arange(count), workers.rank, workers.size)
