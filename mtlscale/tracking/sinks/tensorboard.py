"""The TensorBoard sink: event files below the home folder, one folder per run."""

from __future__ import annotations

import re
from typing import Any

from mtlscale.config import Run
from mtlscale.records import RunRecord
from mtlscale.tracking.fields import row_name, run_params
from mtlscale.tracking.sinks.scalar_sink import ScalarSink
from mtlscale.tracking.values import Metric


class TensorBoard(ScalarSink):
    """Writer of `<home>/tensorboard/EXPERIMENT/ROW/RUN`, which `tensorboard --logdir` shows."""

    name = "tensorboard"
    package = "tensorboardX"  # writes without TensorFlow and without torch

    def begin(self, run: Run, step: int) -> Any:
        from tensorboardX import SummaryWriter

        row = "trials" if run.trial else re.sub(r"[^\w.+-]+", "_", row_name(run.dataset, run.method))
        seed = "" if run.trial else f"seed{run.seed}-"
        folder = self._home.root / "tensorboard" / self._experiment.name / row / f"{seed}{run.run_id}"
        # Epochs that a cut-off driver wrote and that are repeated now are hidden.
        purged = step if folder.exists() else None
        writer = SummaryWriter(str(folder), purge_step=purged, filename_suffix=f".{step:06}")
        settings = "\n".join(f"    {name}: {value}" for name, value in sorted(run_params(run).items()))
        writer.add_text("settings", settings)
        return writer

    def log(self, handle: Any, metrics: list[Metric]) -> None:
        for key, value, step in metrics:
            handle.add_scalar(key.replace(".", "/", 1), value, step)  # one section per group of metrics
        handle.flush()

    def end(self, handle: Any, record: RunRecord | None) -> None:
        if record is not None:
            handle.add_text("status", record.status if not record.error else f"{record.status}: {record.error}")
        handle.close()
