import numpy as np
import pytest

from mtlscale.report.stats.curves import MOST_SEEDS, epoch_frame, over_seeds, trace_frame, varying_weights
from mtlscale.report.stats.statistics import half_width


def test_mean_and_variance_over_tasks_then_mean_over_seeds(record):
    # Training losses of epoch e are 1/e and 2/e in every run; validation is the test value less 1/e.
    runs = [record("equal", seed, {"a": {"accuracy": 80.0 + seed}, "b": {"accuracy": 90.0}}) for seed in (0, 1, 2)]
    frame = epoch_frame(runs, ["equal"])
    losses = over_seeds(frame, "train_loss").set_index("epoch")
    assert losses["mean"].tolist() == pytest.approx([1.5, 0.75, 0.5])
    assert losses["ci"].tolist() == pytest.approx([0, 0, 0])
    variances = over_seeds(frame, "train_loss", "variance").set_index("epoch")
    assert variances["mean"][1] == pytest.approx(np.var([1.0, 2.0]))
    validation = over_seeds(frame, "val").set_index("epoch")
    assert validation["mean"][1] == pytest.approx(np.mean([84.0, 84.5, 85.0]))
    assert validation["ci"][1] == pytest.approx(half_width(np.std([84.0, 84.5, 85.0], ddof=1), 3))


def test_epochs_without_validation_leave_no_point(record):
    run = record("equal", 0, {"a": {"accuracy": 80.0}})
    run.epochs[1].val = {}
    assert over_seeds(epoch_frame([run], ["equal"]), "val")["epoch"].tolist() == [1, 3]


def test_only_weights_that_move_are_shown(record):
    tasks = {"a": {"accuracy": 80.0}, "b": {"accuracy": 90.0}}
    moving, still = record("mgda", 1, tasks), record("equal", 0, tasks)
    weights = varying_weights(epoch_frame([moving, still], ["mgda", "equal"]))
    assert list(weights) == ["mgda"] and list(weights["mgda"].columns) == ["a", "b"]
    assert weights["mgda"]["a"].tolist() == pytest.approx([0.0, 0.25, 0.5 - 0.5 / 3])


def test_traces_of_every_run_that_has_them(record):
    one, other = record("aamtrl", 0, {"a": {"accuracy": 1.0}}), record("equal", 0, {"a": {"accuracy": 1.0}})
    for epoch in other.epochs:
        epoch.traces = {}
    frame = trace_frame([one, other], "R_mean")
    assert frame["method"].unique().tolist() == ["aamtrl"]
    assert frame["value"].tolist() == pytest.approx([0, 0.5, 2 / 3])


def test_curves_are_read_from_a_few_finished_runs(record):
    runs = [record("equal", seed, {"a": {"accuracy": 1.0}}) for seed in range(MOST_SEEDS + 5)]
    runs[0] = record("equal", 0, {"a": {"accuracy": 1.0}}, status="failed")
    frame = epoch_frame(runs, ["equal"])
    assert frame["seed"].nunique() == MOST_SEEDS and 0 not in set(frame["seed"])
