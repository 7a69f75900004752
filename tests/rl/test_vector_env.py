"""Episodes side by side are those played one by one; a world that breaks is replaced, and nobody sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mtlscale.config import UserError
from mtlscale.rl.environments import ACTIONS, OBSERVATIONS, Act, Episode, MetaWorld, Simulated, VectorEnv, expert_of

pytest.importorskip("metaworld")

TASKS = ("reach", "drawer-close")
HORIZON = 12
ORDERS = [(task, goal) for goal in (11, 12, 13) for task in TASKS]
CHANCE = np.random.default_rng(5).uniform(-1.5, 1.5, (len(ORDERS), HORIZON, ACTIONS))  # some beyond the bounds


def simulated(horizon: int = HORIZON) -> Simulated:
    rng = np.random.default_rng(1)
    return Simulated(
        version="3.1.1",
        reward_version="v2",
        positions="random",
        horizon=horizon,
        tasks=TASKS,
        task_id=True,
        mean=tuple(rng.normal(size=OBSERVATIONS).tolist()),
        std=tuple(rng.uniform(0.5, 2.0, size=OBSERVATIONS).tolist()),
        episodes={"val": 1, "test": 2},
        seed=0,
    )


def drawn(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
    """By the order's number and the step; what is seen moves it a little, so that an input of another world shows."""
    assert len(tasks) == len(inputs)
    assert all(task == ORDERS[number][0] for task, number in zip(tasks, numbers, strict=True))
    return CHANCE[np.array(numbers), np.array(steps)] + 1e-3 * inputs[:, :ACTIONS]


