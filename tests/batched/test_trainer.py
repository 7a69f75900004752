"""A batched trial ends as it does alone: parameters, metrics, chosen epoch, record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen.cases import CASES, RATES, SHOPS
from frozen.compute import in_memory, trials_of

from mtlscale.balancing.gramian.aligned_mtl import AlignedMTL
from mtlscale.batched.eligibility import planning
from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.config import MISSING_CLASS, Experiment, Run, component, load_experiment, names, trials
from mtlscale.data import PreparedData
from mtlscale.records import RunRecord
from mtlscale.training import Trainer

Uneven = Callable[..., PreparedData]
File = Callable[..., Path]

BALANCERS = [name for name in names("balancers") if component("balancers", name).batchable]
# Beside these, hps, stl, and tomato with its objectives are in most tests; esmm is of tasks of yes or no.
ARCHITECTURES = [
    name
    for name in names("architectures")
    if component("architectures", name).batchable
    and not component("architectures", name).needs_stages
    and name != "esmm"
]
TIMED = {"seconds", "train_seconds", "started", "finished", "peak_memory_mb", "epochs", "metrics", "last"}
TIMED |= {"departure", "weight_sums", "kappa", "items", "survival"}  # compared by themselves


def batch_of(experiment: Experiment, data: PreparedData) -> list[Run]:
    """The trials of an experiment's one method, which are all batched together."""
    fingerprints = dict.fromkeys(experiment.data(), data.manifest.fingerprint)
    (base,) = experiment.bases(fingerprints)
    assert experiment.search is not None
    (group,) = planning.groups(trials(experiment.search, base))
    assert planning.obstacle(group[0], data.suite) is None
    return group


def together(runs: list[Run], data: PreparedData) -> tuple[dict[str, RunRecord], BatchedTrainer]:
    trainer = BatchedTrainer(runs, data, keep_states=True)
    records = {event[0].run_id: event[1] for event in trainer.train() if not isinstance(event, int)}
    assert set(records) == {run.run_id for run in runs}
    return records, trainer


def alone(run: Run, data: PreparedData) -> tuple[RunRecord, Trainer]:
    trainer = Trainer(run, data)
    steps = trainer.train()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, trainer


def assert_same(run: Run, data: PreparedData, records: dict[str, RunRecord], trainer: BatchedTrainer) -> None:
    expected, single = alone(run, data)
    record = records[run.run_id]
    assert record.status == expected.status
    same = set(RunRecord.model_fields) - TIMED
    assert record.model_dump(include=same) == expected.model_dump(include=same)
    assert record.departure == pytest.approx(expected.departure, rel=1e-7, abs=1e-12)
    assert record.weight_sums == pytest.approx(expected.weight_sums, rel=1e-7, abs=1e-12)
    assert record.kappa == (expected.kappa and pytest.approx(expected.kappa, rel=1e-7, abs=1e-12))
    assert (record.items is None) == (expected.items is None)
    if record.items is not None and expected.items is not None:
        assert record.items.errors == pytest.approx(expected.items.errors, rel=2e-5, nan_ok=True)
        assert record.items.means == pytest.approx(expected.items.means, rel=2e-5, nan_ok=True)
        assert record.items.count == expected.items.count > 0
    for measured, wanted in ((record.metrics, expected.metrics), (record.last, expected.last)):
        assert measured.keys() == wanted.keys()
        for split in wanted:
            for task in wanted[split]:
                assert measured[split][task] == pytest.approx(wanted[split][task], rel=1e-9, nan_ok=True)
    for epoch, wanted_epoch in zip(record.epochs, expected.epochs, strict=True):
        assert epoch.train_loss == pytest.approx(wanted_epoch.train_loss, rel=1e-9, nan_ok=True)
        assert epoch.weights == pytest.approx(wanted_epoch.weights, rel=1e-7)
        for task, values in wanted_epoch.val.items():
            assert epoch.val[task] == pytest.approx(values, rel=1e-9, nan_ok=True)
        traces = {**epoch.traces, "kappa": wanted_epoch.traces.get("kappa")}
        assert epoch.traces.get("kappa", 0.0) == pytest.approx(wanted_epoch.traces.get("kappa", 0.0), rel=1e-7)
        survival = wanted_epoch.traces.get("survival", {})
        assert traces.pop("survival", {}) == pytest.approx(survival, rel=1e-7)
        assert traces == {"kappa": None, **{k: v for k, v in wanted_epoch.traces.items() if k != "survival"}}
    if expected.status == "finished":
        state = trainer.states[run.run_id]
        for name, value in single.chosen_state.items():
            assert (state[name] - value).abs().max() <= 1e-9, name


