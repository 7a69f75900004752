"""What is known of metrics by their names."""

from __future__ import annotations

import math

import pytest

from mtlscale.metrics import all_metrics, possible


@pytest.mark.parametrize(
    ("metric", "inside", "outside"),
    [
        ("accuracy", (0.0, 100.0, 100.0 + 1.2e-5), (-0.1, 100.1)),
        ("matthews", (-1.0, 0.0, 1.0), (-1.1, 1.1)),
        ("angle_mean", (0.0, 180.0), (-1.0, 181.0)),
        ("welsch", (0.0, 1.0), (-0.1, 1.1)),
        ("rmse", (0.0, 1e9), (-1e-3,)),
        ("cross_entropy", (0.0, 50.0), (-1.0,)),
    ],
)
def test_a_metric_can_be_what_its_unit_allows(
    metric: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    assert all(possible(metric, value) for value in inside)
    assert not any(possible(metric, value) for value in outside)


@pytest.mark.parametrize("metric", all_metrics())
def test_no_metric_is_nothing_or_without_end(metric: str) -> None:
    assert not any(possible(metric, value) for value in (math.nan, math.inf, -math.inf))
