"""Reports on the runs to Ray Train, so that its results, its dashboard and its callbacks show them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from mtlscale.config import Run
from mtlscale.execution import temp_files
from mtlscale.records import Metrics
from mtlscale.records.events import EpochEnded, RunEnded, RunEvent

# Between two epochs that are reported. Every worker has to make every report, and Ray's controller takes one per health
# check.
EVERY_SECONDS = 1.0


class Reports:
    """Reporter to Ray Train, which makes the same reports on every worker of a group.

    Each worker passes it the same events in the same order.
    """

    def __init__(self) -> None:
        self._last = float("-inf")

    def take(self, run: Run, event: RunEvent) -> None:
        """Report an epoch, if one is due, or a run's end with its record as a checkpoint.

        Without the checkpoint Ray keeps no metrics. Nothing waits for Ray's controller, or for storage.
        """
        if isinstance(event, EpochEnded) and self._due():
            self._report({**_labels(run), **_epoch(event)})
        elif isinstance(event, RunEnded):
            record = event.record
            content = {"status": record.status, "epochs": len(record.epochs), "seconds": record.seconds}
            metrics = {**_flat(record.metrics.get("val", {}), "val"), **_flat(record.metrics.get("test", {}), "test")}
            self._report({**_labels(run), **content, **metrics}, record.model_dump_json())

    def _due(self) -> bool:
        """Return whether a report is due by the first worker's clock: workers that disagreed would wait for ever."""
        import torch

        now = time.monotonic()
        box = [now - self._last >= EVERY_SECONDS]
        torch.distributed.broadcast_object_list(box)
        if box[0]:
            self._last = now
        return box[0]

    def _report(self, metrics: dict[str, Any], record: str | None = None) -> None:
        import ray.train
        import torch

        checkpoint = None
        if record is not None and torch.distributed.get_rank() == 0:
            folder = tempfile.mkdtemp(prefix=temp_files.prefix("report"))
            Path(folder, "record.json").write_text(record, encoding="utf-8")
            checkpoint = ray.train.Checkpoint.from_directory(folder)

        ray.train.report(
            metrics,
            checkpoint,
            checkpoint_upload_mode=ray.train.CheckpointUploadMode.ASYNC,
            delete_local_checkpoint_after_upload=True,
        )


def _labels(run: Run) -> dict[str, Any]:
    return {"run_id": run.run_id, "dataset": run.dataset, "method": run.method, "seed": run.seed}


def _epoch(event: EpochEnded) -> dict[str, Any]:
    epoch = event.epoch
    losses = {f"train/{task}/loss": loss for task, loss in epoch.train_loss.items()}
    return {"phase": epoch.phase, "epoch": epoch.epoch, **losses, **_flat(epoch.val, "val")}


def _flat(metrics: Metrics, split: str) -> dict[str, float]:
    return {
        f"{split}/{task}/{name}": value
        for task, task_metrics in metrics.items()
        for name, value in task_metrics.items()
    }
