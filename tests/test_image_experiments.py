"""The shipped experiments on images: their methods fit their networks, the small forms follow the full ones."""

from __future__ import annotations

import pytest
import torch

from mtlscale.data import Batch, Samples
from mtlscale.spec import SHIPPED, Task, TaskSuite, load_experiment
from mtlscale.training import build_model

NINE = tuple(Task(name=f"attribute {i}", loss="bce", outputs=1, metrics=("error",)) for i in range(9))
MAPS = (
    Task(name="segmentation", loss="cross_entropy", outputs=13, metrics=("miou",)),
    Task(name="depth", loss="l1", outputs=1, metrics=("abs_err",)),
    Task(name="normals_estimated", loss="cosine", outputs=3, metrics=("angle_mean",)),
)


@pytest.mark.parametrize(
    ("name", "tasks", "size"), [("celeba9", NINE, (64, 64)), ("nyuv2", MAPS, (72, 96))], ids=["celeba9", "nyuv2"]
)
def test_every_method_of_the_small_form_predicts_what_the_tasks_want(
    name: str, tasks: tuple[Task, ...], size: tuple[int, int]
) -> None:
    experiment = load_experiment(SHIPPED / f"{name}_cpu.yaml")
    suite = TaskSuite(name=name, tasks=tasks, inputs="shared", input_kind="image", input_shape=(3, *size))
    inputs = torch.zeros(1, 3, *size, dtype=torch.uint8)
    batch = Batch("all", Samples(inputs, {task.name: torch.zeros(1) for task in tasks}), 1)
    for run in experiment.runs({experiment.datasets[0].label: "f00d"}):
        model, _ = build_model(run, suite)
        model.eval()
        predictions = model(batch).predictions
        for task in tasks:
            expected = (1, 1) if name == "celeba9" else (1, task.outputs, *size)
            assert predictions[task.name].shape == expected, run.method


@pytest.mark.parametrize("name", ["celeba9", "nyuv2"])
def test_the_small_form_is_the_full_one_reduced(name: str) -> None:
    small, full = (load_experiment(SHIPPED / f"{name}_{form}.yaml") for form in ("cpu", "full"))
    assert small.datasets[0].name == full.datasets[0].name
    assert {method.label for method in small.methods} <= {method.label for method in full.methods}
    assert len(small.seeds) == 1 and len(full.seeds) == 3
    assert small.resources.gpus_per_worker == 0 and full.resources.gpus_per_worker == 1
    full.validate_components()
