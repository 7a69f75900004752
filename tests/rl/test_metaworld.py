"""One task as a world: the package's own episodes, a function of seed and actions alone, which its experts solve."""

from __future__ import annotations

import importlib.util
import pickle
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlscale.config import UserError
from mtlscale.rl.datasets.metaworld import MT10
from mtlscale.rl.environments import (
    ACTIONS,
    OBSERVATIONS,
    MetaWorld,
    check_package,
    check_reward_version,
    check_task_name,
    expert_of,
)

pytest.importorskip("metaworld")

ROOT = Path(__file__).parents[2]
ACTED = np.random.default_rng(3).uniform(-1.0, 1.0, (25, ACTIONS))


def played(world: MetaWorld, seed: int, actions: Sequence[np.ndarray] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observations [n + 1, 39] and rewards [n]."""
    seen, won = [world.reset(seed)], []
    for action in actions:
        observation, reward, _ = world.step(action)
        seen.append(observation)
        won.append(reward)
    return np.stack(seen), np.array(won)


def until_solved(world: MetaWorld, seed: int, most: int) -> int:
    """The steps that the expert needs; more than the most where it fails."""
    expert, observation = expert_of(world.task), world.reset(seed)
    for step in range(most):
        observation, _, success = world.step(expert(observation))
        if success:
            return step + 1
    return most + 1


@pytest.mark.parametrize(
    ("task", "seeds"),
    [
        *(pytest.param(task, (0, 1, 3) if task == "reach" else (0,), id=task) for task in MT10),
        *(pytest.param(task, (1, 3), id=f"{task} elsewhere", marks=pytest.mark.slow) for task in MT10),
    ],
)
def test_the_expert_solves_a_task_and_leaves_nothing_to_the_next_episode(task: str, seeds: tuple[int, ...]) -> None:
    used = MetaWorld(task)
    assert [seed for seed in seeds if until_solved(used, seed, 150) > 150] == []
    again, fresh = played(used, 9, ACTED), played(MetaWorld(task), 9, ACTED)
    for found, wanted in zip(again, fresh, strict=True):
        assert np.array_equal(found, wanted)
    assert again[0].shape == (len(ACTED) + 1, OBSERVATIONS)
    assert not np.array_equal(used.reset(10), again[0][0])


@pytest.mark.parametrize(  # a task is its name here: three of the ten by default
    "task",
    [pytest.param(task, marks=[pytest.mark.slow] * (task not in ("reach", "push", "door-open"))) for task in MT10],
)
def test_an_episode_is_what_the_package_plays_from_the_same_places(task: str) -> None:
    import metaworld.env_dict as known
    from metaworld.types import Task

    world = MetaWorld(task)
    played(world, 5, ACTED)
    seen, won = played(world, 4, ACTED)
    kind = known.ALL_V3_ENVIRONMENTS[f"{task}-v3"]
    theirs: Any = kind(reward_function_version="v2")
    # `set_task` keeps the places, so that a reset that moves things twice moves them to where they are.
    places = {"env_cls": kind, "rand_vec": world._env._last_rand_vec, "partially_observable": False}
    theirs.set_task(Task(env_name=f"{task}-v3", data=pickle.dumps(places)))
    observation = theirs.reset()[0]
    assert np.array_equal(observation, seen[0])
    for step, action in enumerate(ACTED):
        observation, reward, _, _, _ = theirs.step(action)
        assert np.array_equal(observation, seen[step + 1])
        assert reward == won[step]
    assert np.abs(seen[:, -3:]).max() > 0.0  # where to: which is 0 where the task is partially observable


def test_reward_versions_differ_in_rewards_alone() -> None:
    (seen, won), (as_seen, otherwise) = (played(MetaWorld("push", version), 4, ACTED) for version in ("v2", "v1"))
    assert np.array_equal(seen, as_seen)
    assert not np.isclose(won, otherwise).any()


def test_an_expert_acts_within_bounds_on_what_it_has_never_seen() -> None:
    expert = expert_of("pick-place")
    actions = np.stack([expert(row) for row in np.random.default_rng(0).normal(size=(200, OBSERVATIONS))])
    assert actions.shape == (200, ACTIONS)
    assert np.abs(actions).max() == 1.0


@pytest.mark.parametrize("speed", [np.nan, 1e12])
def test_physics_that_have_broken_are_no_episode(speed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo notes it
    world = MetaWorld("drawer-close")
    undisturbed = played(world, 0, ACTED)
    world.reset(0)
    world._env.data.qvel[0] = speed
    with pytest.raises(RuntimeError, match="unstable"):
        world.step(ACTED[0])
    assert np.array_equal(played(world, 0, ACTED)[0], undisturbed[0])


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["metaworld", "mujoco", "packaging"])
def test_a_package_that_is_missing_is_named_with_the_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest))
    with pytest.raises(UserError, match=rf"of the package {package}, not here: pip install 'mtlscale\[rl\]'$"):
        check_package()


def test_the_install_brings_what_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"metaworld=={check_package()}" in project["optional-dependencies"]["rl"]


def test_data_of_another_version_of_the_package_are_refused() -> None:
    here = check_package()
    assert check_package(here) == here
    with pytest.raises(UserError, match=rf"data are of metaworld 2\.0\.0, here is {here}.*metaworld==2\.0\.0$"):
        check_package("2.0.0")


def test_a_task_nobody_has_is_answered_with_the_nearest() -> None:
    for ask in (check_task_name, MetaWorld):
        with pytest.raises(UserError, match=r"metaworld has no task 'drawer-clos'; did you mean drawer-close"):
            ask("drawer-clos")


def test_rewards_that_the_package_lacks_are_refused() -> None:
    with pytest.raises(UserError, match="reward_version: metaworld has no 'v3'; it has: v1, v2"):
        check_reward_version("v3")
