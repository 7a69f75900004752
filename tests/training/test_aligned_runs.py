"""Covariance alignment as a run: it leaves how alike embeddings are, of the parameters it chose, for any workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frozen.cases import Case
from frozen.compute import in_memory, run_of
from torch import Tensor

from mtlscale.data import Workers, labelled
from mtlscale.solvers import covariance_similarities
from mtlscale.training import Trainer, finish

SGD = {"epochs": 3, "batch_size": 8, "lr": 5e-2, "dtype": "float64", "optimizer": "sgd", "checkpoint_seconds": 0}


def case(**options: Any) -> Case:
    method = {"architecture": {"name": "aligned", **options}, "balancer": "equal"}
    return Case("uneven", method, SGD, encoder={"name": "mlp", "hidden": [5]})


def left(one: Case, workers: Workers | None = None) -> dict[str, Tensor]:
    trainer = Trainer(run_of(one), in_memory(one), workers=workers)
    record = finish(trainer)
    assert record.status == "finished", record.error
    found = record.structure["covariance_similarity"]
    turns = [trainer.chosen_state[f"alignments.{place}"] for place in range(len(record.structure["tasks"]))]
    sizes, rows = trainer.batches.sizes, []
    for task in trainer.suite.tasks:
        samples = trainer.batches.take("train", task.name, torch.arange(sizes[task.name]))
        rows.append(samples.inputs.flatten(1)[labelled(task, samples.targets[task.name])])
    scores = {when: torch.tensor(rows, dtype=torch.float64) for when, rows in found.items()}
    return {
        **scores,
        "expected before": covariance_similarities(rows),
        "expected after": covariance_similarities([of @ turn for of, turn in zip(rows, turns, strict=True)]),
    }


@pytest.mark.parametrize("options", [{}, {"together": True}, {"source_task": "b", "freeze_shared": False}])
def test_a_run_leaves_the_scores_of_the_parameters_it_chose(options: dict[str, Any]) -> None:
    found = left(case(**options))
    torch.testing.assert_close(found["before"], found["expected before"], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(found["after"], found["expected after"], rtol=1e-7, atol=1e-9)
    assert (found["after"] - found["before"]).abs().max() > 1e-4


def test_without_turning_before_is_after() -> None:
    found = left(case(turning=False))
    assert torch.equal(found["before"], found["after"])


@pytest.mark.parametrize("balancer", ["equal", "mgda"])
def test_the_shared_module_learns_from_one_task_alone(balancer: str) -> None:
    """Under every balancer, with one input for all tasks: what the others' labels are makes no difference to it."""
    method = {"architecture": {"name": "aligned", "source_task": "b", "align_epochs": 2}, "balancer": balancer}
    encoder = {"name": "mlp", "hidden": [5]}
    one = Case("uneven", method, {**SGD, "optimizer": "adam"}, encoder=encoder, options={"shared": True})
    trainer = Trainer(run_of(one), in_memory(one))
    record = finish(trainer)
    assert record.status == "finished", record.error
    assert [epoch.phase for epoch in record.epochs].count("alignment") == 2
