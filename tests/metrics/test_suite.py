import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.config import LOSSES, Task, TaskSuite, UserError, plugin_file
from mtlscale.metrics import (
    all_metrics,
    check_task,
    delta_flat,
    delta_i,
    delta_main,
    higher_is_better,
    measured,
    relative_error,
    safeness,
    task_metrics,
    taskwise_improvement,
)

# CoNAL's CityScapes table (Yue's thesis, UTS, table 5.2): raw differences to STL.
COLUMNS_52 = (("seg", "mIoU"), ("seg", "PixAcc"), ("depth", "Abs"), ("depth", "Rel"))
STL_52 = (68.13, 91.28, 0.0133, 45.039)
HIGHER = {"mIoU": True, "PixAcc": True, "PixErr": False, "Abs": False, "Rel": False}

# DSMTL's (the thesis, table 6.1): differences, positive is better; printed Δ_I (fraction) and η.
COLUMNS_61 = (("seg", "mIoU"), ("seg", "PixErr"), ("depth", "Abs"), ("depth", "Rel"))
STL_61 = (67.48, 9.00, 0.0139, 46.2507)
TABLE_61 = {
    "HPS": ((-0.08, -0.08, -0.0003, +0.8245), -0.0035, 25),
    "Cross-stitch": ((+0.53, +0.29, +0.0004, +1.8261), +0.0271, 100),
    "AFA": ((+1.44, +0.52, -0.0019, -0.9136), -0.0193, 50),
    "MaxRoam": ((-0.76, +0.33, -0.0003, +3.9607), +0.0224, 50),
    "MTL-NAS": ((-2.13, -0.80, -0.0005, -1.6786), -0.0482, 0),
    "TSN": ((+2.27, +0.85, +0.0011, +0.4047), +0.0544, 100),
    "LTB": ((+2.24, +0.82, +0.0014, -0.4489), +0.0539, 75),
    "DSMTL-AL": ((+3.07, +1.18, +0.0017, +4.3300), +0.0988, 100),
}


def nested(columns, values):
    result = {}
    for (task, metric), value in zip(columns, values, strict=True):
        result.setdefault(task, {})[metric] = value
    return result


@pytest.mark.parametrize(
    ("differences", "expected"),
    [((+1.54, +0.51, -0.0010, -2.3906), 3.911), ((-0.73, -0.36, +0.0009, +0.3872), -2.273)],
    ids=["CoNAL", "HPS"],
)
def test_delta_of_table_5_2(differences, expected):
    values = [stl + difference for stl, difference in zip(STL_52, differences, strict=True)]
    assert delta_i(nested(COLUMNS_52, values), nested(COLUMNS_52, STL_52), HIGHER) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("row", TABLE_61)
def test_delta_and_safeness_of_table_6_1(row):
    differences, fraction, eta = TABLE_61[row]
    values = [
        stl + (difference if HIGHER[metric] else -difference)
        for (_, metric), stl, difference in zip(COLUMNS_61, STL_61, differences, strict=True)
    ]
    method, single = nested(COLUMNS_61, values), nested(COLUMNS_61, STL_61)
    # The printed Abs has two digits: half a unit of the last is 0.4 % of STL's value, a quarter of which reaches Δ.
    assert delta_i(method, single, HIGHER) / 100 == pytest.approx(fraction, abs=0.0012)
    assert safeness(method, single, HIGHER) == eta


def test_hps_of_table_6_1_to_the_printed_digit():
    single = nested(COLUMNS_61, STL_61)
    method = {"seg": {"mIoU": 67.40, "PixErr": 9.08}, "depth": {"Abs": 0.0142, "Rel": 45.4262}}
    assert round(delta_i(method, single, HIGHER) / 100, 4) == -0.0035
    assert safeness(method, single, HIGHER) == 25


def test_definitions_of_delta_by_hand():
    single = {"a": {"x": 10.0, "y": 4.0, "z": 2.0}, "b": {"x": 50.0}}
    method = {"a": {"x": 11.0, "y": 5.0, "z": 2.0}, "b": {"x": 60.0}}
    directions = {"a": {"x": True, "y": False, "z": True}, "b": {"x": True}}
    # gains: +10, -25, 0 and +20 percent
    assert delta_i(method, single, directions) == pytest.approx((-5 + 20) / 2)
    assert delta_flat(method, single, directions) == pytest.approx(5 / 4)
    assert delta_main(method, single, directions, {"a": "y", "b": "x"}) == pytest.approx((-25 + 20) / 2)
    assert safeness(method, single, directions) == pytest.approx((100 * 2 / 3 + 100) / 2)  # the tie counts as safe


