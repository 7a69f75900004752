"""TAG as a run: its affinities are those of the steps, and survive what cuts a run off; groups can be found anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mtlscale.config import SPLITS, Run, Task, TaskSuite
from mtlscale.data import PreparedData, Samples
from mtlscale.records import RunRecord
from mtlscale.solvers import best_groups
from mtlscale.training import Trainer, finish

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"
TRAINING = "{epochs: 2, batch_size: 8, lr: 0.05, dtype: float64, optimizer: sgd, checkpoint_seconds: 0}"

Job = tuple[Run, PreparedData]
Make = Callable[..., Job]


@pytest.fixture
def make(small: Callable[..., Any], run_of: Callable[..., Run], uneven: Callable[..., PreparedData]) -> Make:
    def job(options: str = "every: 3, search_epochs: 2", shared: bool = True, **lines: str) -> Job:
        data = uneven(shared=shared)
        given = {
            "plugins": f"[{PLUGIN}]",
            "datasets": f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]",
            "methods": f"[{{name: tag, {options}}}]",
            "training": TRAINING,
            "model": "{encoder: {name: mlp, hidden: [5, 4]}}",
        }
        return run_of(small(**{**given, **lines}), data), data

    return job


def test_the_groups_are_the_best_of_the_affinities_measured(make: Make) -> None:
    record: RunRecord = finish(Trainer(*make()))
    assert [epoch.phase for epoch in record.epochs] == ["affinity"] * 2 + ["retrain"] * 2
    first, second = (epoch.traces["affinity"] for epoch in record.epochs[:2])
    assert first != second and all(0 < second[task][task] < 1 for task in range(3))  # a task's own step helps it
    groups = best_groups(second, 2)
    [nodes] = {tuple(nodes) for nodes in record.structure["tree"]}
    assert [[task for task in range(3) if nodes[task] == node] for node in range(max(nodes) + 1)] == groups


def test_affinities_once_found_serve_any_number_of_groups(make: Make, tmp_path: Path) -> None:
    first: RunRecord = finish(Trainer(*make(), folder=tmp_path / "run"))
    [file] = (tmp_path / "run" / "phases").glob("*.pt")
    record: RunRecord = finish(Trainer(*make(f"groups: 3, found: {file}")))
    assert [epoch.phase for epoch in record.epochs] == ["", ""]
    groups = best_groups(first.epochs[1].traces["affinity"], 3)
    assert len(set(record.structure["tree"][0])) == len(groups)


def test_tasks_of_the_same_labels_are_grouped(make: Make) -> None:
    """Four regressions, a and c of one function of the inputs, b and d of another."""
    generator, splits = torch.Generator().manual_seed(0), {}
    for split in SPLITS:
        inputs = torch.randn(96, 6, generator=generator, dtype=torch.float64)
        functions = (inputs[:, :2].sum(1).tanh(), inputs[:, 3:5].sum(1).cos())
        noise = 0.1 * torch.randn(4, 96, generator=generator, dtype=torch.float64)
        targets = {name: (functions[place % 2] + noise[place])[:, None] for place, name in enumerate("abcd")}
        splits[split] = {"all": Samples(inputs, targets)}
    tasks = tuple(Task(name=name, loss="mse", outputs=1, metrics=("mse",)) for name in "abcd")
    suite = TaskSuite(name="pairs", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(6,))
    run, _ = make("every: 2, search_epochs: 6", model="{encoder: {name: mlp, hidden: [16]}}")
    record = finish(Trainer(run, PreparedData(Path(), None, suite, splits)))  # type: ignore[arg-type]
    assert record.structure["tree"][0] == [0, 1, 0, 1], record.epochs[5].traces["affinity"]
