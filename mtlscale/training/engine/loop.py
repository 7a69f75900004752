"""The trainer of one run: its training, by its architecture's recipe or the default one."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import torch

from mtlscale.config import Run, UserError
from mtlscale.data import PreparedData, Workers
from mtlscale.records import Epoch, RunRecord
from mtlscale.training.engine.recipe import supervised
from mtlscale.training.engine.training_run import Training
from mtlscale.training.gradients.step_stats import Diverged


class Trainer(Training):
    """Trainer of one run on this worker."""

    def train(self) -> Generator[Epoch, None, RunRecord]:
        """Yield each epoch as it ends; return the record. The record of a diverged run says so.

        Raises:
            UserError: If the architecture's recipe is none.
        """
        architecture = self.run.parts.architecture
        epochs = architecture.recipe(self)
        if not isinstance(epochs, Generator | None):
            raise UserError(
                f"architecture {architecture.name}: its recipe yields no epochs; yield run.log(epoch) after each"
            )
        try:
            record = yield from supervised(self) if epochs is None else epochs
        except Diverged as error:
            return self.ended(str(error))

        if not isinstance(record, RunRecord):
            raise UserError(
                f"architecture {architecture.name}: its recipe returns {type(record).__name__}, no record; end it with "
                "return run.record()"
            )
        return record


def train(
    run: Run,
    data: PreparedData,
    *,
    folder: Path | None = None,
    workers: Workers | None = None,
    device: torch.device | str = "cpu",
) -> RunRecord:
    """Train one run in this process, to its end, and return its record."""
    return finish(Trainer(run, data, folder=folder, workers=workers, device=device))


def finish(trainer: Trainer) -> RunRecord:
    """Train a run to its end and return its record."""
    steps = trainer.train()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            record: RunRecord = stop.value
            return record