def assert_equal(found: Sequence[Episode], wanted: Sequence[Episode]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.task, one.success) == (other.task, other.success)
        for name in ("inputs", "actions", "rewards"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def only(number: int) -> Act:
    """Acts as in the order of that number, whatever it is called."""
    return lambda tasks, numbers, steps, inputs: drawn(tasks, [number], steps, inputs)


@pytest.fixture(scope="module")
def undisturbed() -> list[Episode]:
    """Each episode in a world that has seen none."""
    return [VectorEnv(simulated()).play([order], only(number))[0] for number, order in enumerate(ORDERS)]


def test_episodes_do_not_depend_on_the_width_nor_on_what_was_played_before(undisturbed: list[Episode]) -> None:
    fleet = VectorEnv(simulated())
    for width in (1, 4, 10):  # one by one, some go on alone, and more than there are
        assert_equal(fleet.play(ORDERS, drawn, width=width), undisturbed)
    assert fleet.steps == 3 * len(ORDERS) * HORIZON
    assert fleet.replaced == 0


def test_worlds_are_kept_for_the_episodes_that_follow() -> None:
    made: list[str] = []

    def make(task: str) -> MetaWorld:
        made.append(task)
        return MetaWorld(task)

    fleet = VectorEnv(simulated(), make)
    for _ in range(2):
        fleet.play(ORDERS, drawn, width=2)
    assert sorted(made) == sorted(TASKS)


def test_an_episode_keeps_what_was_seen_done_and_won(undisturbed: list[Episode]) -> None:
    told = simulated()
    worlds = {task: MetaWorld(task) for task in TASKS}
    for number, episode in enumerate(undisturbed):
        assert len(episode) == HORIZON
        assert episode.inputs.shape == (HORIZON + 1, told.inputs)
        acted = np.clip(CHANCE[number] + 1e-3 * episode.inputs[:-1, :ACTIONS], -1.0, 1.0)
        np.testing.assert_allclose(episode.actions, acted, rtol=1e-6)
        world = worlds[episode.task]
        seen = told.input([episode.task], world.reset(ORDERS[number][1])[None])[0]
        assert np.array_equal(episode.inputs[0], seen)
        for step in range(HORIZON):
            observation, reward, _ = world.step(acted[step])
            np.testing.assert_allclose(episode.inputs[step + 1], told.input([episode.task], observation[None])[0])
            assert episode.rewards[step] == np.float32(reward)


def by_experts(told: Simulated) -> Act:
    experts = {task: expert_of(task) for task in TASKS}

    def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
        seen = inputs[:, :OBSERVATIONS] * np.array(told.std) + np.array(told.mean)
        return np.stack([experts[task](row) for task, row in zip(tasks, seen, strict=True)])

    return act


def test_to_success_ends_each_episode_with_its_first_success() -> None:
    told = simulated(horizon=100)
    orders = ORDERS[:2]  # one of each task
    whole = VectorEnv(told).play(orders, by_experts(told))
    short = VectorEnv(told).play(orders, by_experts(told), to_success=True)
    assert all(episode.success for episode in (*whole, *short))
    assert {len(episode) for episode in whole} == {100}
    assert len({len(episode) for episode in short}) > 1  # of unequal length, and each goes on alone
    for (_, goal), long, cut in zip(orders, whole, short, strict=True):
        assert len(cut) < 100
        assert np.array_equal(cut.inputs, long.inputs[: len(cut) + 1])
        world = MetaWorld(cut.task)
        world.reset(goal)
        successes = [world.step(action.astype(np.float64))[2] for action in cut.actions]
        assert [step for step, success in enumerate(successes) if success] == [len(cut) - 1]


def test_a_success_on_the_way_counts_though_the_episode_ends_otherwise() -> None:
    """The arm reaches its goal and leaves it again."""
    told = simulated(horizon=100)
    expert = by_experts(told)

    def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
        return expert(tasks, numbers, steps, inputs) if steps[0] < 75 else np.full((len(tasks), ACTIONS), 1.0)

    [episode] = VectorEnv(told).play([("reach", 11)], act)
    world = MetaWorld("reach")
    world.reset(11)
    assert not [world.step(action.astype(np.float64))[2] for action in episode.actions][-1]
    assert episode.success


# -- worlds that break ---------------------------------------------------------------------------------------------


class Breaking(MetaWorld):
    """A real world that at a step does what none should do, for as long as there are such faults left; `again`: the
    tasks of those that were used after that."""

    again: ClassVar[list[str]] = []

    def __init__(self, task: str, fault: str, at: int, left: list[int]) -> None:
        super().__init__(task)
        self.fault, self.at, self.left = fault, at, left
        self.taken, self.broken = 0, False

    def reset(self, seed: int) -> np.ndarray:
        self.again.extend([self.task] * self.broken)
        self.taken = 0
        observation = super().reset(seed)
        return self._faulty(observation, 0.0)[0]

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        self.again.extend([self.task] * self.broken)
        self.taken += 1
        if self.fault == "physics" and self.taken == self.at and self.left[0]:
            self.left[0] -= 1
            self.broken = True
            self._env.data.qvel[0] = np.nan
        observation, reward, success = super().step(action)
        return *self._faulty(observation, reward), success

    def _faulty(self, observation: np.ndarray, reward: float) -> tuple[np.ndarray, float]:
        if self.taken == self.at and self.left[0]:
            self.left[0] -= 1
            self.broken = True
            if self.fault == "dies":
                raise RuntimeError("the arm is off")
            if self.fault == "observation":
                observation = observation.copy()
                observation[5] = np.nan
            else:
                reward = float(self.fault)
        return observation, reward


def breaking(fault: str, at: int, times: int, task: str = "reach") -> Callable[[str], MetaWorld]:
    """Makes worlds; those of one task break so many times in all."""
    left = [times]
    return lambda name: Breaking(name, fault, at, left) if name == task else MetaWorld(name)


@pytest.mark.parametrize(("fault", "at", "width"), [
    ("dies", 0, 2), ("dies", 7, 4), ("dies", HORIZON, 1), ("physics", 3, 2), ("observation", 0, 1),
    ("observation", 4, 2), ("inf", HORIZON, 1),
    # The same lines at other steps and widths.
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [
        ("dies", 0, 6), ("dies", 1, 1), ("dies", 7, 6), ("dies", HORIZON, 6), ("physics", 3, 6), ("observation", 4, 6),
        ("nan", 4, 4),
    ]),
])  # fmt: skip
def test_a_world_that_breaks_is_replaced_and_its_episode_is_as_undisturbed(
    fault: str, at: int, width: int, undisturbed: list[Episode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo notes that physics have broken
    Breaking.again.clear()
    fleet = VectorEnv(simulated(), breaking(fault, at, times=1))
    orders = ORDERS[: max(4, width)]
    for _ in range(2):
        assert_equal(fleet.play(orders, drawn, width=width), undisturbed[: len(orders)])
        assert fleet.replaced == 1
    assert Breaking.again == []


def test_a_policy_that_has_diverged_breaks_no_world() -> None:
    def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
        return np.full((len(tasks), ACTIONS), np.nan)

    fleet = VectorEnv(simulated())
    found = fleet.play(ORDERS[:2], act)
    assert_equal(found, fleet.play(ORDERS[:2], lambda tasks, *rest: np.zeros((len(tasks), ACTIONS))))
    assert fleet.replaced == 0


def test_twice_in_each_of_several_episodes_is_no_end(undisturbed: list[Episode]) -> None:
    left = [2]
    fleet = VectorEnv(simulated(), lambda task: Breaking(task, "dies", 3, left))
    for expected in (2, 4):
        left[0] = 2
        [found] = fleet.play(ORDERS[:1], drawn)
        assert_equal([found], undisturbed[:1])
        assert fleet.replaced == expected


@pytest.mark.parametrize(("at", "fault", "said"), [
    pytest.param(5, "dies", "the arm is off", marks=pytest.mark.slow),
    (5, "observation", "number 5 of its observation is none"),
    (5, "inf", "its reward is inf"),
    (0, "dies", "the arm is off"),
])  # fmt: skip
def test_three_times_in_one_episode_names_the_task(at: int, fault: str, said: str) -> None:
    fleet = VectorEnv(simulated(), breaking(fault, at, times=3, task="drawer-close"))
    with pytest.raises(UserError, match=f"the environment drawer-close broke 3 times in one episode: {said}"):
        fleet.play(ORDERS[:2], drawn)
    assert fleet.replaced == 3
