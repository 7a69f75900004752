"""A run that is done once more: the same to the last digit, the same within what seeds differ by, or different."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mtlscale.records import RunRecord
from mtlscale.records.reproduction import DIFFERENT, SAME, WITHIN, Reproduction, spread_over_seeds

Record = Callable[..., RunRecord]


def metrics(accuracy: float, loss: float = 0.5) -> dict[str, dict[str, float]]:
    return {task: {"accuracy": accuracy + shift, "loss": loss} for task, shift in (("a", 0.0), ("b", 3.0))}


@pytest.fixture
def row(record: Record) -> list[RunRecord]:
    """A row whose accuracies have a standard deviation of 1, and losses one of 0.1."""
    return [record("mgda", seed, metrics(90.0 + seed, 0.5 + seed / 10)) for seed in range(3)]


def again(before: RunRecord, row: list[RunRecord], **fields: object) -> Reproduction:
    return Reproduction(before, before.model_copy(update=fields)).among(row)


def test_the_same_digits_are_the_same(row: list[RunRecord]) -> None:
    assert again(row[0], row, hardware="another").outcome == SAME


@pytest.mark.parametrize(("moved", "outcome"), [(1e-9, WITHIN), (0.9, WITHIN), (1.1, DIFFERENT), (2.0, DIFFERENT)])
def test_one_value_may_move_by_one_standard_deviation(row: list[RunRecord], moved: float, outcome: str) -> None:
    moved_metrics = metrics(90.0)
    moved_metrics["b"]["accuracy"] += moved
    repetition = again(row[0], row, metrics={"test": {**metrics(90.0), "b": {"accuracy": 93.0 + moved, "loss": 0.5}}})
    assert repetition.outcome == outcome and not repetition.takes_another_course


@pytest.mark.parametrize(("moved", "outcome"), [(2.5, WITHIN), (3.5, DIFFERENT)])
def test_a_run_that_takes_another_course_is_compared_as_another_seed(
    row: list[RunRecord], moved: float, outcome: str
) -> None:
    elsewhere = {"test": metrics(90.0 + moved, 0.55)}
    repetition = again(row[0], row, metrics=elsewhere, last=elsewhere, chosen_epoch=2)
    assert repetition.takes_another_course and repetition.outcome == outcome
    assert "chosen epoch 3, now 2" in repetition.explanation and "another course" in repetition.explanation


def test_another_chosen_epoch_is_no_difference_by_itself(row: list[RunRecord]) -> None:
    repetition = again(row[0], row, metrics={"test": metrics(95.0, 0.1)}, chosen_epoch=1)
    assert repetition.outcome == WITHIN and not repetition.takes_another_course


def test_another_status_and_numbers_that_are_none_are_different(row: list[RunRecord]) -> None:
    assert again(row[0], row, status="diverged").outcome == DIFFERENT
    assert again(row[0], row, metrics={"test": {**metrics(90.0), "b": {"loss": 0.5}}}).outcome == DIFFERENT
    assert again(row[0], row, metrics={"test": metrics(float("nan"))}).outcome == DIFFERENT


def test_a_row_without_spread_takes_half_of_the_others(row: list[RunRecord], record: Record) -> None:
    constant = [record("constant", seed, metrics(50.0)) for seed in range(3)]
    spread = spread_over_seeds(constant[0], [*row, *constant])
    assert spread["test", "a", "accuracy"] == pytest.approx((0.5 / 4) ** 0.5)
    assert again(constant[0], [*row, *constant], metrics={"test": metrics(50.0001)}).outcome == WITHIN


def test_where_no_other_seed_is_known_a_thousandth_counts(row: list[RunRecord]) -> None:
    for moved, outcome in ((0.01, WITHIN), (1.0, DIFFERENT)):
        elsewhere = {**metrics(90.0), "b": {"accuracy": 93.0 + moved, "loss": 0.5}}
        assert again(row[0], row[:1], metrics={"test": elsewhere}).outcome == outcome
