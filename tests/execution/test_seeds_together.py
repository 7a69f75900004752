"""Seeds that are trained as one batched model: which jobs they make, and that a run depends on nothing but itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from listening import board_of

from mtlscale.config import Experiment, ResourceSpec, Run
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution import Batched, Datasets, Job, Options, Plan, execute_batched
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Home, RunRecord
from mtlscale.records.events import RunEnded
from mtlscale.records.reproduction import Reproduction

TOGETHER = "{epochs: 2, steps_per_epoch: 2, batch_size: 64, lr: 1e-2, seeds_together: true}"
Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]


def runs_on(experiment: Experiment, data: PreparedData) -> list[Run]:
    return list(experiment.runs(dict.fromkeys(experiment.data(), data.manifest.fingerprint)))


def test_seeds_of_a_method_are_one_job_where_its_parts_can_be_batched(
    small: Small, uneven: Uneven, tmp_path: Path
) -> None:
    experiment, data = small(methods="[equal, graddrop, mgda]", seeds="[0, 1, 2]", training=TOGETHER), uneven()
    runs = [run for run in runs_on(experiment, data) if run.method in ("equal", "graddrop", "mgda")]
    name = runs[0].data
    plan = Plan(experiment, board_of(*runs), Datasets({name: data.folder}, {name: data.manifest}))
    jobs = jobs_of(runs, plan, Home(tmp_path))
    assert sorted((len(job.jobs), job.jobs[0].run.method, type(job)) for job in jobs) == [
        (1, "graddrop", Job), (1, "graddrop", Job), (1, "graddrop", Job), (3, "equal", Batched), (3, "mgda", Batched),
    ]  # fmt: skip


def test_the_setting_is_part_of_a_run_only_where_it_is_set(small: Small, uneven: Uneven) -> None:
    data = uneven()
    plain, together = (runs_on(small(training=text), data)[0] for text in ("{epochs: 2}", TOGETHER))
    assert "seeds_together" not in plain.spec["training"] and together.spec["training"]["seeds_together"] is True
    assert Run.model_validate(together.model_dump()).training.seeds_together


def trained(runs: list[Run], data: PreparedData, home: Path) -> dict[str, RunRecord]:
    """The records that a worker makes of these runs."""
    jobs = [Job(run, data.folder, Home(home).run(run.run_id)) for run in runs]
    events = execute_batched(jobs, Options(ResourceSpec(), models=False))
    return {event.run_id: event.record for event in events if isinstance(event, RunEnded)}


def test_a_run_ends_the_same_with_all_seeds_and_by_itself(small: Small, tmp_path: Path) -> None:
    """Kernels of a batch of one give other last digits on wide shared inputs: such a run is trained beside itself."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(400, 103)), rng.integers(0, 2, (400, 3))])
    columns = [*(f"x{index}" for index in range(103)), "a", "b", "c"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "rows.csv", index=False)
    options = {"targets": dict.fromkeys("abc", "class")}
    data = load_prepared(prepare("table", options, tmp_path / "rows.csv", tmp_path / "home"))
    experiment = small(
        datasets=f"[{{name: table, options: {options}}}]",
        methods="[equal]",
        seeds="[0, 1, 2]",
        training=TOGETHER,
        model="{encoder: {name: mlp, hidden: [64]}}",
    )
    runs = [run for run in runs_on(experiment, data) if run.method == "equal"]
    everything = trained(runs, data, tmp_path / "all")
    for count, part in enumerate(([runs[1]], [runs[2], runs[0]])):
        for run_id, record in trained(part, data, tmp_path / f"part{count}").items():
            assert Reproduction(everything[run_id], record).same
