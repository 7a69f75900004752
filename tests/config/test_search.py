"""Spaces, the trials drawn from them, and which is best; one line for every mistake."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.config import (
    Dimension,
    Experiment,
    Run,
    SearchSpec,
    Task,
    TaskSuite,
    UserError,
    check_metric,
    default_space,
    load_experiment,
    trials,
)
from mtlscale.records import score_of

File = Callable[..., Path]


def bases(experiment: Experiment) -> list[Run]:
    return experiment.bases(dict.fromkeys(experiment.data(), "f"))


def drawn(experiment: Experiment) -> dict[str, list[dict[str, object]]]:
    assert experiment.search is not None
    return {base.method: [run.trial for run in trials(experiment.search, base)] for base in bases(experiment)}


@given(
    st.floats(1e-6, 1e3),
    st.floats(1.001, 1e6),
    st.sampled_from(["log", "linear"]),
    st.floats(0, 1, exclude_max=True),
)
def test_values_lie_in_their_range(low: float, factor: float, scale: str, unit: float) -> None:
    dimension = Dimension.model_validate({"low": low, "high": low * factor, "scale": scale})
    assert low * (1 - 1e-5) <= dimension.at(unit) <= low * factor * (1 + 1e-5)
    assert all(low * (1 - 1e-5) <= level <= low * factor * (1 + 1e-5) for level in dimension.levels())


def test_whole_numbers_and_choices_are_equally_likely() -> None:
    units = [(place + 0.5) / 700 for place in range(700)]
    whole = Dimension(low=1, high=7)
    assert {
        value: [whole.at(u, as_integer=True) for u in units].count(value) for value in range(1, 8)
    } == dict.fromkeys(range(1, 8), 100)
    choices = Dimension(choices=("a", "b"))
    assert [choices.at(u) for u in units].count("a") == 350


def test_every_method_gets_the_same_number_of_trials_and_the_same_common_settings(experiment_file: File) -> None:
    search = "{budget: 9, space: {training.lr: {low: 1e-4, high: 1e-1, scale: log}, model.dropout: [0, 0.5]}}"
    found = drawn(load_experiment(experiment_file(methods="[stl, equal, getmtl, uncertainty]", search=search)))
    assert {method: len(settings) for method, settings in found.items()} == dict.fromkeys(found, 9)
    common = [[(s["training.lr"], s["model.dropout"]) for s in settings] for settings in found.values()]
    assert all(settings == common[0] for settings in common) and len(set(common[0])) == 9
    assert all("balancer.eps" in settings for settings in found["getmtl"])
    assert all(len(settings) == 2 for settings in found["stl"])


def test_trials_are_a_function_of_the_seed(experiment_file: File) -> None:
    def of(seed: int, budget: int) -> dict[str, list[dict[str, object]]]:
        return drawn(load_experiment(experiment_file(search=f"{{budget: {budget}, seed: {seed}}}")))

    assert of(7, 12) == of(7, 12) != of(8, 12)
    more = of(7, 20)
    assert {method: settings[:12] for method, settings in more.items()} == of(7, 12)  # a larger budget adds trials


def test_a_grid_has_every_point_or_as_many_as_the_budget_allows(experiment_file: File) -> None:
    space = "space: {training.lr: [0.1, 0.01], training.batch_size: [8, 16, 32], model.encoder.hidden: [[4], [8]]}"
    whole = drawn(
        load_experiment(experiment_file(search=f"{{algorithm: grid, budget: 50, {space}, methods: {{mgda: {{}}}}}}"))
    )
    assert all(len({str(settings) for settings in found}) == len(found) == 12 for found in whole.values())
    part = drawn(
        load_experiment(experiment_file(search=f"{{algorithm: grid, budget: 5, {space}, methods: {{mgda: {{}}}}}}"))
    )
    for method, found in part.items():
        assert len(found) == 5 and all(settings in whole[method] for settings in found)


def test_a_space_with_fewer_points_than_the_budget_is_tried_once(experiment_file: File) -> None:
    search = "{budget: 30, space: {model.dropout: [0, 0.1, 0.2]}, methods: {mgda: {}}}"
    assert {len(found) for found in drawn(load_experiment(experiment_file(search=search))).values()} == {3}


def test_a_trial_is_the_run_with_these_settings_in_its_file(experiment_file: File) -> None:
    search = "{budget: 2, space: {training.lr: [0.5]}, methods: {getmtl: {balancer.eps: [1]}}}"
    tuned = load_experiment(experiment_file(methods="[getmtl]", seeds="[1]", search=search))
    (trial,) = trials(tuned.search, bases(tuned)[0])  # type: ignore[arg-type]
    training = "{epochs: 3, batch_size: 16, lr: 0.5, dtype: float64}"
    written = load_experiment(experiment_file(methods="[{name: getmtl, eps: 1.0}]", seeds="[1000]", training=training))
    assert trial.run_id == next(written.runs(dict.fromkeys(written.data(), "f"))).run_id
    assert trial.trial == {"training.lr": 0.5, "balancer.eps": 1}


def test_default_ranges_are_those_of_the_components(experiment_file: File) -> None:
    experiment = load_experiment(experiment_file(methods="[{name: cagrad, architecture: mmoe}]", search="{budget: 1}"))
    space = default_space(bases(experiment)[0])
    assert set(space) == {"balancer.c", "architecture.experts", "architecture.top"}
    assert (space["balancer.c"].low, space["balancer.c"].high) == (0.1, 0.9)


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("{budget: 0}", "search.budget: should be greater than or equal to 1"),
        ("{budgt: 3}", "unknown key search.budgt: did you mean budget?"),
        ("{space: {training.lr: {low: 1, high: 0.1}}}", "range from 1 to 0.1 is empty; low must lie below high"),
        ("{space: {training.lr: {low: 1, high: 1}}}", "is empty"),
        ("{space: {training.lr: []}}", "the list of choices is empty"),
        ("{space: {training.lr: [1, 1]}}", "a choice appears twice"),
        ("{space: {training.lr: {low: 0, high: 1, scale: log}}}", "a range on a log scale starts above 0"),
        ("{space: {training.lr: {low: 1}}}", "has no `high`"),
        ("{space: {training.lr: 3}}", "or a list of choices"),
        ("{space: {training.lrr: [1]}}", "unknown setting training.lrr; did you mean lr?"),
        ("{space: {training.lr: [-1]}}", "lr: should be greater than 0"),
        ("{space: {balancer.eps: [0.1]}}", "of method stl has no knob 'eps'"),
        ("{space: {objective.lam: [1]}}", "method stl has no objective"),
        ("{space: {model.encoder.width: [1]}}", "has no knob 'width'"),
        ("{space: {elsewhere: [1]}}", "elsewhere is no setting of a run"),
        ("{methods: {mgad: {}}}", "unknown method 'mgad'; did you mean mgda?"),
        ("{methods: {mgda: {balancer.normalize: [l3]}}}", "normalize = 'l3' is outside"),
        ("{algorithm: hyperopt}", "should be 'random', 'grid', 'optuna' or 'nsga2'"),
        ("{seed: 0}", "search.seed 0 is one of seeds"),
        ("{algorithm: optuna, executor: batched}", "search.executor batched has no optuna"),
    ],
)
def test_mistakes_are_named_in_one_line(search: str, expected: str, experiment_file: File) -> None:
    with pytest.raises(UserError) as error:
        load_experiment(experiment_file(search=search))
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_metric_nobody_reports_is_named() -> None:
    tasks = (Task(name="a", loss="cross_entropy", outputs=2, metrics=("accuracy",)),)
    suite = TaskSuite(name="s", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(1,))
    check_metric(SearchSpec(metric="accuracy"), suite)
    check_metric(SearchSpec(metric="loss"), suite)
    with pytest.raises(UserError, match=r"search\.metric 'acuracy': task a of s reports accuracy .* did you mean acc"):
        check_metric(SearchSpec(metric="acuracy"), suite)


def test_a_searcher_that_is_not_installed_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name))
    SearchSpec().check_installed()
    with pytest.raises(UserError, match="pip install optuna"):
        SearchSpec(algorithm="optuna").check_installed()


def test_scores_are_comparable_across_trials() -> None:
    higher = {"accuracy": True, "mse": False, "loss": False}
    one = {"a": {"accuracy": 80.0, "loss": 0.5}, "b": {"accuracy": 60.0, "loss": 0.7}}
    assert score_of(one, {"a": "accuracy", "b": "accuracy"}, higher) == (70.0, pytest.approx(-0.6))
    assert score_of(one, {"a": "accuracy", "b": "accuracy"}, higher, "loss")[0] == pytest.approx(-0.6)
    mixed = {"a": {"accuracy": 80.0, "loss": 0.5}, "b": {"mse": 2.0, "loss": 2.0}}
    scaled = {"a": {"accuracy": 80.0, "loss": 0.5}, "b": {"mse": 2000.0, "loss": 2000.0}}
    better = {"a": {"accuracy": 80.0, "loss": 0.5}, "b": {"mse": 1.0, "loss": 1.0}}
    better_scaled = {"a": {"accuracy": 80.0, "loss": 0.5}, "b": {"mse": 1000.0, "loss": 1000.0}}
    main = {"a": "accuracy", "b": "mse"}
    gain = score_of(better, main, higher)[0] - score_of(mixed, main, higher)[0]
    assert gain == pytest.approx(math.log(2) / 2)
    assert score_of(better_scaled, main, higher)[0] - score_of(scaled, main, higher)[0] == pytest.approx(gain)
    broken = {"a": {"accuracy": math.nan, "loss": math.nan}, "b": {"accuracy": 1.0, "loss": 1.0}}
    assert score_of(broken, {"a": "accuracy", "b": "accuracy"}, higher) == (-math.inf, -math.inf)


def test_a_score_with_correlations_counts_from_minus_one() -> None:
    higher, main = {"matthews": True, "accuracy": True}, {"a": "matthews", "b": "accuracy"}
    scores = [
        score_of({"a": {"matthews": r, "loss": 1.0}, "b": {"accuracy": 80.0, "loss": 1.0}}, main, higher, None, least)[
            0
        ]
        for least in ({}, {"matthews": -1.0})
        for r in (-0.5, -0.1, 0.0, 0.5)
    ]
    assert scores[0] == scores[1] == scores[2]  # as if it could not be negative
    gains = [after - before for before, after in itertools.pairwise(scores[4:])]
    assert gains == pytest.approx([math.log(0.9 / 0.5) / 2, math.log(1 / 0.9) / 2, math.log(1.5) / 2])


def test_a_dimension_holds_what_it_draws() -> None:
    """Values have six digits, the ends of a range may have more; other values are of an earlier range."""
    for dimension, integers in (
        (Dimension(low=1.234561e-5, high=1.234567e-2, scale="log"), False),
        (Dimension(low=1, high=7), True),
        (Dimension(choices=("a", 0.5, True)), False),
        (Dimension(numbers=(2, 3)), False),
    ):
        assert all(dimension.holds(dimension.at(step / 50, integers), integers) for step in range(50))
        for other in (-1, 1e6, "b", "9 9", "x", None, [], 7.5):
            assert not dimension.holds(other, integers)
    assert not Dimension(choices=(1, 2)).holds(True)
    assert Dimension(low=1, high=7).size(True) == 7 and Dimension(low=1, high=7).size() == float("inf")


@pytest.mark.parametrize("written", ["", "\n  space: {training.lr: {low: 1e-4, high: 1e-1, scale: log}}"])
def test_a_range_can_be_overridden_in_part(tmp_path: Path, written: str) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(f"datasets: [digits]\nmethods: [equal]\nfloors: []\nsearch:\n  budget: 2{written}\n")
    changes = ("search.space.training.lr.low=1e-3", "search.methods.equal.training.weight_decay=[0, 1e-3]")
    search = load_experiment(file, changes).search
    assert search is not None and search.space["training.lr"].low == 1e-3 and search.space["training.lr"].scale == "log"
    assert (len(search.space) == 1) == bool(written)
    assert search.methods["equal"]["training.weight_decay"].choices == (0, 1e-3)
    search = load_experiment(file, ("search.space.model.dropout=[0, 0.1]",)).search
    assert search is not None and search.space["model.dropout"].choices == (0, 0.1)
