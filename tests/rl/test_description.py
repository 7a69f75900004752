"""What a suite says of its environments: inputs are normalised and end with the task, no split has another's goals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.rl.environments import EXTRA, OBSERVATIONS, Simulated, episode_seed

SPLITS = ("train", "val", "test", "demonstration")


def described(**more: Any) -> Simulated:
    rng = np.random.default_rng(0)
    told = {
        "version": "3.1.1",
        "reward_version": "v2",
        "positions": "random",
        "horizon": 20,
        "tasks": ("reach", "push", "drawer-close"),
        "task_id": True,
        "mean": tuple(rng.normal(size=OBSERVATIONS).tolist()),
        "std": tuple(rng.uniform(0.1, 2.0, size=OBSERVATIONS).tolist()),
        "episodes": {"val": 3, "test": 5},
        "seed": 7,
    }
    return Simulated(**{**told, **more})


def suite_of(extras: dict[str, Any]) -> TaskSuite:
    task = Task(name="reach", loss="mse", outputs=4, metrics=("mse",))
    return TaskSuite(
        name="arms", tasks=(task,), inputs="per_task", input_kind="vector", input_shape=(42,), extras=extras
    )


@given(st.lists(st.sampled_from(["reach", "push", "drawer-close"]), min_size=1, max_size=9), st.integers(0, 2**31))
def test_inputs_are_normalised_observations_and_a_one_hot_vector_of_the_task(tasks: list[str], seed: int) -> None:
    simulated = described()
    observations = np.random.default_rng(seed).normal(size=(len(tasks), OBSERVATIONS))
    found = simulated.input(tasks, observations)
    assert found.shape == (len(tasks), simulated.inputs) == (len(tasks), OBSERVATIONS + 3)
    assert found.dtype == np.float32
    for row, task in enumerate(tasks):
        for place in range(OBSERVATIONS):
            wanted = (observations[row, place] - simulated.mean[place]) / simulated.std[place]
            assert found[row, place] == pytest.approx(wanted, rel=1e-6, abs=1e-6)
        assert found[row, OBSERVATIONS:].tolist() == [float(name == task) for name in simulated.tasks]
    without = replace(simulated, task_id=False)
    assert without.inputs == OBSERVATIONS
    assert np.array_equal(without.input(tasks, observations), found[:, :OBSERVATIONS])


def test_no_episode_of_a_split_begins_as_one_of_another() -> None:
    simulated = described()
    goals = {split: [simulated.goal(split, number) for number in range(500)] for split in SPLITS}
    assert len({goal for each in goals.values() for goal in each}) == 500 * len(SPLITS)
    assert all(0 <= goal < 2**31 for each in goals.values() for goal in each)
    other = replace(simulated, seed=8)
    assert not {other.goal("test", number) for number in range(500)} & set(goals["test"])


def test_fixed_positions_are_one_goal() -> None:
    simulated = described(positions="fixed")
    assert {simulated.goal(split, number) for split in SPLITS for number in range(9)} == {7}


def test_a_seed_is_a_function_of_its_parts() -> None:
    assert episode_seed(3, "test", 1) == episode_seed(3, "test", 1)
    assert len({episode_seed(*parts) for parts in ((3, "test", 1), (3, "test", 2), (3, "val", 1), (4, "test", 1))}) == 4


def test_what_a_suite_keeps_is_read_back() -> None:
    simulated = described()
    kept = json.loads(json.dumps(simulated.as_extra()))  # as in a manifest
    assert Simulated.of(suite_of({EXTRA: kept})) == simulated
    assert Simulated.of(suite_of({})) is None


def test_a_task_that_was_not_prepared_is_named() -> None:
    with pytest.raises(UserError, match="no environment 'pull' in this set; it has: reach, push, drawer-close"):
        described().input(["pull"], np.zeros((1, OBSERVATIONS)))
