"""Balancers that decide module by module: weights of every module, and what they remember of an epoch."""

import pytest
import torch

from mtlscale.balancing import balance
from mtlscale.balancing.jacobian.conflict_noticed import ConflictNoticed

LOSSES = torch.ones(3, dtype=torch.float64)
# Of three modules: tasks 0 and 2 conflict in the second.
ROWS = torch.tensor(
    [[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]],
    dtype=torch.float64,
)
GRAMIANS = ROWS @ ROWS.mT


@pytest.mark.parametrize(("conflict", "mask"), [("prefix", [1, 0, 0]), ("module", [1, 0, 1]), ("none", [1, 1, 1])])
def test_a_module_in_conflict_gets_no_weight(conflict: str, mask: list[int]) -> None:
    weights, _ = ConflictNoticed(conflict=conflict)(LOSSES, GRAMIANS, ConflictNoticed().init(3))
    assert weights.tolist() == [[value] * 3 for value in mask]


def test_tasks_without_labels_conflict_with_nobody() -> None:
    balancer = ConflictNoticed()
    state = balancer.init(3)
    weights, state = balance(balancer, LOSSES, GRAMIANS, state, torch.tensor([True, True, False]))
    assert weights.tolist() == [[1, 1, 0]] * 3
    assert int(state["pairs"]) == 1 and state["conflicts"].tolist() == [0, 0, 0]
    nothing, same = balance(balancer, LOSSES, GRAMIANS, state, torch.zeros(3, dtype=torch.bool))
    assert nothing.tolist() == [[0, 0, 0]] * 3 and same is state


@pytest.mark.parametrize(
    ("conflict", "moved", "applied"),
    [("none", [1, 1, 1], [0, 1 / 6, 0]), ("module", [1, 0.5, 1], [0, 0, 0]), ("prefix", [1, 0.5, 0.5], [0, 0, 0])],
)
def test_applied_conflicts_are_those_of_modules_that_move(
    conflict: str, moved: list[float], applied: list[float]
) -> None:
    """One step with a conflicting pair of three in the second module, one step without."""
    balancer = ConflictNoticed(conflict=conflict)
    state = balancer.init(3)
    for gramian in (GRAMIANS, torch.eye(3, dtype=torch.float64).expand(3, 3, 3)):
        _, state = balancer(LOSSES, gramian, state)
    state = balancer.on_epoch_end(LOSSES, state)
    assert state["conflict_ratio"].tolist() == [0, 1 / 6, 0]
    assert state["applied_ratio"].tolist() == applied and state["moved_ratio"].tolist() == moved
    again = balancer.on_epoch_end(LOSSES, balancer(LOSSES, GRAMIANS, state)[1])
    assert again["moved_ratio"].tolist() == [float(2 * ratio > 1) for ratio in moved]  # of this epoch alone


def test_the_ratio_is_that_of_an_epoch_and_counts_present_pairs() -> None:
    balancer = ConflictNoticed(conflict="none")
    state = balancer.init(3)
    everybody = torch.ones(3, dtype=torch.bool)
    _, state = balance(balancer, LOSSES, GRAMIANS, state, everybody)
    _, state = balance(balancer, LOSSES, GRAMIANS, state, torch.tensor([True, False, True]))
    state = balancer.on_epoch_end(LOSSES, state)
    assert state["conflict_ratio"].tolist() == [0, 0.5, 0]  # two of the 3 + 1 pairs
    _, state = balance(balancer, LOSSES, GRAMIANS, state, everybody)
    assert balancer.on_epoch_end(LOSSES, state)["conflict_ratio"].tolist() == [0, 1 / 3, 0]
