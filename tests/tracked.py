"""Runs and records made up for MLflow."""

from __future__ import annotations

from mtlscale.config import Experiment, Run
from mtlscale.records import Epoch, RunRecord

EPOCHS = 30


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
