"""Ray Train: two workers end with the parameters of one, and a killed worker's run resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mtlscale.data.prepared import PreparedData
from mtlscale.execution import Job, Options, RunEnded
from mtlscale.execution.group import execute_groups
from mtlscale.spec import Experiment, ResourceSpec, Run
from mtlscale.training import Trainer

pytestmark = pytest.mark.ray

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"
SEVEN = ("stl", "equal", "uncertainty", "mgda", "pcgrad", "cagrad", "getmtl")


def test_two_ray_train_workers_end_with_the_parameters_of_one(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    """20 steps of each of the seven methods, float64, unequal task sizes and missing labels, one group for all."""
    jobs, data_of = [], {}
    for shared in (False, True):
        data = uneven(shared=shared)
        options = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
        training = "{epochs: 5, batch_size: 16, steps_per_epoch: 4, lr: 1e-2, dtype: float64, selection: last}"
        for method in SEVEN:
            run = run_of(small(methods=f"[{method}]", datasets=options, training=training), data)
            jobs.append(Job(run, data.folder, tmp_path / run.run_id))
            data_of[run.run_id] = data
    options_two = Options(ResourceSpec(workers=2), plugins=(str(PLUGIN),))
    events = execute_groups(jobs, 1, options_two, tmp_path / "train")
    records = {event.run_id: event.record for event in events if isinstance(event, RunEnded)}
    for job in jobs:
        record = records[job.run.run_id]
        assert record.status == "finished", record.error
        assert record.workers == 2
        one = Trainer(job.run, data_of[job.run.run_id])
        steps = one.train()
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                alone = stop.value
                break
        two = torch.load(job.folder / "model.pt", weights_only=True)
        assert alone.steps == 20
        for key, value in one.model.state_dict().items():
            error = (value - two[key]).norm() / value.norm()
            assert error <= 1e-9, f"{job.run.method}: {key} differs by {error:.1e}"
        for task, metrics in alone.metrics["test"].items():
            assert record.metrics["test"][task] == pytest.approx(metrics, rel=1e-6)
