"""The Weights & Biases sink: a run of theirs per run, by our run id, so that a resumed run goes on in it."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from mtlscale.config import Run
from mtlscale.records import RunRecord
from mtlscale.tracking.fields import row_name, run_params
from mtlscale.tracking.sinks.scalar_sink import ScalarSink
from mtlscale.tracking.values import Metric


class WeightsAndBiases(ScalarSink):
    """Writer to the project of the experiment's name.

    Key, entity and mode come from its own variables: `WANDB_API_KEY`, `WANDB_ENTITY`, `WANDB_MODE=offline`.
    """

    name = "wandb"
    package = "wandb"

    def begin(self, run: Run, step: int) -> Any:
        import wandb

        folder = self._home.root / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=self._experiment.name,
            id=run.run_id,
            name=f"{run.method} · {'trial' if run.trial else f'seed {run.seed}'}",
            group=row_name(run.dataset, run.method),
            job_type="trial" if run.trial else "run",
            config=dict(run_params(run)),
            dir=str(folder),
            resume="allow",
            reinit="create_new",  # several runs are written at once
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        )

    def log(self, handle: Any, metrics: list[Metric]) -> None:
        for step, group in groupby(metrics, key=lambda metric: metric[2]):
            handle.log({key: value for key, value, _ in group}, step=step)

    def end(self, handle: Any, record: RunRecord | None) -> None:
        if record is not None:
            handle.summary.update({"status": record.status, "error": record.error})
        handle.finish(exit_code=int(record is None or record.status != "finished"))
