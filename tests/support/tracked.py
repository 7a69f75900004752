"""Runs and records made up for MLflow."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from mtlscale.config import Experiment, Run
from mtlscale.records import Epoch, RunRecord

EPOCHS = 6


@functools.cache
def _empty_database() -> Path:
    """Have MLflow make its tables once for all tests of this process: a second of migrations each time."""
    from mtlscale.tracking.service import client_of

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    client_of(f"sqlite:///{folder / 'mlflow.db'}").search_experiments()
    return folder / "mlflow.db"


def give_database(folder: Path) -> str:
    """Lay an MLflow database without experiments of ours into a folder; return its URI."""
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{shutil.copy(_empty_database(), folder / 'mlflow.db')}"


def record_of(run: Run, status: str = "finished") -> RunRecord:
    """A finished run of two tasks."""
    metrics = {task: {"accuracy": 50.0 + run.seed} for task in ("a", "b")}
    return RunRecord.model_validate(
        {
            **run.model_dump(
                include={"run_id", "experiment", "dataset", "method", "seed", "spec", "fingerprint", "trial"}
            ),
            "run_id": run.run_id,
            "status": status,
            "higher_is_better": {"accuracy": True},
            "main_metrics": {"a": "accuracy", "b": "accuracy"},
            "metrics": {"val": metrics, "test": metrics},
            "epochs": [epoch_of(number) for number in range(1, EPOCHS + 1)],
            "seconds": 1.0,
        }
    )


def epoch_of(number: int) -> Epoch:
    return Epoch(epoch=number, train_loss={"a": 1 / number, "b": 2 / number}, seconds=0.1)


def runs_of(experiment: Experiment) -> list[Run]:
    return list(experiment.runs(dict.fromkeys(experiment.data(), "f")))