def search_of(budget: int, method_space: str = "{}", name: str = "") -> str:
    own = f", methods: {{{name}: {method_space}}}" if name else ""
    return (
        f"{{budget: {budget}, space: {{training.lr: {{low: 1e-3, high: 3e-2, scale: log}}, training.weight_decay: "
        f"[0, 1e-3], model.dropout: {{low: 0.05, high: 0.5}}, model.encoder.dropout: {{low: 0.05, high: 0.3}}, "
        f"model.encoder.input_dropout: {{low: 0.05, high: 0.3}}}}{own}}}"
    )


TRAINING = "{epochs: 2, batch_size: 32, dtype: float64}"


@pytest.mark.parametrize("method", ["stl", *BALANCERS])
def test_a_trial_batched_with_fifteen_ends_as_alone_where_tasks_are_side_by_side(
    method: str, experiment_file: File, digits: PreparedData
) -> None:
    training = "{epochs: 2, steps_per_epoch: 4, batch_size: 64, dtype: float64, schedule: exponential, decay_steps: 3}"
    trials_together = 16 if method in ("stl", "equal", "mgda") else 4
    own_space = ("{}", method) if method in ("mgda", "svd_reweighting", "go4align") else ()
    space = search_of(trials_together, *own_space)
    options = ", weights: [1, 2, 3, 4, 5, 5, 4, 3, 2, 1]" if method == "static" else ""
    path = experiment_file(
        datasets="[digits]", methods=f"[{{name: {method}{options}}}]", training=training, search=space
    )
    runs = batch_of(load_experiment(path), digits)
    assert len(runs) == trials_together
    records, trainer = together(runs, digits)
    assert trainer.session.layout.joined
    for run in (runs[0], runs[11] if trials_together == 16 else runs[-1]):
        assert_same(run, digits, records, trainer)


@pytest.mark.parametrize("method", ["equal", "mgda", "cagrad", "smooth", "famo"])
def test_steps_without_labels_where_tasks_are_side_by_side(
    method: str, experiment_file: File, digits: PreparedData
) -> None:
    """Two samples a step, of which most have no label of two tasks: weights and heads go by the others' number."""
    train = {
        stream: replace(samples, targets=dict(samples.targets)) for stream, samples in digits.splits["train"].items()
    }
    for samples in train.values():
        for task in ("digit3", "digit7"):
            if task in samples.targets:
                samples.targets[task] = samples.targets[task].where(torch.arange(len(samples)) % 5 == 0, MISSING_CLASS)
    data = replace(digits, splits={**digits.splits, "train": train})
    path = experiment_file(
        datasets="[digits]",
        methods=f"[{method}]",
        training="{epochs: 2, steps_per_epoch: 6, batch_size: 2, dtype: float64}",
        search=search_of(4, *(("{}", method) if method == "mgda" else ())),
    )
    runs = batch_of(load_experiment(path), data)
    records, trainer = together(runs, data)
    assert trainer.session.layout.joined
    for run in (runs[0], runs[-1]):
        assert_same(run, data, records, trainer)


