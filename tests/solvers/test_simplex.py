import math

import numpy as np
import torch
from gramians import few
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_softmax
from torch import Tensor

from mtlscale.solvers import first_largest, kl_ball_log_softmax, project_simplex


def points(seed: int, tasks: int, scale: float) -> Tensor:
    return scale * torch.randn(3, tasks, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


scales = st.sampled_from((1e-12, 1e-2, 1.0, 1e2, 1e12))


def test_projection_by_hand() -> None:
    """(½, ½, -1) keeps two entries; (2, 0) clips to a vertex; the simplex stays where it is."""
    given_points = torch.tensor([[0.5, 0.5, -1.0], [2.0, 0.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    expected = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(project_simplex(given_points), expected)


@given(seed=st.integers(0, 999), tasks=st.integers(1, 50), scale=scales)
@few
def test_projection_is_the_nearest_point(seed: int, tasks: int, scale: float) -> None:
    """⟨x - p, q - p⟩ <= 0 for every q of the simplex, it suffices for its vertices."""
    given_points = points(seed, tasks, scale)
    nearest = project_simplex(given_points)
    assert nearest.min() >= 0
    torch.testing.assert_close(nearest.sum(-1), torch.ones(3, dtype=torch.float64))
    away = given_points - nearest
    excess = away.amax(-1) - (away * nearest).sum(-1)
    assert excess.max() <= 1e-9 * max(1.0, scale)


@given(seed=st.integers(0, 999), tasks=st.integers(1, 50), scale=scales, radius=st.sampled_from((1e-4, 0.1, 1.0, 9.0)))
@few
def test_kl_ball_holds_and_is_filled(seed: int, tasks: int, scale: float, radius: float) -> None:
    logits = points(seed, tasks, scale)
    log_p = kl_ball_log_softmax(logits, radius)
    divergence = (log_p.exp() * log_p).sum(-1) + math.log(tasks)
    free = torch.log_softmax(logits, -1)
    outside = (free.exp() * free).sum(-1) + math.log(tasks) > radius
    assert (divergence <= radius + 1e-12).all()
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(log_p[~outside], free[~outside])
    assert (divergence[outside] >= radius - 1e-9).all()


def test_kl_ball_agrees_with_a_root_finder() -> None:
    logits = np.array([3.0, 1.0, 0.0, -2.0])

    def excess(factor: float) -> float:
        log_p = log_softmax(factor * logits)
        return float(np.exp(log_p) @ log_p) + math.log(4) - 0.2

    expected = log_softmax(brentq(excess, 0.0, 1.0, xtol=1e-15) * logits)
    torch.testing.assert_close(kl_ball_log_softmax(torch.from_numpy(logits), 0.2), torch.from_numpy(expected))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=6), st.integers(0, 99), st.sampled_from((1.0, 1e-3, 1e6)))
def test_the_last_bits_choose_no_corner(exact: list[int], seed: int, size: float) -> None:
    for dtype in (torch.float32, torch.float64):
        noise = torch.randint(-8, 9, (2, len(exact)), generator=torch.Generator().manual_seed(seed))
        values = size * torch.tensor(exact, dtype=dtype) / 3 * (1 + torch.finfo(dtype).eps * noise)
        assert first_largest(values).tolist() == [exact.index(max(exact))] * 2
