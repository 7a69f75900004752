"""The choice of the epoch: on validation, and not frozen by a score that is not defined."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mtlscale.config import Task, TaskSuite
from mtlscale.training import Selection

NAN = math.nan


def suite(*metrics: str) -> TaskSuite:
    tasks = tuple(
        Task(name=name, loss="cross_entropy", outputs=2, metrics=(metric,))
        for name, metric in zip("abc", metrics, strict=False)
    )
    return TaskSuite(name="s", tasks=tasks, inputs="per_task", input_kind="vector", input_shape=(2,))


def chosen(
    values: list[list[tuple[float, float]]], *metrics: str, rule: str = "metric", alone: bool = False
) -> Selection:
    """values: for every epoch, each task's (score, loss)."""
    of, selection = suite(*metrics), Selection()
    for epoch, row in enumerate(values, start=1):
        val = {
            task.name: {task.metrics[0]: score, "loss": loss} for task, (score, loss) in zip(of.tasks, row, strict=True)
        }
        selection.choose(epoch, val, of, rule, alone)
    return selection


def test_an_undefined_first_score_does_not_freeze_the_choice() -> None:
    assert chosen([[(NAN, 1.0)], [(60.0, 1.0)], [(50.0, 1.0)]], "accuracy").best_epoch == {"": 2}


def test_of_epochs_that_are_equal_within_rounding_the_first_counts() -> None:
    first, second = [(0.1, 1.0), (0.2, 1.0), (0.3, 1.0)], [(0.3, 1.0), (0.2, 1.0), (0.1, 1.0)]
    assert sum((0.1, 0.2, 0.3)) > sum((0.3, 0.2, 0.1))  # the last bit, by the order of the sum
    for rows in ([first, second], [second, first]):
        selection = chosen(rows, "accuracy", "accuracy", "accuracy")
        assert selection.best_epoch == {"": 1} and selection.since_best == 1


def test_an_undefined_later_score_is_not_chosen_and_ends_nothing() -> None:
    found = chosen([[(60.0, 1.0)], [(NAN, 0.1)], [(70.0, 1.0)], [(NAN, 0.1)]], "accuracy")
    assert found.best_epoch == {"": 3} and found.since_best == 1


def test_a_task_without_any_score_leaves_the_choice_to_the_others() -> None:
    rows = [[(50.0, 1.0), (NAN, NAN)], [(70.0, 1.0), (NAN, NAN)], [(60.0, 1.0), (NAN, NAN)]]
    assert chosen(rows, "accuracy", "accuracy").best_epoch == {"": 2}


def test_an_epoch_in_which_more_tasks_have_a_score_is_better() -> None:
    rows = [[(90.0, 1.0), (NAN, 1.0)], [(60.0, 1.0), (50.0, 1.0)], [(95.0, 1.0), (NAN, 1.0)]]
    assert chosen(rows, "accuracy", "accuracy").best_epoch == {"": 2}


def test_by_loss_a_loss_that_is_nan_is_never_the_best() -> None:
    assert chosen([[(1.0, NAN)], [(1.0, 2.0)], [(1.0, NAN)]], "accuracy", rule="loss").best_epoch == {"": 2}


def test_no_unit_rules_where_labels_have_other_units() -> None:
    """The first task doubles its error in tiny units while the second, in large ones, gains 1 %."""
    tasks = tuple(
        Task(name=name, loss="mse", outputs=1, metrics=("mae",), scale=scale)
        for name, scale in (("a", 0.1), ("b", 900.0))
    )
    of = TaskSuite(name="s", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(2,))
    selection = Selection()
    for epoch, (small, large) in enumerate([(0.1, 900.0), (0.2, 891.0)], start=1):
        val = {"a": {"mae": small, "loss": 1.0}, "b": {"mae": large, "loss": 1.0}}
        selection.choose(epoch, val, of, "metric", False)
    assert selection.best_epoch == {"": 1}


def test_every_task_chooses_for_itself_where_nothing_is_shared() -> None:
    rows = [[(NAN, 1.0), (3.0, 1.0)], [(5.0, 1.0), (2.0, 1.0)], [(4.0, 1.0), (NAN, 1.0)]]
    assert chosen(rows, "accuracy", "accuracy", alone=True).best_epoch == {"a": 2, "b": 1}


def test_units_come_from_the_first_evaluation_that_has_one() -> None:
    rows = [[(NAN, 1.0), (10.0, 1.0)], [(50.0, 1.0), (10.0, 1.0)], [(60.0, 1.0), (11.0, 1.0)]]
    found = chosen(rows, "accuracy", "mse")
    assert found.scales == {"a": 50.0, "b": 10.0} and found.best_epoch == {"": 3}


@given(st.lists(st.one_of(st.just(NAN), st.integers(0, 1000).map(lambda tenths: tenths / 10)), min_size=1, max_size=12))
def test_the_best_of_the_defined_scores_is_chosen(scores: list[float]) -> None:
    defined = [score for score in scores if not math.isnan(score)]
    best = chosen([[(score, 1.0)] for score in scores], "accuracy").best_epoch[""]
    assert best == (scores.index(max(defined)) + 1 if defined else 1)


def test_what_can_be_negative_counts_from_the_least_it_can_be() -> None:
    """A correlation that begins near 0 has no unit of its own: 1 + r has."""
    rows = [[(0.001, 1.0), (50.0, 1.0)], [(0.1, 1.0), (40.0, 1.0)], [(-0.02, 1.0), (52.0, 1.0)]]
    found = chosen(rows, "matthews", "accuracy")
    assert found.scales == {"a": 1.001, "b": 50.0} and found.best_epoch == {"": 3}
    assert chosen([[row[0]] for row in rows], "matthews").best_epoch == {"": 2}
