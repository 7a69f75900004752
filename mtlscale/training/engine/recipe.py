"""The default recipe: how a run is trained, from top to bottom."""

from __future__ import annotations

from collections.abc import Generator

import torch

from mtlscale.records import Epoch, RunRecord
from mtlscale.training.engine.training_run import Training


def supervised(run: Training) -> Generator[Epoch, None, RunRecord]:
    """Train each phase epoch by epoch, keep the epoch that is best on validation, and measure that on test, once.

    Resume, workers, precision and accumulation lie in what is called here: `phases` and `log` read and write
    checkpoints, `turns` gives this worker's micro-batches, and `step` differentiates, balances and steps.
    """
    for session in run.phases():
        for epoch in run.epochs():
            for hook in session.hooks:
                hook.on_epoch_begin(epoch)

            for position, turn in run.turns(epoch):
                result = session.step(**turn)
                epoch.tallies[position].add(result)

            epoch.close()
            with torch.no_grad():
                for hook in session.hooks:
                    hook.on_epoch_end(epoch)

            if run.evaluates(epoch):
                for hook in session.hooks:
                    hook.before_evaluation(epoch)
                epoch.val = run.evaluate("val")
                run.choose(epoch)

            yield run.log(epoch)

    return run.record()
