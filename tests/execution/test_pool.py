"""The pool of workers where there is less room than was thought, as after a lost node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.data.prepared import PreparedData
from mtlscale.execution.pool import Job, Options, execute_pool
from mtlscale.experiment import Experiment, ResourceSpec, Run

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"

pytestmark = pytest.mark.ray


@pytest.mark.timeout(180)
def test_a_run_whose_worker_finds_no_place_goes_to_an_idle_one(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    """Four CPUs, three workers of two: the third waits for ever, and what it was to do must not."""
    data = uneven(shared=False)
    jobs = []
    for method in ("equal", "stl", "mgda"):
        run = run_of(small(methods=f"[{method}]", training="{epochs: 2, batch_size: 16}"), data)
        jobs.append(Job(run, data.folder, tmp_path / run.run_id))
    options = Options(ResourceSpec(cpus_per_worker=2), plugins=(str(PLUGIN),))
    records = [event[2] for event in execute_pool(jobs, 3, options) if event[0] == "record"]
    assert sorted(record.method for record in records) == ["equal", "mgda", "stl"]
    assert {record.status for record in records} == {"finished"}
