"""Trials of Ray Tune: an epoch a step, on actors that stay from trial to trial."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from mtlscale.execution.faults import dumps
from mtlscale.execution.tuning.tune_setup import Settings, Setup
from mtlscale.execution.tuning.tune_workers import WorkerGroup
from mtlscale.records import Epoch, Score, score, score_of
from mtlscale.records.events import EpochEnded, Noted, RunEnded

WORST = -1e12  # what a trial that diverged reports


def trainable(name: str) -> type[Any]:
    """Return the class of the trials; Ray is imported late.

    `name` is the class's own, by which Tune tells searches apart.
    """
    from ray import tune

    class TuneTrial(tune.Trainable):
        """Trial of a search: an epoch a step, and a last step for its record."""

        def setup(self, config: Settings, shared: Setup | None = None) -> None:
            assert shared is not None
            self._shared = shared
            self._crew = WorkerGroup(shared.options, shared.plugins)
            self._begin(config)

        def reset_config(self, new_config: Settings) -> bool:
            self._begin(new_config)
            return True

        def _begin(self, config: Settings) -> None:
            # A population's member changes its settings on the way: it must not pass for the run with the last ones.
            resumes = not self._shared.population
            job = self._shared.job(config)
            self._dump = self._shared.dump(job.run)
            with self._ends_if_silent():
                self._crew.begin(job, self._shared.options, resumes=resumes)
            self._best = Best(self._shared)

        def _ends_if_silent(self) -> contextlib.AbstractContextManager[None]:
            return dumps.ends_if_silent(self._shared.options.resources.timeout_minutes, self._dump)

        def step(self) -> dict[str, Any]:
            notes: list[str] = []
            with self._ends_if_silent():
                events = self._crew.step()
            for event in events:
                match event:
                    case Noted(_, text):
                        notes.append(text)
                    case EpochEnded(_, epoch):
                        value = self._best.of(epoch)
                        return {"score": value, "notes": notes, "epoch": epoch.model_dump_json()}
                    case RunEnded(_, record):
                        value = finite(score(record, self._shared.metric))
                        return {"score": value, "notes": notes, "record": record.model_dump_json(), "done": True}
            raise AssertionError("a trial that has ended was asked to go on")

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._crew.save(Path(checkpoint_dir) / "checkpoint.pt")

        def load_checkpoint(self, checkpoint_dir: str | None) -> None:
            assert checkpoint_dir is not None
            self._crew.adopt(Path(checkpoint_dir) / "checkpoint.pt")

    TuneTrial.__name__ = TuneTrial.__qualname__ = name
    return TuneTrial


class Best:
    """The best score of a trial so far, which Tune compares."""

    def __init__(self, shared: Setup) -> None:
        self._shared, self._phase, self._score = shared, "", WORST

    def of(self, epoch: Epoch) -> float:
        """Return the best score after this epoch; a new phase counts from its first evaluation on, and alone."""
        if epoch.val:
            shared = self._shared
            value = finite(score_of(epoch.val, shared.main, shared.directions, shared.metric, shared.lowest))
            self._score = value if epoch.phase != self._phase else max(self._score, value)
            self._phase = epoch.phase
        return self._score


def finite(score: Score | None) -> float:
    """Return a score as Tune takes it: a number, and one that is finite."""
    return WORST if score is None else max(WORST, score[0])
