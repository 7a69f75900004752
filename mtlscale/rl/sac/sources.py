"""The three losses of soft actor-critic as sources: what critics, actor and temperatures learn from the replay."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from mtlscale.architectures.phases import NetworkSource, Supervised
from mtlscale.config import UserError
from mtlscale.data import Batch, Losses, Workers, slice_for
from mtlscale.rl.sac import losses as sac
from mtlscale.rl.sac.replay_buffer import Transitions

CRITICS, ACTOR, TEMPERATURE = "critics", "actor", "temperature"  # turns, their sources and groups of parameters
CHOOSE_CRITICS, CHOOSE_ACTOR = "choose_critics", "choose_actor"  # the same, for the architecture parameters of a search


class Settings(Protocol):
    """Protocol of the method's settings that networks and losses read."""

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
    """Protocol of the networks, temperatures and replay buffer that the losses need."""

    tasks: tuple[str, ...]
    actions: int
    settings: Settings
    steps: dict[str, int]  # turn -> its steps so far
    critics_moved: bool

    def sampled_batch(self, turn: str, number: int) -> tuple[Transitions, Tensor]:
        """Return this worker's part of a step's transitions, and of its standard normal noise [T, B, actions]."""
        ...

    def sample_actions(self, inputs: Tensor) -> Tensor:
        """Return the actor's outputs [T, B, 2 actions]."""
        ...

    def q_values(self, inputs: Tensor, actions: Tensor, of_targets: bool = False) -> Tensor:
        """Return the critics' values [critics, T, B]."""
        ...

    def log_alpha(self) -> Tensor:
        """Return the logarithms of the temperatures, [T]."""
        ...


class ReplaySource(NetworkSource):
    """Base class of losses for each task on transitions from the replay buffer, in place of the set's samples.

    The draw is a function of the run's seed and the number of the step; workers take their parts of the same draw.
    """

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
        losses = self.losses(*self.model.sampled_batch(self.name, number))
        count = torch.full((), float(losses.shape[1]), dtype=torch.float64, device=losses.device)
        indices = list(range(len(self.names)))
        yield Losses(indices, list(losses.sum(1).unbind()), [count] * len(indices))

    @abstractmethod
    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        """Return losses [T, B] of a worker's transitions and noise [T, B, actions]."""

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        return [float(self.model.settings.replay_batch)] * len(self.names)


class CriticSource(ReplaySource):
    """The loss (Q(s, a) − r − γ (min Q'(s', a') − α log π(a'|s')))² of both critics."""

    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        model = self.model
        with torch.no_grad():
            actions, log = sac.squashed(model.sample_actions(batch.after), noise)
            values = model.q_values(batch.after, actions, of_targets=True)
            alpha, discount = model.log_alpha().exp(), model.settings.discount
            targets = sac.target_values(model.settings.reward_scale * batch.rewards, values, log, alpha, discount)

        model.critics_moved = self.name == CRITICS
        return sac.critic_loss(model.q_values(batch.inputs, batch.actions), targets)


class ActorSource(ReplaySource):
    """The actor's loss α log π(a|s) − min Q(s, a)."""

    allow_negative = True

    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        actions, log = sac.squashed(self.model.sample_actions(batch.inputs), noise)
        return sac.actor_loss(self.model.q_values(batch.inputs, actions), log, self.model.log_alpha().exp().detach())


class TemperatureSource(ReplaySource):
    """The temperatures' loss −log α (log π + target entropy)."""

    allow_negative = True

    def losses(self, batch: Transitions, noise: Tensor) -> Tensor:
        with torch.no_grad():
            _, log = sac.squashed(self.model.sample_actions(batch.inputs), noise)
        return sac.temperature_loss(self.model.log_alpha(), log, -float(self.model.actions))


def part_of(count: int) -> Tensor:
    """Return this worker's indices among `count`."""
    workers = Workers.current()
    return slice_for(torch.arange(count), workers.rank, workers.size)
