"""DSMTL's runs: what equals single-task learning, what stays frozen, what is safe; two workers, and runs cut off."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen.cases import Case
from frozen.compute import in_memory, run_of
from torch import Tensor

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.data import PreparedData, Samples, Workers
from mtlscale.records import RunRecord
from mtlscale.training import Trainer, finish
from mtlscale.training.engine import checkpoint
from mtlscale.training.engine.building import found_for

SGD = {"epochs": 3, "batch_size": 8, "lr": 1e-2, "dtype": "float64", "optimizer": "sgd", "momentum": 0.9}
MLP = {"name": "mlp", "hidden": [7, 5], "activation": "tanh", "dropout": 0.2}
RESNET = {"name": "resnet18", "width": 2, "stem": "small"}


def case(architecture: str, data: str = "uneven", **more: Any) -> Case:
    """A small run of an architecture; keywords are its options, but for those of `Case`."""
    training = {**SGD, "checkpoint_seconds": 0, **more.pop("training", {})}
    balancer = more.pop("balancer", "equal")
    ours = {key: more.pop(key) for key in ("encoder", "dropout", "options", "seed") if key in more}
    method = {"architecture": {"name": architecture, **more}, "balancer": balancer}
    return Case(data, method, training, **{"encoder": RESNET if data == "images" else MLP, "dropout": 0.2, **ours})


def trained(one: Case, workers: Workers | None = None, folder: Path | None = None) -> tuple[Trainer, RunRecord]:
    trainer = Trainer(run_of(one), in_memory(one), workers=workers, folder=folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    return trainer, record


def ended(one: Case, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Tensor]:
    """Parameters and buffers at the end, losses and test metrics on the way."""
    trainer, record = trained(one, workers, folder)
    losses = [list(epoch.train_loss.values()) for epoch in record.epochs]
    tests = [list(found.values()) for found in record.metrics["test"].values()]
    return {
        **{key: value.double() for key, value in trainer.chosen_state.items()},
        "losses": torch.tensor(losses, dtype=torch.float64),
        "tests": torch.tensor(list(itertools.chain(*tests)), dtype=torch.float64),
    }


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        known = ~value.isnan()
        assert torch.equal(known, ~right[key].isnan()), key
        assert (value - right[key])[known].norm() <= 1e-9 * value[known].norm().clamp(min=1e-12), key


def outcome(record: RunRecord) -> tuple[Any, ...]:
    """What a run ended with, whatever its method is called."""
    return record.metrics, record.last, record.chosen_epoch, record.chosen_epochs, record.parameters


# -- what it equals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["uneven", "images"])
@pytest.mark.parametrize(("alpha", "like"), [(0.0, "stl"), (1.0, "hps")])
def test_a_fixed_gate_at_either_end_trains_as_either_method_does(data: str, alpha: float, like: str) -> None:
    (_, one), (_, other) = trained(case("dsmtl_jl", data, alpha=alpha)), trained(case(like, data))
    assert outcome(one) == outcome(other)
    assert [epoch.train_loss for epoch in one.epochs] == [epoch.train_loss for epoch in other.epochs]


@pytest.mark.parametrize("data", ["uneven", "images"])
def test_individual_learning_begins_as_single_task_learning(data: str) -> None:
    (_, one), (stl, other) = trained(case("dsmtl_il", data)), trained(case("stl", data))
    private = [epoch for epoch in one.epochs if epoch.phase == "private"]
    assert [(e.train_loss, e.val) for e in private] == [(e.train_loss, e.val) for e in other.epochs]
    assert len(one.epochs) == 2 * len(private)
    assert one.parameters > other.parameters
    # The second phase starts from what that has chosen.
    known = stl.chosen_state
    trainer, _ = trained(case("dsmtl_il", data))
    for key, value in trainer.model.state_dict().items():
        if key.startswith("heads."):
            assert torch.equal(value, known[key])
        if key.startswith("private."):
            assert torch.equal(value, known[key.replace("private", "encoders", 1)])


# -- what stays frozen, and what is safe ---------------------------------------------------------------------------


def test_the_second_phase_moves_the_public_encoder_and_the_gates_alone() -> None:
    one = case("dsmtl_il", "images")
    trainer = Trainer(run_of(one), in_memory(one))
    steps = trainer.train()
    for _ in range(SGD["epochs"]):
        next(steps)
    epoch = next(steps)
    assert epoch.phase == "public" and set(epoch.traces["gates"]) == set(trainer.model.names)
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    for _ in steps:
        pass
    moved = {
        key.split(".")[0] for key, value in trainer.model.state_dict().items() if not torch.equal(value, before[key])
    }
    assert moved - {"kept"} == {"public", "logits"}
    after = {k: v for k, v in trainer.model.state_dict().items() if k.startswith("public") and "running" in k}
    assert after and all(not torch.equal(value, before[key]) for key, value in after.items())
    assert any("running" in key for key in before if key.startswith("private"))


def problem(seed: int) -> PreparedData:
    """Random inputs, shared by three tasks whose labels have little to do with each other."""
    generator = torch.Generator().manual_seed(seed)
    tasks = tuple(
        Task(name=name, loss=loss, outputs=1, metrics=(metric,))
        for name, loss, metric in (("a", "mse", "mse"), ("b", "bce", "error"), ("c", "mse", "mse"))
    )
    suite = TaskSuite(name="uneven", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(4,))
    weights = torch.randn(3, 4, generator=generator)

    def samples(rows: int) -> Samples:
        inputs = torch.randn(rows, 4, generator=generator)
        scores = inputs @ weights.T + 0.5 * torch.randn(rows, 3, generator=generator)
        scores[:, 2] *= 5.0  # a loud task
        targets = {"a": scores[:, 0].sin(), "b": (scores[:, 1] > 0).float(), "c": scores[:, 2]}
        return Samples(inputs, targets)

    return PreparedData(
        Path(), None, suite, {s: {"all": samples(n)} for s, n in (("train", 24), ("val", 12), ("test", 12))}
    )  # type: ignore[arg-type]


def losses_of(method: dict[str, Any], seed: int) -> dict[tuple[str, str], float]:
    """(split, task) -> loss at the end."""
    training = {**SGD, "epochs": 4, "lr": 0.03}
    encoder = {"name": "mlp", "hidden": [6]}
    one = Case("uneven", {"balancer": "equal", **method}, training, encoder=encoder, seed=seed)
    record = finish(Trainer(run_of(one), problem(seed)))
    assert record.status == "finished", record.error
    return {(split, task): found["loss"] for split in record.metrics for task, found in record.metrics[split].items()}


@pytest.mark.parametrize("fallback", ["both", "train", "val", "none"])
def test_individual_learning_is_safe_where_it_falls_back(fallback: str) -> None:
    """Never worse than single-task learning, for any task, on the splits that the fallback looks at."""
    better, same, worse = 0, 0, set()
    for seed in range(20 if fallback == "both" else 6):
        found = losses_of({"architecture": {"name": "dsmtl_il", "fallback": fallback}}, seed)
        for (split, task), alone in losses_of({"architecture": "stl"}, seed).items():
            better += found[split, task] < alone
            same += found[split, task] == alone
            worse |= {split} if found[split, task] > alone else set()
    assert better
    assert bool(same) == (fallback != "none")  # a closed gate is single-task learning to the last bit
    safe = {"both": {"train", "val"}, "none": set()}.get(fallback, {fallback})
    assert not safe & worse
    assert fallback != "none" or worse


@pytest.mark.parametrize("balancer", ["uncertainty", "dwa", "gls", "pcgrad", "cagrad", "mgda_ub"])
@pytest.mark.parametrize("architecture", ["dsmtl_jl", "dsmtl_il"])
def test_any_balancer_may_weight_the_tasks(architecture: str, balancer: str) -> None:
    _, record = trained(case(architecture, balancer=balancer, training={"epochs": 2}))
    gates = record.epochs[-1].traces["gates"]
    assert all(0.0 < gate < 1.0 and gate != 0.5 for gate in gates.values())


# -- architecture learning -----------------------------------------------------------------------------------------


def test_the_search_finds_points_and_weights_and_the_retraining_keeps_them() -> None:
    trainer, record = trained(case("dsmtl_al", search_epochs=2, arch_lr=0.3))
    search, retrain = record.epochs[1], record.epochs[-1]
    assert [epoch.phase for epoch in record.epochs] == ["search"] * 2 + ["retrain"] * 3
    assert set(search.traces) == {"branching", "task_weights"}
    assert all(len(row) == 3 and sum(row) == pytest.approx(1) for row in search.traces["branching"].values())
    weights = search.traces["task_weights"]
    assert sum(weights.values()) == pytest.approx(1) and len(set(weights.values())) == 3
    structure = record.structure
    # Of equal ones the later branch point; three points of two stages.
    likeliest = {t: max(range(3), key=lambda p: (row[p], p)) + 1 for t, row in search.traces["branching"].items()}
    assert structure["points"] == likeliest
    assert structure["task_weights"] == retrain.traces["task_weights"] == weights
    assert set(retrain.traces["gates"]) == {task for task, point in likeliest.items() if point < 3}
    scale = trainer.model.task_weights()
    assert not scale.requires_grad and scale.mean() == pytest.approx(1)


def choosing() -> Trainer:
    method = {"architecture": {"name": "dsmtl_al", "search_epochs": 4, "arch_lr": 0.1}}
    one = Case("uneven", method, {**SGD, "epochs": 1}, encoder={"name": "mlp", "hidden": [6]})
    return Trainer(run_of(one), problem(0))


def test_the_weights_learn_on_the_second_half_by_the_gradient_of_the_weighted_losses() -> None:
    trainer = choosing()
    choice, weights = trainer.session.updaters
    assert (choice.turn.share, weights.turn.share) == ("second", "first")
    assert trainer.session.main is weights
    model = trainer.model
    with torch.no_grad():
        model.importance.copy_(torch.tensor([0.2, -0.4, 0.7]))
    (indices, _), *_ = weights.steps(1)
    micros = trainer.batches.micros(indices, 1)

    def moved(updater: Any) -> set[str]:
        before = {key: p.detach().clone() for key, p in model.named_parameters()}
        trainer.session.step(updater, micros)
        return {key.split(".")[0] for key, p in model.named_parameters() if not torch.equal(p, before[key])}

    assert moved(weights) == {"shared", "private", "heads"}
    assert moved(choice) == {"alpha", "importance"}
    w = model.importance.detach().softmax(0)
    losses = trainer.session.step(choice, micros).losses  # [T], without their weights
    torch.testing.assert_close(model.importance.grad, w * (losses - (w * losses).sum()))


def test_searched_weights_run_to_the_task_of_the_smallest_loss() -> None:
    """The slip of the objective that the documents tell of."""
    record = finish(choosing())
    search = [epoch for epoch in record.epochs if epoch.phase == "search"]
    val = {task: found["loss"] for task, found in search[-1].val.items()}
    weights = search[-1].traces["task_weights"]
    assert max(val, key=val.__getitem__) == "c" == min(weights, key=weights.__getitem__)
    assert weights["c"] < search[0].traces["task_weights"]["c"] < 1 / 3


def test_equal_task_weights_leave_the_losses_alone() -> None:
    trainer, record = trained(case("dsmtl_al", task_weights="equal", search_epochs=1))
    assert trainer.model.task_weights() is None
    assert not any("task_weights" in epoch.traces for epoch in record.epochs)


def test_weights_that_are_equal_in_the_retraining_alone_leave_the_search_as_it_is() -> None:
    found = {}
    for choice in ("learned", "retrain"):
        trainer, record = trained(case("dsmtl_al", task_weights=choice, search_epochs=2, arch_lr=0.3))
        found[choice] = [epoch for epoch in record.epochs if epoch.phase == "search"]
        assert (trainer.model.task_weights() is None) == (choice == "retrain")
        assert ("task_weights" in record.structure) == (choice == "learned")
    assert [epoch.traces for epoch in found["learned"]] == [epoch.traces for epoch in found["retrain"]]


@pytest.mark.parametrize("data", ["uneven", "images"])
def test_branch_points_at_the_end_retrain_as_hard_sharing(data: str, tmp_path: Path) -> None:
    path = tmp_path / "found.pt"
    one = case("dsmtl_al", data, task_weights="equal", found=str(path))
    path.touch()
    run, names = run_of(one), [task.name for task in in_memory(one).suite.tasks]
    stages = 2 if data == "uneven" else 5
    content = {"found": {"points": dict.fromkeys(names, stages + 1)}, "of": found_for(run)}
    checkpoint.save(path, content)
    (_, found), (_, other) = trained(one), trained(case("hps", data))
    assert found.structure["points"] == dict.fromkeys(names, stages + 1)
    assert not found.epochs[-1].traces["gates"]
    assert outcome(found) == outcome(other)
    assert [epoch.train_loss for epoch in found.epochs] == [epoch.train_loss for epoch in other.epochs]
    with pytest.raises(UserError, match="the search that `found` names has no task weights; set task_weights: equal"):
        Trainer(run_of(case("dsmtl_al", data, found=str(path))), in_memory(one))


@pytest.mark.parametrize("balancer", ["uncertainty", "gls", "pcgrad", "cagrad"])
def test_any_balancer_may_retrain_what_one_search_has_found(balancer: str, tmp_path: Path) -> None:
    phases = tmp_path / "phases"
    for number, name in enumerate(("equal", balancer)):
        one = case("dsmtl_al", balancer=name, search_epochs=1, arch_lr=0.3, training={"epochs": 1})
        record = finish(Trainer(run_of(one), in_memory(one), phases=phases))
        assert record.status == "finished" and record.phases[0].reused == bool(number)


# -- workers, and runs that are cut off ----------------------------------------------------------------------------
