import math

import pytest
import torch
from gramians import few
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.solvers import (
    covariance_similarities,
    covariance_similarity,
    similarities_of_covariances,
    svd_task_weights,
)


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_svd_weights_by_hand() -> None:
    """X = I, labels (3, 0), (0, 1): singular values 3 and 1; the leading direction holds all of task 1."""
    inputs, labels = torch.eye(2).double(), torch.tensor([[3.0, 0.0], [0.0, 1.0]]).double()
    torch.testing.assert_close(svd_task_weights(inputs, labels, 1), torch.tensor([3.0, 0.0]).double())
    torch.testing.assert_close(svd_task_weights(inputs, labels, 2), torch.tensor([3.0, 1.0]).double())


@given(seed=st.integers(0, 999), tasks=st.integers(1, 6), rank=st.integers(1, 6))
@few
def test_squares_sum_to_the_leading_singular_values(seed: int, tasks: int, rank: int) -> None:
    inputs, labels = randn(seed, 20, 7), randn(seed + 1, 20, tasks)
    weights = svd_task_weights(inputs, labels, rank)
    spectrum = torch.linalg.svdvals(inputs.T @ labels)
    torch.testing.assert_close(weights.square().sum(), spectrum[:rank].square().sum())
    if rank >= tasks:
        torch.testing.assert_close(weights, (inputs.T @ labels).norm(dim=0))


def test_similarity_of_known_data() -> None:
    identity = torch.eye(9, dtype=torch.float64)
    assert covariance_similarity(identity, identity) == pytest.approx(1 / 3)  # 1/√d
    parallel = randn(0, 5, 1) @ randn(1, 1, 4)
    assert covariance_similarity(parallel, -3.0 * parallel[:2]) == pytest.approx(1.0)
    assert covariance_similarity(identity[:4], identity[4:]) == 0.0
    assert math.isnan(covariance_similarity(torch.zeros(3, 2), torch.ones(3, 2)))


def test_the_cut_keeps_the_energy_asked_for_and_whole_ties() -> None:
    """Covariance diag(98, 1, 1): 98 % and the first of the tie reach 99 %, the second comes along."""
    data = torch.diag(torch.tensor([98.0, 1.0, 1.0], dtype=torch.float64).sqrt())
    for axis, expected in ((0, 98 / math.sqrt(98 * 98 + 2) * 0 + 1.0), (1, 1.0), (2, 1.0)):
        probe = torch.eye(3, dtype=torch.float64)[axis : axis + 1]
        size = float(data[axis, axis]) / 10.0  # √(λ_axis / 100)
        assert covariance_similarity(data, probe) == pytest.approx(expected * size)
    assert covariance_similarity(data, torch.eye(3, dtype=torch.float64)[1:2], energy=0.9) == 0.0


@given(seed=st.integers(0, 999))
@few
def test_similarity_is_symmetric_and_invariant(seed: int) -> None:
    one, other = randn(seed, 12, 5), randn(seed + 1, 3, 5)
    score = covariance_similarity(one, other)
    assert 0.0 <= score <= 1.0
    assert covariance_similarity(other, one) == pytest.approx(score)
    assert covariance_similarity(1e-9 * one, 1e9 * other) == pytest.approx(score)
    rows, columns = torch.linalg.qr(randn(seed + 2, 12, 12))[0], torch.linalg.qr(randn(seed + 3, 5, 5))[0]
    assert covariance_similarity(rows @ one, other) == pytest.approx(score)
    assert covariance_similarity(one @ columns, other @ columns) == pytest.approx(score)


@given(seed=st.integers(0, 999))
@few
def test_covariances_have_the_scores_of_their_data(seed: int) -> None:
    inputs = [
        randn(seed, 12, 5),
        1e-9 * randn(seed + 1, 3, 5),
        randn(seed + 2, 9, 5) @ torch.diag(torch.arange(5.0)).double(),
    ]
    found = similarities_of_covariances([X.T @ X for X in inputs])
    torch.testing.assert_close(found, covariance_similarities(inputs), rtol=1e-7, atol=1e-9)
    assert similarities_of_covariances([torch.zeros(3, 3), torch.eye(3)])[0].isnan().all()
