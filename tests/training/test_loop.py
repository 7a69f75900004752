"""The loop on real (small) data: resuming, choosing an epoch, stopping early, diverging."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mtlscale.config import Experiment, Run, TrainingSpec, UserError
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.training import Trainer, schedule_factor, train

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]


def finish(trainer: Trainer) -> object:
    steps = trainer.train()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def test_the_chosen_epoch_is_the_best_on_validation_and_its_metrics_are_reported(
    small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    data = uneven()
    record = train(run_of(small(methods="[equal]", training="{epochs: 12, batch_size: 16, lr: 0.05}"), data), data)
    assert record.chosen_epoch is not None
    chosen = record.epochs[record.chosen_epoch - 1]
    for task, metrics in record.metrics["val"].items():
        assert metrics == pytest.approx(chosen.val[task])
    assert set(record.metrics) == {"train", "val", "test"} and set(record.last) == {"val", "test"}
    assert record.items is not None and record.items.count == max(map(len, data.splits["test"].values())) > 1


def test_a_single_task_model_keeps_the_epoch_that_is_best_for_its_task(
    small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    data = uneven()
    record = train(run_of(small(methods="[stl]", training="{epochs: 12, batch_size: 16, lr: 0.05}"), data), data)
    for task in ("a", "b"):
        best = max(epoch.val[task]["accuracy"] for epoch in record.epochs)
        assert record.metrics["val"][task]["accuracy"] == pytest.approx(best)
    assert record.metrics["val"]["c"]["mse"] == pytest.approx(min(epoch.val["c"]["mse"] for epoch in record.epochs))


def test_single_task_models_do_not_see_each_other(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    """Weights of the other tasks' losses cannot matter: nothing is shared and optimisers work per element."""
    data = uneven()
    results = []
    for balancer in ("equal", "{name: equal, reduction: sum}", "mgda"):
        methods = f"[{{architecture: stl, balancer: {balancer}}}]"
        trainer = Trainer(run_of(small(methods=methods), data), data)
        finish(trainer)
        results.append(trainer.model.state_dict())
    for other in results[1:]:
        assert all(torch.equal(results[0][key], other[key]) for key in other)


def test_early_stopping_ends_a_run_that_no_longer_improves(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    spec = "{epochs: 200, batch_size: 16, lr: 0.05, patience: 3}"
    record = train(run_of(small(methods="[equal]", training=spec), data), data)
    assert record.chosen_epoch is not None
    assert len(record.epochs) == record.chosen_epoch + 3 < 200


def test_a_budget_of_seconds_ends_a_run_with_the_epoch_that_spends_it(
    small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path
) -> None:
    data = uneven()
    plain = "epochs: 6, batch_size: 16, evaluate_every: 4, checkpoint_seconds: 0"
    free = run_of(small(methods="[equal]", training=f"{{{plain}}}"), data)
    assert "seconds" not in free.spec["training"]  # run ids are those of before there were budgets

    record = train(run_of(small(methods="[equal]", training=f"{{{plain}, seconds: 1e-6}}"), data), data)
    assert (record.status, len(record.epochs), record.chosen_epoch) == ("finished", 1, 1)
    assert record.epochs[0].val and record.counters["out_of_seconds"] == 1  # measured, though no fourth epoch

    rich = Trainer(run_of(small(methods="[equal]", training=f"{{{plain}, seconds: 1e6}}"), data), data, folder=tmp_path)
    next(rich.train())
    rich.at.train_seconds = 1e6  # a checkpoint keeps what was spent
    rich._save()
    again = Trainer(rich.run, data, folder=tmp_path)
    record = finish(again)
    assert (len(record.epochs), record.counters["out_of_seconds"]) == (2, 1)
    assert "out_of_seconds" not in train(free, data).counters


def test_a_nan_marks_the_run_diverged_and_names_method_task_and_step(
    small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    """The first step goes so far that the second one's losses are no numbers."""
    data = uneven()
    training = "{epochs: 2, batch_size: 16, lr: 1e300, optimizer: sgd, dtype: float64}"
    record = train(run_of(small(methods="[mgda]", training=training), data), data)
    assert record.status == "diverged"
    assert record.error is not None and re.fullmatch(r"mgda: .* of task [abc] is .* in step 2", record.error)


def test_an_encoder_that_cannot_read_the_inputs_is_named(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    run = run_of(small(methods="[equal]", model="{encoder: textcnn}"), data)
    with pytest.raises(UserError, match="textcnn reads tokens"):
        Trainer(run, data)


def test_the_same_seed_gives_every_method_the_same_start(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    starts = [Trainer(run_of(small(methods=f"[{m}]"), data), data).model.state_dict() for m in ("equal", "mgda")]
    assert all(torch.equal(starts[0][key], starts[1][key]) for key in starts[0])


def test_a_record_says_how_far_weights_were_from_equal_ones(
    small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path
) -> None:
    """Whatever they sum to, over the tasks that had labels; with none, nothing is said."""
    data = uneven()
    tasks = len(data.suite.tasks)

    def departure(method: str) -> float | None:
        return train(run_of(small(methods=f"[{method}]"), data), data).departure

    assert departure("equal") == departure("stl") == departure("{name: equal, reduction: sum}") == 0.0
    weights = [float(1 + task) for task in range(tasks)]
    share = max(abs(weight * tasks / sum(weights) - 1) for weight in weights)
    assert departure(f"{{name: static, weights: {weights}}}") == pytest.approx(share)
    assert departure("graddrop") is None
    small_steps, large_steps = (departure(f"{{name: getmtl, relative: true, eps: {eps}}}") for eps in (1e-5, 0.8))
    assert small_steps is not None and large_steps is not None
    assert 0 < small_steps < 0.01 < large_steps
    # What was cut off remembers the first epochs.
    run = run_of(small(methods="[rlw]", training="{epochs: 3, batch_size: 16, lr: 1e-2, checkpoint_seconds: 0}"), data)
    whole = finish(Trainer(run, data))
    list(itertools.islice(Trainer(run, data, folder=tmp_path).train(), 2))
    assert finish(Trainer(run, data, folder=tmp_path)).departure == whole.departure > 0  # type: ignore[attr-defined]


def test_the_inverse_schedule_falls_as_aaspc_s() -> None:
    """0.1 (1 + 0.001 p)^-0.75, of which this is the factor."""
    settings = TrainingSpec(schedule="inverse", decay_rate=0.75, decay_steps=1000)
    factors = [schedule_factor(settings, step, 9) for step in (0, 1000, 15_000)]
    assert factors == pytest.approx([1.0, 2**-0.75, 0.125])
