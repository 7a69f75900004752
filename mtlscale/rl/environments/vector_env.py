"""Vector environment: episodes run side by side, so that one forward pass of the policy decides for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mtlscale.config import UserError
from mtlscale.rl.environments.description import ACTIONS, Simulated
from mtlscale.rl.environments.metaworld import MetaWorld

# Policy of the running episodes: tasks [n], their orders' numbers [n], step numbers [n], inputs [n, inputs] -> [n, 4]
Act = Callable[[Sequence[str], Sequence[int], Sequence[int], np.ndarray], np.ndarray]
_TRIES = 3  # of an episode, before its world counts as broken for good


class WorldBroken(Exception):
    """Failure of a world that should never occur, such as an observation that is not finite."""


@dataclass
class Episode:
    """Episode of a task: inputs [n + 1, inputs], actions [n, 4], rewards [n], and whether any step succeeded."""

    task: str
    inputs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    success: bool

    def __len__(self) -> int:
        return len(self.actions)


@dataclass
class _RunningEpisode:
    """Episode that is still running."""

    task: str
    number: int
    world: MetaWorld
    inputs: list[np.ndarray]
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    success: bool = False


class VectorEnv:
    """Vector environment of a process.

    Episodes depend on their seeds and actions alone, not on what ran in a world before. A world that crashes or returns
    a number that is not finite is replaced, and its episode restarted, which `replaced` counts. If an episode fails
    again and again, `UserError` names the task.
    """

    def __init__(self, simulated: Simulated, make: Callable[[str], MetaWorld] | None = None) -> None:
        self.simulated = simulated
        self._make = make or (lambda task: MetaWorld(task, simulated.reward_version))
        self._free: dict[str, list[MetaWorld]] = {}
        self.replaced = 0
        self.steps = 0

    def play(
        self, orders: Sequence[tuple[str, int]], act: Act, *, width: int = 10, to_success: bool = False
    ) -> list[Episode]:
        """Play an episode for each order (task, seed of its positions), `width` at a time.

        With `to_success`, an episode ends with its first success.
        """
        episodes: list[Episode] = []
        for first in range(0, len(orders), width):
            episodes += self._step_all(orders[first : first + width], first, act, to_success)
        return episodes

    def _step_all(self, orders: Sequence[tuple[str, int]], first: int, act: Act, to_success: bool) -> list[Episode]:
        finished: dict[int, Episode] = {}
        failures: dict[int, int] = {}
        pending = list(range(len(orders)))

        while pending:
            running = []
            for index in pending:
                task, seed = orders[index]
                free = self._free.setdefault(task, [])
                world = free.pop() if free else self._make(task)
                try:
                    running.append(_RunningEpisode(task, first + index, world, [self._input(task, world.reset(seed))]))
                except Exception as error:
                    self._broke(task, index, failures, error)

            while running:
                actions = act(
                    [episode.task for episode in running],
                    [episode.number for episode in running],
                    [len(episode.actions) for episode in running],
                    np.stack([episode.inputs[-1] for episode in running]),
                )

                continuing = []
                for episode, action in zip(running, actions, strict=True):
                    index = episode.number - first
                    try:
                        has_ended = self._step(episode, action, to_success)
                    except Exception as error:
                        self._broke(episode.task, index, failures, error)
                        continue
                    if has_ended:
                        self._free.setdefault(episode.task, []).append(episode.world)
                        finished[index] = _ended(episode)
                    else:
                        continuing.append(episode)
                running = continuing

            pending = [index for index in range(len(orders)) if index not in finished]

        return [finished[index] for index in range(len(orders))]

    def _broke(self, task: str, index: int, broken: dict[int, int], error: Exception) -> None:
        """Count a failure; raise `UserError` if it was the last try."""
        self.replaced += 1
        broken[index] = broken.get(index, 0) + 1
        if broken[index] == _TRIES:
            raise UserError(f"the environment {task} broke {_TRIES} times in one episode: {error}") from error

    def _step(self, episode: _RunningEpisode, action: np.ndarray, to_success: bool) -> bool:
        action = np.clip(np.nan_to_num(action, nan=0.0), -1.0, 1.0)  # a policy that has diverged does not move
        observation, reward, success = episode.world.step(action.astype(np.float64))
        if not np.isfinite(reward):
            raise WorldBroken(f"its reward is {reward}")
        episode.inputs.append(self._input(episode.task, observation))
        episode.actions.append(action.astype(np.float32))
        episode.rewards.append(reward)
        episode.success = episode.success or success
        self.steps += 1
        return len(episode.actions) >= self.simulated.horizon or (to_success and episode.success)

    def _input(self, task: str, observation: np.ndarray) -> np.ndarray:
        if not np.isfinite(observation).all():
            raise WorldBroken(f"number {int(np.argmin(np.isfinite(observation)))} of its observation is none")
        input_row: np.ndarray = self.simulated.input([task], observation[None])[0]
        return input_row


def _ended(episode: _RunningEpisode) -> Episode:
    actions = np.stack(episode.actions) if episode.actions else np.zeros((0, ACTIONS), dtype=np.float32)
    return Episode(
        episode.task, np.stack(episode.inputs), actions, np.array(episode.rewards, dtype=np.float32), episode.success
    )
