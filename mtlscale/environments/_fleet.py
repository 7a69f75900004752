"""Episodes played side by side, so that one pass of the policy decides for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mtlscale.environments._description import ACTIONS, Simulated
from mtlscale.environments._metaworld import MetaWorld
from mtlscale.spec import UserError

# Of the episodes that go on: tasks [n], numbers of their orders [n], of their steps [n], inputs [n, inputs] -> [n, 4]
Act = Callable[[Sequence[str], Sequence[int], Sequence[int], np.ndarray], np.ndarray]
_TRIES = 3  # of an episode, before its world is taken to be broken for good


class WorldBroken(Exception):
    """What a world did that none should do."""


@dataclass
class Episode:
    """One episode of a task: what was seen [n + 1, inputs], done [n, 4] and won [n], and whether any step succeeded."""

    task: str
    inputs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    success: bool

    def __len__(self) -> int:
        return len(self.actions)


@dataclass
class _Going:
    """An episode that goes on."""

    task: str
    number: int
    world: MetaWorld
    inputs: list[np.ndarray]
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    success: bool = False


class Fleet:
    """The worlds of a process. Episodes are a function of their seeds and actions, whatever ran in a world before.

    A world that dies or shows a number that is none is replaced and its episode begun anew, which `replaced` counts;
    where it does so again and again, `UserError` names the task.
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
        """An episode for each order (task, seed of its places), `width` at a time. to_success: each ends with its first
        success."""
        found: list[Episode] = []
        for first in range(0, len(orders), width):
            found += self._together(orders[first : first + width], first, act, to_success)
        return found

    def _together(self, orders: Sequence[tuple[str, int]], first: int, act: Act, to_success: bool) -> list[Episode]:
        done: dict[int, Episode] = {}
        broken: dict[int, int] = {}
        waiting = list(range(len(orders)))
        while waiting:
            going = []
            for place in waiting:
                task, seed = orders[place]
                world = self._world(task)
                try:
                    going.append(_Going(task, first + place, world, [self._input(task, world.reset(seed))]))
                except Exception as error:
                    self._broke(task, place, broken, error)
            while going:
                actions = act(
                    [each.task for each in going],
                    [each.number for each in going],
                    [len(each.actions) for each in going],
                    np.stack([each.inputs[-1] for each in going]),
                )
                still = []
                for each, action in zip(going, actions, strict=True):
                    place = each.number - first
                    try:
                        over = self._step(each, action, to_success)
                    except Exception as error:
                        self._broke(each.task, place, broken, error)
                        continue
                    if over:
                        self._free.setdefault(each.task, []).append(each.world)
                        done[place] = _ended(each)
                    else:
                        still.append(each)
                going = still
            waiting = [place for place in range(len(orders)) if place not in done]
        return [done[place] for place in range(len(orders))]

    def _world(self, task: str) -> MetaWorld:
        free = self._free.setdefault(task, [])
        return free.pop() if free else self._make(task)

    def _broke(self, task: str, place: int, broken: dict[int, int], error: Exception) -> None:
        """Count it; `UserError` where that was the last try."""
        self.replaced += 1
        broken[place] = broken.get(place, 0) + 1
        if broken[place] == _TRIES:
            raise UserError(f"the environment {task} broke {_TRIES} times in one episode: {error}") from error

    def _step(self, each: _Going, action: np.ndarray, to_success: bool) -> bool:
        action = np.clip(np.nan_to_num(action, nan=0.0), -1.0, 1.0)  # a policy that has diverged does not move
        observation, reward, success = each.world.step(action.astype(np.float64))
        if not np.isfinite(reward):
            raise WorldBroken(f"its reward is {reward}")
        each.inputs.append(self._input(each.task, observation))
        each.actions.append(action.astype(np.float32))
        each.rewards.append(reward)
        each.success = each.success or success
        self.steps += 1
        return len(each.actions) >= self.simulated.horizon or (to_success and each.success)

    def _input(self, task: str, observation: np.ndarray) -> np.ndarray:
        if not np.isfinite(observation).all():
            raise WorldBroken(f"number {int(np.argmin(np.isfinite(observation)))} of its observation is none")
        found: np.ndarray = self.simulated.input([task], observation[None])[0]
        return found


def _ended(each: _Going) -> Episode:
    actions = np.stack(each.actions) if each.actions else np.zeros((0, ACTIONS), dtype=np.float32)
    return Episode(each.task, np.stack(each.inputs), actions, np.array(each.rewards, dtype=np.float32), each.success)