finite = st.floats(0.1, 1e3) | st.floats(-1e3, -0.1)
suites = st.lists(st.lists(st.tuples(finite, finite, st.booleans()), min_size=1, max_size=4), min_size=1, max_size=5)


def unpack(suite):
    names = [(f"t{t}", f"m{m}", entry) for t, task in enumerate(suite) for m, entry in enumerate(task)]
    method, single, directions = {}, {}, {}
    for task, metric, (value, reference, higher) in names:
        method.setdefault(task, {})[metric] = value
        single.setdefault(task, {})[metric] = reference
        directions.setdefault(task, {})[metric] = higher
    return method, single, directions


@given(suites)
def test_single_task_learning_has_no_gain_and_is_safe(suite):
    _, single, directions = unpack(suite)
    assert delta_i(single, single, directions) == 0
    assert delta_flat(single, single, directions) == 0
    assert safeness(single, single, directions) == pytest.approx(100)


@given(suites)
def test_turning_a_metric_around_with_its_direction_changes_nothing(suite):
    method, single, directions = unpack(suite)
    turned = [
        {task: {metric: sign(value) for metric, value in values.items()} for task, values in part.items()}
        for part, sign in ((method, float.__neg__), (single, float.__neg__), (directions, lambda flag: not flag))
    ]
    assert delta_i(*turned) == pytest.approx(delta_i(method, single, directions), rel=1e-9, abs=1e-9)
    assert safeness(*turned) == pytest.approx(safeness(method, single, directions))


@given(suites, st.floats(0.01, 100))
def test_the_unit_of_a_metric_does_not_matter(suite, unit):
    method, single, directions = unpack(suite)
    scaled = [
        {task: {metric: unit * value for metric, value in values.items()} for task, values in part.items()}
        for part in (method, single)
    ]
    assert delta_i(*scaled, directions) == pytest.approx(delta_i(method, single, directions), rel=1e-9, abs=1e-9)


@given(suites)
def test_percent_is_a_hundred_times_the_fraction(suite):
    method, single, directions = unpack(suite)
    fractions = [
        [(1 if directions[t][m] else -1) * (method[t][m] - single[t][m]) / abs(single[t][m]) for m in single[t]]
        for t in single
    ]
    fraction = sum(sum(task) / len(task) for task in fractions) / len(fractions)
    assert delta_i(method, single, directions) == pytest.approx(100 * fraction, rel=1e-9, abs=1e-9)


def test_a_single_task_value_of_zero_is_named():
    single = {"seg": {"mIoU": 50.0, "PixErr": 0.0}}
    with pytest.raises(ValueError, match="PixErr of task 'seg' is 0"):
        delta_i(single, single, HIGHER)


@pytest.mark.parametrize(
    ("method", "named"),
    [({"a": {"x": 1.0}}, r"\['a'\].*\['a', 'b'\]"), ({"a": {"x": 1.0}, "b": {"y": 1.0}}, r"'b' has metrics \['y'\]")],
    ids=["task", "metric"],
)
def test_what_does_not_match_single_task_learning_is_named(method, named):
    with pytest.raises(ValueError, match=named):
        delta_i(method, {"a": {"x": 1.0}, "b": {"x": 1.0}}, {"x": True, "y": True})


def test_a_missing_direction_or_main_metric_is_named():
    values = {"a": {"x": 1.0}}
    with pytest.raises(ValueError, match="direction of metric 'x' of task 'a'"):
        delta_i(values, values, {"y": True})
    with pytest.raises(ValueError, match="task 'a' has no main metric"):
        delta_main(values, values, {"x": True}, {})


def test_a_missing_figure_makes_the_answer_missing():
    single, method = {"a": {"x": 1.0}}, {"a": {"x": math.nan}}
    assert math.isnan(delta_i(method, single, {"x": True}))
    assert math.isnan(safeness(method, single, {"x": True}))


def test_relative_error():
    assert relative_error({"a": 6.0, "b": 3.0}, {"a": 10.0, "b": 2.0}) == 0.75


