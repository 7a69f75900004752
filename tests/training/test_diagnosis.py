"""A diagnosis of planted tasks against what was planted, and its matrices against direct computation."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

from mtlscale.config import MISSING_CLASS, Task, TaskSuite, UserError, build, load_plugin
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.solvers import covariance_similarities, covariance_similarity
from mtlscale.training import Trainer
from mtlscale.training.diagnosis.advice import across, groups_of, merges, sentence, verdict
from mtlscale.training.diagnosis.diagnosis import NETWORKS, PARTS, cosines, diagnose, networks_of, run_of
from mtlscale.training.diagnosis.labels import correlations

PLUGIN = Path(__file__).parents[1] / "plugins" / "planted.py"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., PreparedData]:
    load_plugin(PLUGIN)
    home = tmp_path_factory.mktemp("home")
    return lambda **options: load_prepared(prepare("planted", options, None, home))


def test_cosines_are_those_of_the_gradients(planted: Callable[..., PreparedData]) -> None:
    data = planted()
    trainer = Trainer(run_of(data, build("encoders", "mlp", {"hidden": [5]}, ""), "planted", 1, 16, 1e-3, 0), data)
    model, main = trainer.model, trainer.session.main
    heads = [model.task_parameters(task.name) for task in data.suite.tasks]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    [(indices, _)] = main.steps(1)
    micros = trainer.batches.micros(indices, 1)

    def found() -> torch.Tensor:
        return cosines(model, main.update.partition, main.source, micros, trainer.device)

    table, batch, rows = found(), micros[0][0], []
    outputs = model(batch).predictions
    for name, target in batch.samples.targets.items():
        loss = mse_loss(outputs[name].squeeze(-1), target.squeeze(-1))
        gradients = torch.autograd.grad(loss, list(model.shared_parameters()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in gradients]).double())
    units = torch.stack([row / row.norm() for row in rows])
    torch.testing.assert_close(table, units @ units.T, rtol=0, atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():  # heads alike: what is left is the labels
        for head in heads[1:]:
            for own, first in zip(head, heads[0], strict=True):
                own.copy_(first)
    table = found()
    assert float(table[0, 1]) > 0.999 and float(table[0, 2]) < -0.3


def test_a_diagnosis_of_planted_tasks(planted: Callable[..., PreparedData]) -> None:
    told: list[tuple[int, int]] = []
    found = diagnose(planted(), lr=1e-2, tell=lambda done, total: told.append((done, total)))
    labels = np.array(found.matrices["labels"].values)
    np.testing.assert_allclose(labels, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]], atol=1e-6)
    assert "same labelled samples" in found.left_out["covariance"] and "covariance" not in found.matrices
    assert list(found.matrices) == ["labels", "conflict_before", "conflict_after", "affinity"]
    for name in ("conflict_before", "conflict_after"):
        table = np.array(found.matrices[name].values)
        np.testing.assert_allclose(table, table.T, atol=1e-12)
        np.testing.assert_allclose(table.diagonal(), 1)
    affinity = np.array(found.matrices["affinity"].values)
    assert (affinity.diagonal() > 0).all()
    np.testing.assert_allclose(np.array(found.similarity, dtype=float)[0, 1], (affinity[0, 1] + affinity[1, 0]) / 2)
    total = 3 * PARTS * NETWORKS
    assert told == [(done, total) for done in range(1, total + 1)]
    content = json.loads(found.to_json())
    assert content["schema"] == 1 and content["tasks"] == ["a", "b", "c"] and content["summary"] == "affinity"
    assert sorted(name for group in content["groups"] for name in group) == ["a", "b", "c"]
    assert len(content["merges"]) == 2 and content["merges"][-1][3] == 3
    again = diagnose(planted(), lr=1e-2)
    assert again.matrices == found.matrices and again.sentence == found.sentence


def test_many_tasks_are_measured_on_one_network(planted: Callable[..., PreparedData]) -> None:
    suite = planted().suite
    many = tuple(dataclasses.replace(suite.tasks[0], name=f"t{number}") for number in range(17))
    assert networks_of(suite) == NETWORKS and networks_of(dataclasses.replace(suite, tasks=many)) == 1


def test_tasks_with_inputs_of_their_own(uneven: Callable[..., PreparedData]) -> None:
    data = uneven()
    found = diagnose(data)
    train = data.splits["train"]
    for (i, first), (j, second) in [((0, "a"), (1, "b")), ((2, "c"), (2, "c"))]:
        expected = covariance_similarity(train[first].inputs, train[second].inputs)
        assert found.matrices["covariance"].values[i][j] == pytest.approx(expected, rel=1e-6)
    assert "no sample has two labels" in found.left_out["labels"] and "labels" not in found.matrices
    shared = diagnose(uneven(shared=True))  # every fifth label is missing, of other samples for a and c
    assert {"covariance", "labels"} <= set(shared.matrices) and not shared.left_out
    assert shared.matrices["labels"].values[1][2] is None  # three classes and a number


def test_mistakes_are_said(planted: Callable[..., PreparedData]) -> None:
    with pytest.raises(UserError, match="one task: nothing to compare"):
        diagnose(planted(tasks=1))
    with pytest.raises(UserError, match="give it a hidden layer"):
        diagnose(planted(), build("encoders", "mlp", {"hidden": []}, ""))


def test_all_scores_at_once_are_those_of_the_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(20 + 5 * task, 6, generator=generator) for task in range(3)]
    table = covariance_similarities([*inputs, torch.zeros(4, 6)])
    for i in range(3):
        for j in range(3):
            assert float(table[i, j]) == pytest.approx(covariance_similarity(inputs[i], inputs[j]), rel=1e-12)
    assert bool(table[3].isnan().all())


def test_correlations_of_labels() -> None:
    tasks = (
        Task(name="x", loss="cross_entropy", outputs=2, metrics=("accuracy",)),
        Task(name="y", loss="bce", outputs=1, metrics=("accuracy",)),
        Task(name="z", loss="cross_entropy", outputs=3, metrics=("accuracy",)),
        Task(name="v", loss="mse", outputs=1, metrics=("mse",)),
        Task(name="map", loss="mse", outputs=1, metrics=("mse",)),
    )
    suite = TaskSuite(name="five", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(1,))
    x = torch.tensor([0, 1, 1, 0, 1, MISSING_CLASS])
    y = torch.tensor([0.0, 1.0, 0.0, 0.0, math.nan, 1.0])[:, None]
    z = torch.tensor([0, 1, 2, 0, 1, 2])
    v = torch.tensor([0.5, 1.5, 1.0, 0.0, 2.0, 7.0])
    targets = {"x": x, "y": y, "z": z, "v": v, "map": torch.zeros(6, 1, 2, 2)}
    table = correlations(suite, targets)
    both = slice(0, 4)  # labels of x and y
    assert float(table[0, 1]) == pytest.approx(np.corrcoef(x[both], y[both, 0])[0, 1])
    assert float(table[0, 3]) == pytest.approx(np.corrcoef(x[:5], v[:5])[0, 1])
    assert float(table[0, 2]) == pytest.approx(1.0)  # z says what x is
    counts = np.array([[2, 0], [0, 1], [1, 1]])  # z against y, without the fifth
    expected = np.outer(counts.sum(1), counts.sum(0)) / 5
    assert float(table[1, 2]) == pytest.approx(math.sqrt(((counts - expected) ** 2 / expected).sum() / 5))
    assert bool(table[2, 3].isnan()) and bool(table[4].isnan().all())


def planted_tables(effects: list[list[float]], noise: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.tensor(effects) + noise * torch.randn(8, len(effects), len(effects), generator=generator).double()


def test_groups_join_what_helps_on_average() -> None:
    table = torch.tensor([[9, 3, -1, -1], [3, 9, -2, -1], [-1, -2, 9, 1], [-1, -1, 1, 9.0]])
    found = merges(table)
    assert [round(similarity, 9) for _, _, similarity, _ in found] == [3, 1, -1.25]
    assert groups_of(found) == [[0, 1], [2, 3]]
    assert groups_of(merges(-torch.ones(3, 3))) == [[0], [1], [2]]
    assert groups_of(merges(torch.ones(3, 3))) == [[0, 1, 2]]


def test_the_sentence_says_what_is_beyond_the_noise() -> None:
    effects = [[1.0, 0.5, -0.2], [0.5, 1.0, -0.2], [-0.2, -0.2, 1.0]]
    clear = sentence(["a", "b", "c"], planted_tables(effects, 0.01))
    assert clear.startswith("a and b help each other most (+50% of what a step of their own does); ")
    assert clear.endswith("; c is best alone.")
    assert sentence(["a", "b", "c"], planted_tables(effects, 3.0)).startswith("Nothing stands out")
    two = [row[:2] for row in effects[:2]]
    assert sentence(["a", "b"], planted_tables(two, 0.01)).startswith("a and b help each other (+")
    assert "share everything" in sentence(["a", "b", "c"], planted_tables([[0.3] * 3] * 3, 0.01))
    assert sentence(["a", "b", "c"], planted_tables([[-0.3] * 3] * 3, 0.01)).endswith("each task is best alone.")
    assert "Nothing can be said" in sentence(["a", "b"], torch.full((8, 2, 2), math.nan))


def test_groups_are_judged_by_measurements_they_were_not_chosen_by() -> None:
    effects = [[1.0, 0.5, -0.3, -0.3], [0.5, 1.0, -0.3, -0.3], [-0.3, -0.3, 1.0, 0.5], [-0.3, -0.3, 0.5, 1.0]]
    held_out = across(planted_tables(effects, 0.05))
    assert held_out is not None and float(held_out.mean) == pytest.approx(-0.3, abs=0.05)
    assert verdict(2, held_out, "networks").startswith("The groups hold up")
    chance = planted_tables([[0.0] * 4] * 4, 1.0)
    assert len(groups_of(merges((chance + chance.transpose(1, 2)).mean(0)))) > 1
    assert "sharing everything is not contradicted" in verdict(2, across(chance), "batches")
    assert across(planted_tables([[0.5] * 4] * 4, 0.05)) is None
    assert "nothing here speaks against sharing everything" in verdict(1, None, "batches")


def test_chance_seldom_looks_like_groups() -> None:
    generator, held = torch.Generator().manual_seed(1), 0
    for _ in range(200):
        found = across(torch.randn(8, 6, 6, generator=generator, dtype=torch.float64))
        held += found is not None and float(found.high) < 0
    assert held <= 16  # 5 of 200 are expected of a level of 5 % on both sides
