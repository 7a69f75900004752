"""Who plays the orders that training gives: each is an episode of its own seeds, in worlds that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mtlscale.rl.environments import ACTIONS, OBSERVATIONS, Act, EpisodeRequest, LocalRollouts, Simulated
from mtlscale.rl.environments.rollout_workers import chances

pytest.importorskip("metaworld")

ORDERS = [
    EpisodeRequest("reach", 3, 1),
    EpisodeRequest("push", 3, 2),
    EpisodeRequest("reach", 4, 1),
    EpisodeRequest("reach", 3, 5),
]


def simulated() -> Simulated:
    return Simulated(
        version="3.1.1",
        reward_version="v2",
        positions="random",
        horizon=6,
        tasks=("reach", "push"),
        task_id=False,
        mean=(0.0,) * OBSERVATIONS,
        std=(1.0,) * OBSERVATIONS,
        episodes={},
        seed=0,
    )


class ByChance:
    """Acts by the chance of each order alone."""

    def policy(self, orders: Sequence[EpisodeRequest]) -> Act:
        drawn = chances(orders, 6, ACTIONS)
        return lambda tasks, numbers, steps, inputs: drawn[np.array(numbers), np.array(steps)]


def test_chance_is_a_function_of_the_order() -> None:
    found = chances(ORDERS, 5, 3)
    assert found.shape == (4, 5, 3)
    assert found.dtype == np.float32
    assert np.array_equal(found[0], found[2])
    assert not np.isclose(found[0], found[1]).any()
    assert np.array_equal(chances(ORDERS[1:], 5, 3), found[1:])
    assert np.array_equal(chances(ORDERS, 4, 3), found[:, :4])


def test_episodes_come_in_the_order_of_the_orders_whoever_else_is_asked_for() -> None:
    here = LocalRollouts()
    together = here(simulated(), ByChance(), ORDERS)
    assert [episode.task for episode in together] == [order.task for order in ORDERS]
    for order, wanted in zip(ORDERS, together, strict=True):
        [alone] = here(simulated(), ByChance(), [order])
        assert np.array_equal(alone.inputs, wanted.inputs)
        assert np.array_equal(alone.rewards, wanted.rewards)
    assert np.array_equal(together[0].inputs[0], together[3].inputs[0])  # the same places, other actions
    assert not np.array_equal(together[0].inputs[-1], together[3].inputs[-1])
    assert here.replaced == 0


def test_other_environments_get_worlds_of_their_own() -> None:
    here = LocalRollouts()
    [v2] = here(simulated(), ByChance(), ORDERS[1:2])
    [v1] = here(replace(simulated(), reward_version="v1"), ByChance(), ORDERS[1:2])
    assert np.array_equal(v1.inputs, v2.inputs)
    assert not np.isclose(v1.rewards, v2.rewards).any()