@pytest.mark.parametrize("method", ["stl", "equal", "mgda", "tomato_ex"])
def test_tasks_of_different_lengths_share_passes_in_groups(
    method: str, experiment_file: File, digits: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass is free here: every length gets its own. Dropout, so that random numbers have to keep their places."""
    monkeypatch.setattr(planning, "_PASS", 0.0)
    architecture = "architecture: {name: tomato, topics: 2, top: 4}, " if method == "tomato_ex" else ""
    path = experiment_file(
        datasets="[digits]",
        methods=f"[{{name: {method}, {architecture}label: {method}}}]",
        training="{epochs: 2, batch_size: 512, dtype: float64, optimizer: sgd, lr: 0.1}",
        model="{encoder: {name: mlp, hidden: [8]}, dropout: 0.2}",
        search=search_of(4, "{}", method),
    )
    runs = batch_of(load_experiment(path), digits)
    records, trainer = together(runs, digits)
    assert trainer.session.layout.joined and len(trainer.session.layout.groups) > 2
    assert sorted(task for group in trainer.session.layout.groups for task in group) == list(
        range(len(digits.suite.tasks))
    )
    for run in runs[::3]:
        assert_same(run, digits, records, trainer)


@pytest.mark.parametrize("method", ["equal", "svd_reweighting"])
def test_noise_and_chosen_tasks_are_the_same_batched(method: str, experiment_file: File, digits: PreparedData) -> None:
    tasks = [task.name for task in digits.suite.tasks[:3]]
    path = experiment_file(
        datasets=f"[{{name: digits, tasks: [{', '.join(tasks)}], noise: {{share: 0.4, tasks: [{tasks[0]}]}}}}]",
        methods=f"[{method}]",
        training="{epochs: 2, steps_per_epoch: 5, batch_size: 64, dtype: float64}",
        search=search_of(4, "{}", method),
    )
    runs = batch_of(load_experiment(path), digits)
    records, trainer = together(runs, digits)
    assert_same(runs[0], digits, records, trainer)
    assert set(records[runs[0].run_id].metrics["test"]) == set(tasks)


@pytest.mark.parametrize(("shared", "batch"), [(False, 32), (True, 32), (True, 1)])
@pytest.mark.parametrize("method", ["stl", "uncertainty", "famo", "mgda", "pcgrad", "cagrad"])
def test_tasks_of_different_kinds_with_missing_labels_go_stream_by_stream(
    method: str, shared: bool, batch: int, experiment_file: File, uneven: Uneven
) -> None:
    """In batches of one sample a step lacks a task now and then."""
    data = uneven(shared=shared)
    datasets = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
    training = f"{{epochs: 2, batch_size: {batch}, dtype: float64, steps_per_epoch: {7 if batch == 1 else 'null'}}}"
    space = search_of(4, "{}", "mgda") if method == "mgda" else search_of(4)
    path = experiment_file(datasets=datasets, methods=f"[{method}]", training=training, search=space)
    runs = batch_of(load_experiment(path), data)
    records, trainer = together(runs, data)
    assert not trainer.session.layout.joined
    for run in runs[::3]:
        assert_same(run, data, records, trainer)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("batched, categories/")])
def test_encoders_of_categories(name: str) -> None:
    runs, data = trials_of(CASES[name]), in_memory(CASES[name])
    assert planning.obstacle(runs[0], data.suite) is None
    records, trainer = together(runs, data)
    for run in runs:
        assert_same(run, data, records, trainer)


@pytest.mark.parametrize("name", SHOPS)
def test_recommenders_on_categories(name: str) -> None:
    case = replace(CASES[f"architecture, categories/{name} mgda"], trials=RATES)
    runs, data = trials_of(case), in_memory(case)
    assert planning.obstacle(runs[0], data.suite) is None
    records, trainer = together(runs, data)
    assert_same(runs[1], data, records, trainer)


@pytest.mark.parametrize(
    ("architecture", "balancer"), [*((name, "mgda") for name in ARCHITECTURES), ("mmoe", "equal"), ("ple", "equal")]
)
def test_batchable_architectures(architecture: str, balancer: str, experiment_file: File, digits: PreparedData) -> None:
    label = f"{architecture}+{balancer}"
    path = experiment_file(
        datasets="[{name: digits, tasks: [digit0, digit1, digit2, digit3]}]",
        methods=f"[{{architecture: {architecture}, balancer: {balancer}, label: {label}}}]",
        training="{epochs: 1, steps_per_epoch: 4, batch_size: 64, dtype: float64}",
        search=search_of(4, "{}", label),
    )
    runs = batch_of(load_experiment(path), digits)
    records, trainer = together(runs, digits)
    through_others = ("ple", "stem", "aitm")  # whose tasks go through the others' experts or towers
    assert trainer.session.layout.joined == (architecture not in through_others)
    assert_same(runs[2], digits, records, trainer)


@pytest.mark.parametrize(
    ("dataset", "objective"),
    [
        ("uneven", "tomato_el"),
        ("uneven", "tomato_ex"),
        ("digits", "tomato_ex"),
        pytest.param("digits", "tomato_el", marks=pytest.mark.slow),
    ],
)
def test_proximal_steps_have_each_trials_strength(
    objective: str, dataset: str, experiment_file: File, digits: PreparedData, uneven: Uneven
) -> None:
    data = digits if dataset == "digits" else uneven()
    path = experiment_file(
        datasets=f"[{dataset}]",
        methods=f"[{{name: {objective}, architecture: {{name: tomato, topics: 3, top: 8}}}}]",
        training="{epochs: 2, steps_per_epoch: 5, batch_size: 32, dtype: float64, optimizer: sgd}",
        search="{budget: 5, space: {training.lr: {low: 0.05, high: 0.5, scale: log}}, methods: "
        f"{{{objective}: {{objective.strength: {{low: 0.01, high: 1, scale: log}}}}}}}}",
    )
    runs = batch_of(load_experiment(path), data)
    records, trainer = together(runs, data)
    norms = [records[run.run_id].epochs[-1].traces["topic_norms"] for run in runs]
    assert len(set(map(str, norms))) > 1, "the strengths make no difference"
    for run in runs[1::2]:
        assert_same(run, data, records, trainer)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("stl", "clip: 0.05"),
        ("stl", "selection: loss"),
        *(
            ("cagrad", settings)
            for settings in (
                "optimizer: sgd, momentum: 0.9",
                "optimizer: adamw",
                "clip: 0.05",
                "schedule: cosine",
                "steps_per_epoch: 3, evaluate_every: 2",
                "selection: last",
                "selection: loss",
            )
        ),
        *(
            pytest.param("stl", settings, marks=pytest.mark.slow)  # which look at no task: as above
            for settings in (
                "optimizer: sgd, momentum: 0.9",
                "optimizer: adamw",
                "schedule: cosine",
                "steps_per_epoch: 3, evaluate_every: 2",
                "selection: last",
            )
        ),
    ],
)
def test_training_settings(method: str, settings: str, experiment_file: File, uneven: Uneven) -> None:
    data = uneven()
    training = f"{{epochs: 4, batch_size: 16, dtype: float64, {settings}}}"
    runs = batch_of(
        load_experiment(experiment_file(methods=f"[{method}]", training=training, search=search_of(3))), data
    )
    records, trainer = together(runs, data)
    for run in runs[:2]:
        assert_same(run, data, records, trainer)


def test_trials_that_stop_early_leave_the_others(experiment_file: File, digits: PreparedData) -> None:
    training = "{epochs: 30, batch_size: 64, dtype: float64, patience: 1}"
    datasets = "[{name: digits, tasks: [digit0, digit1, digit2, digit3], metrics: [accuracy]}]"
    path = experiment_file(datasets=datasets, methods="[uncertainty]", training=training, search=search_of(6))
    runs = batch_of(load_experiment(path), digits)
    records, trainer = together(runs, digits)
    lengths = {len(record.epochs) for record in records.values()}
    assert len(lengths) > 1 and min(lengths) < 30
    for run in runs[::2]:
        assert_same(run, digits, records, trainer)


def test_nesterov_and_the_inverse_schedule_are_torchs(experiment_file: File, digits: PreparedData) -> None:
    training = (
        "{epochs: 2, steps_per_epoch: 4, batch_size: 64, dtype: float64, optimizer: nesterov, schedule: inverse, "
        "decay_steps: 3}"
    )
    search = "{budget: 3, space: {training.lr: {low: 1e-3, high: 3e-2}, training.momentum: {low: 0.2, high: 0.9}}}"
    runs = batch_of(
        load_experiment(experiment_file(datasets="[digits]", methods="[equal]", training=training, search=search)),
        digits,
    )
    records, trainer = together(runs, digits)
    for run in runs:
        assert_same(run, digits, records, trainer)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_trials_that_diverge_when_a_batch_is_looked_at_again_leave_the_others(
    optimizer: str, experiment_file: File, digits: PreparedData
) -> None:
    """With steps as long as these, the losses of the same batch are no numbers any more."""
    path = experiment_file(
        datasets="[digits]",
        methods="[famo]",
        training=f"{{epochs: 2, steps_per_epoch: 3, batch_size: 64, dtype: float64, optimizer: {optimizer}}}",
        search="{budget: 4, algorithm: grid, space: {training.lr: [0.01, 1e300]}, methods: {famo: {balancer.lr: [0.01, "
        "0.1]}}}",
    )
    runs = batch_of(load_experiment(path), digits)
    records, trainer = together(runs, digits)
    assert {record.steps for record in records.values() if record.status == "diverged"} == {0}
    assert sorted(record.status for record in records.values()) == ["diverged", "diverged", "finished", "finished"]
    for run in runs:
        assert_same(run, digits, records, trainer)


def test_balancers_are_told_the_precision_of_the_gradients(
    experiment_file: File, digits: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    plain = AlignedMTL.__call__

    def call(self: AlignedMTL, losses: Any, gramian: Any, state: Any) -> Any:
        seen.append(state["precision"])
        return plain(self, losses, gramian, state)

    monkeypatch.setattr(AlignedMTL, "__call__", call)
    path = experiment_file(
        datasets="[digits]", methods="[aligned_mtl]", training="{epochs: 1, steps_per_epoch: 2}", search=search_of(3)
    )
    together(batch_of(load_experiment(path), digits), digits)
    assert seen and all(torch.equal(p, torch.full((3,), torch.finfo(torch.float32).eps).double()) for p in seen)


def test_a_diverging_trial_leaves_the_others_alone(experiment_file: File, digits: PreparedData) -> None:
    path = experiment_file(
        datasets="[digits]",
        methods="[mgda]",
        training="{epochs: 2, steps_per_epoch: 4, batch_size: 64, dtype: float64, optimizer: sgd}",
        search="{budget: 4, space: {training.lr: [0.1, 1e200, 0.2, 1e190]}, methods: {mgda: {}}}",
    )
    runs = batch_of(load_experiment(path), digits)
    records, trainer = together(runs, digits)
    assert sorted(record.status for record in records.values()) == ["diverged", "diverged", "finished", "finished"]
    for run in runs:
        assert_same(run, digits, records, trainer)


def test_trials_with_different_seeds_keep_their_own_data_order_and_random_numbers(
    experiment_file: File, digits: PreparedData, uneven: Uneven
) -> None:
    for dataset, data in (("digits", digits), ("uneven", uneven())):
        lines = {"datasets": f"[{dataset}]", "methods": "[rlw]", "seeds": "[3, 4, 5]", "training": TRAINING}
        experiment = load_experiment(
            experiment_file(**lines, model="{encoder: {name: mlp, hidden: [8]}, dropout: 0.3}")
        )
        runs = list(experiment.runs(dict.fromkeys(experiment.data(), data.manifest.fingerprint)))
        records, trainer = together(runs, data)
        for run in runs:
            assert_same(run, data, records, trainer)


@pytest.mark.parametrize("shared", [False, True])
def test_samples_may_be_weighted(shared: bool, experiment_file: File, uneven: Uneven) -> None:
    data = uneven(shared=shared)
    weighted = {
        split: {name: replace(s, weights=torch.linspace(0.1, 2.0, len(s))) for name, s in streams.items()}
        for split, streams in data.splits.items()
    }
    data = replace(data, suite=replace(data.suite, weighted=True), splits=weighted)
    datasets = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
    path = experiment_file(datasets=datasets, methods="[mgda]", training=TRAINING, search=search_of(3, "{}", "mgda"))
    runs = batch_of(load_experiment(path), data)
    records, trainer = together(runs, data)
    for run in runs[::2]:
        assert_same(run, data, records, trainer)


@pytest.mark.parametrize(
    ("dataset", "metrics"),
    [
        ("digits", "[matthews, aupr, binary_f1, ndcg, accuracy]"),
        ("uneven", "{a: [matthews, aupr, ndcg], b: [aupr], c: [pearson, spearman, mse]}"),
    ],
)
def test_metrics_that_are_no_sums_end_as_alone(
    dataset: str, metrics: str, experiment_file: File, digits: PreparedData, uneven: Uneven
) -> None:
    data = digits if dataset == "digits" else uneven()
    path = experiment_file(
        datasets=f"[{{name: {dataset}, metrics: {metrics}}}]",
        methods="[equal]",
        training="{epochs: 2, batch_size: 256, dtype: float64}",
        search=search_of(3),
    )
    runs = batch_of(load_experiment(path), data)
    records, trainer = together(runs, data)
    for run in runs[::2]:
        assert_same(run, data, records, trainer)
    record = records[runs[0].run_id]
    assert set(record.main_metrics.values()) == (
        {"matthews"} if dataset == "digits" else {"matthews", "aupr", "pearson"}
    )
    assert record.lowest == {
        name: -1.0 for name in ("matthews", "pearson", "spearman") if name in record.higher_is_better
    }


@pytest.mark.parametrize(
    ("dataset", "method"),
    [
        *(("digits", method) for method in ("stl", "mgda", "single")),
        *(("uneven", method) for method in ("stl", "equal", "mgda", "tomato_ex", "cross_stitch", "ple")),
        *(
            pytest.param("digits", method, marks=pytest.mark.slow)  # as with uneven, of more tasks
            for method in ("equal", "tomato_ex", "cross_stitch", "ple")
        ),
    ],
)
def test_pooled_batches_that_lack_tasks(
    method: str, dataset: str, experiment_file: File, digits: PreparedData, uneven: Uneven
) -> None:
    """Weight decay moves what belongs to a task that a step lacks; dropout numbers have to keep their places."""
    data = digits if dataset == "digits" else uneven()
    architecture = "architecture: {name: tomato, topics: 2, top: 4}, " if method == "tomato_ex" else ""
    path = experiment_file(
        datasets=f"[{dataset}]",
        methods=f"[{{name: {method}, {architecture}label: {method}}}]",
        training="{batches: pooled, epochs: 2, batch_size: 5, steps_per_epoch: 6, dtype: float64, optimizer: sgd, "
        f"momentum: {0 if method == 'tomato_ex' else 0.9}}}",
        model="{encoder: {name: mlp, hidden: [8]}, dropout: 0.2}",
        search=search_of(3, "{}", method),
    )
    runs = batch_of(load_experiment(path), data)
    records, trainer = together(runs, data)
    for run in runs[::2]:
        assert_same(run, data, records, trainer)
