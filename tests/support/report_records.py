"""Records as runs leave them, built from a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from mtlscale.records import Epoch, RunRecord
from mtlscale.records.record import weights_of_epochs
from mtlscale.report.charts.chart import Chart
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.report_files import pictures
from mtlscale.report.sections.registry import sections

DIRECTIONS = {"accuracy": True, "cross_entropy": False, "error": False, "mIoU": True, "abs_err": False, "loss": False}


def page(records: Sequence[RunRecord], board: Leaderboard, name: str) -> str:
    """The page of the records."""
    return board.report(records, title=name, overall=board.overall()).text("html")


def pictures_of(records: Sequence[RunRecord], board: Leaderboard) -> Iterator[tuple[str, list[Chart]]]:
    """The pictures of the records' report by the names of their files."""
    return pictures(sections(board.report(records, overall=board.overall()), "report"))


@pytest.fixture(scope="session")
def record() -> Callable[..., RunRecord]:
    """record("mgda", 0, {"a": {"accuracy": 91.0}}): a run whose first metric of each task is the main one."""

    def make(method: str, seed: int, test: Mapping[str, Mapping[str, float]], **fields: Any) -> RunRecord:
        metrics = {task: dict(values) for task, values in test.items()}
        epochs = [
            Epoch(
                epoch=number,
                train_loss={task: (index + 1) / number for index, task in enumerate(metrics)},
                val={
                    task: {metric: value - 1 / number for metric, value in of.items()} for task, of in metrics.items()
                },
                seconds=0.1,
                weights={task: 0.5 + (index - 0.5) * seed / number for index, task in enumerate(metrics)},
                traces={"R_mean": 1 - 1 / number},
            )
            for number in (1, 2, 3)
        ]
        defaults: dict[str, Any] = {
            "run_id": f"{method}-{seed}",
            "experiment": "test",
            "dataset": "digits",
            "status": "finished",
            "spec": {"architecture": {"name": "hps"}, "balancer": {"name": method}, "seed": seed},
            "fingerprint": "f00d",
            "higher_is_better": DIRECTIONS,
            "main_metrics": {task: next(iter(values)) for task, values in metrics.items()},
            "metrics": {"test": metrics},
            "last": {"test": metrics},
            "chosen_epoch": 3,
            "epochs": epochs,
            "seconds": 2.0,
            "train_seconds": 1.0,
            "steps": 100,
            "samples": 6400,
            "peak_memory_mb": 300.0,
            "parameters": 1000,
            "shared_parameters": 900,
            "versions": {"torch": "2.13.0"},
            "revision": "abc1234",
            "hardware": "2 CPUs",
        }
        given = defaults | fields
        measured = weights_of_epochs([Epoch.model_validate(epoch) for epoch in given["epochs"]])
        return RunRecord(method=method, seed=seed, **{**measured, **given})

    return make


@pytest.fixture(scope="session")
def without_epochs() -> Callable[[Iterable[RunRecord]], list[RunRecord]]:
    """Leave out the epochs of runs whose report is written: each picture of them takes time, other tests draw it."""
    return lambda runs: [run.model_copy(update={"epochs": []}) for run in runs]


@pytest.fixture(scope="session")
def board_records(record: Callable[..., RunRecord]) -> list[RunRecord]:
    """Four methods on two tasks, three seeds; one run diverged, one failed."""
    accuracy = {
        "stl": [(90.0, 80.0), (91.0, 82.0), (92.0, 81.0)],
        "equal": [(92.0, 81.0), (93.0, 82.5), (93.5, 82.0)],
        "getmtl": [(94.0, 84.0), (95.0, 85.6), (95.6, 85.0)],
        "mgda": [(89.0, 79.0), (90.0, 80.0), (0.0, 0.0)],
    }
    records = [
        record(method, seed, {"a": {"accuracy": a, "loss": 1.0}, "b": {"accuracy": b, "loss": 1.0}})
        for method, seeds in accuracy.items()
        for seed, (a, b) in enumerate(seeds)
    ]
    records[-1] = record(
        "mgda", 2, {"a": {"accuracy": 0.0}}, metrics={}, last={}, status="diverged", error="loss is NaN"
    )
    records.append(record("mgda", 3, {}, main_metrics={}, status="failed", error="worker died"))
    return records