def test_taskwise_improvement_reads_tomato_both_ways():
    # Table 4: Single on MNIST-MTL from 2.59 to 49.98 % error prints −48.66, the stated formula gives −1830.
    method, separate = {"pooled": 49.98}, {"pooled": 2.59}
    assert taskwise_improvement(method, separate, "accuracy") == pytest.approx(-48.66, abs=0.02)
    assert taskwise_improvement(method, separate, "error") == pytest.approx(-1830, abs=1)
    # Per task first, then the mean.
    two = taskwise_improvement({"a": 10.0, "b": 50.0}, {"a": 20.0, "b": 40.0}, "error")
    assert two == pytest.approx((50 - 25) / 2)


def test_directions():
    assert higher_is_better("accuracy") and not higher_is_better("rmse")
    with pytest.raises(UserError, match="did you mean accuracy"):
        higher_is_better("acuracy")


def test_a_metric_that_does_not_fit_the_loss_is_a_users_mistake():
    with pytest.raises(UserError, match="'accuracy' is not defined for loss 'mse'; use one of mse, rmse, mae"):
        task_metrics(Task(name="depth", loss="mse", outputs=1, metrics=("accuracy",)))


def test_every_metric_can_be_built_for_every_loss_it_names():
    for name, metric in all_metrics().items():
        if plugin_file(type(metric)):
            continue  # of another test
        for loss in metric.losses:
            outputs = 3 if not metric.one_score else 2 if loss == "cross_entropy" else 1
            tags = {"per": "token", "classes": ("O", "B-x", "I-x")} if name == "entity_f1" else {}
            group = 0 if metric.grouped else None
            task = Task(name="t", loss=loss, outputs=outputs, metrics=(name,), group=group, **tags)
            found = task_metrics(task).compute()
            assert (name in found) != metric.simulated  # by episodes, which labels say nothing of


def test_suite_level_figures_need_no_torch():
    code = "import sys, mtlscale.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"loss": "huge"}, "task 't': unknown loss 'huge': known: cross_entropy, soft_cross_entropy, bce"),
        ({"loss": "cross_entropi"}, "unknown loss 'cross_entropi': did you mean cross_entropy"),
        ({"metrics": ()}, "task 't' has no metrics; name one at least, such as accuracy"),
        ({"metrics": ("acuracy",)}, "task 't': unknown metric 'acuracy': did you mean accuracy"),
        ({"metrics": ("rmse",)}, "metric 'rmse' is not defined for loss 'cross_entropy'; use one of accuracy"),
        ({"metrics": ("error", "error")}, "task 't' names metric 'error' twice; drop one"),
    ],
)
def test_what_is_wrong_with_a_tasks_loss_or_metrics(task, said):
    with pytest.raises(UserError, match=said):
        check_task(Task(**{"name": "t", "loss": "cross_entropy", "outputs": 3, "metrics": ("accuracy",), **task}))


def test_other_metrics_for_the_tasks_of_a_suite():
    tasks = (
        Task(name="seg", loss="cross_entropy", outputs=3, metrics=("miou",)),
        Task(name="depth", loss="l1", outputs=1, metrics=("abs_err",)),
    )
    suite = TaskSuite(name="rooms", tasks=tasks, inputs="shared", input_kind="image", input_shape=(3, 4, 4))
    chosen = measured(suite, ("rmse", "pixel_accuracy", "miou", "mae"))
    assert [task.metrics for task in chosen.tasks] == [("pixel_accuracy", "miou"), ("rmse", "mae")]
    chosen = measured(suite, {"depth": ("mae",)})
    assert [task.metrics for task in chosen.tasks] == [("miou",), ("mae",)]
    for wrong, said in (
        (("miou",), "task 'depth': metric 'miou' is not defined for loss 'l1'; use one of mse"),
        (("miou", "mae", "angle_mean"), "angle_mean is not defined for any task of rooms"),
        (("miou", "may"), "unknown metric 'may': did you mean mae"),
        ({"dept": ("mae",)}, "rooms has no task 'dept'; did you mean depth"),
        ({"depth": ("miou",)}, "task 'depth': metric 'miou' is not defined for loss 'l1'"),
    ):
        with pytest.raises(UserError, match=said):
            measured(suite, wrong)


def test_the_losses_that_tasks_may_name_are_those_there_are():
    from mtlscale.training.losses import LOSSES as built

    assert tuple(built) == LOSSES
