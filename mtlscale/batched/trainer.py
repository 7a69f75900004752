"""Training of many small trials as one batched model in one process.

Trials of one method on one data set whose specs differ only in numbers (`batched.eligibility.planning`) take their
steps together: every parameter is a tensor [B, ...] of B trials, the network runs under vmap, and losses, Gramians,
balancers, optimisers, clipping, proximal steps, random numbers, validation and early stopping keep to their trial. A
trial ends with what it would end with alone, up to the order of sums.

Where every task has its own inputs and the tasks' networks differ in nothing but their parameters, the tasks are
batched as well: one pass serves all trials and all tasks of about the same length, and gives every task's gradient of
the shared parameters at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mtlscale.batched.declared import check_declared
from mtlscale.batched.session import BatchedSession, Causes
from mtlscale.config import Run
from mtlscale.data import PreparedData
from mtlscale.records import Epoch, ItemErrors, Metrics, RunRecord
from mtlscale.training import (
    Diverged,
    ItemBootstrap,
    Progress,
    Selection,
    TaskPredictions,
    as_asked,
    furthest,
    now,
    run_record,
)


class BatchedTrainer:
    """Trainer of the trials of one share (`mtlscale.batched.eligibility.planning.shares`) in this process.

    Args:
        keep_states: keep every trial's parameters of the chosen epoch in `states` (run_id -> name -> tensor).
        processes: number of processes that read these data on this node.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        data: PreparedData,
        *,
        device: torch.device | str = "cpu",
        keep_states: bool = False,
        processes: int = 1,
    ) -> None:
        data = as_asked(data, runs[0])
        self.suite, self.spec, self.device = data.suite, runs[0].training, torch.device(device)
        check_declared(runs, data, self.device)

        self.session = BatchedSession(runs, data, self.device, processes)

        self.best = [value.clone() for value in self.values]
        self.progress = [Progress(started=now()) for _ in runs]
        self.selections = [Selection() for _ in runs]
        self.ended: list[tuple[Run, RunRecord]] = []
        self.states: dict[str, dict[str, Tensor]] = {}
        self.test_predictions: dict[str, dict[str, TaskPredictions]] = {}  # as `states`, of chosen epochs, if few
        self._keep_states = keep_states

    @property
    def runs(self) -> list[Run]:
        """The trials that go on."""
        return self.session.runs

    @property
    def values(self) -> list[Tensor]:
        """The parameters of the trials that go on."""
        return self.session.values

    # -- the run of all trials ------------------------------------------------------------------------------------

    def train(self) -> Iterator[int | tuple[Run, RunRecord]]:
        """Yield the number of each epoch that ends, and every trial with its record when it ends."""
        for epoch in range(1, self.spec.epochs + 1):
            self._epoch(epoch)
            if epoch == self.spec.epochs and self.runs:
                self._finish(list(range(len(self.runs))))
            yield from self.ended
            self.ended = []
            yield epoch
            if not self.runs:
                return

    def _epoch(self, epoch: int) -> None:
        started = time.perf_counter()
        session = self.session
        session.begin_epoch()
        for drawn in session.steps.epoch(epoch, session.seeds):
            session.step(drawn, self.progress[0].step, self._leave)
            if not self.runs:
                return
            for progress in self.progress:
                progress.step += 1
                progress.samples += drawn.samples
        self._close(epoch, started, time.perf_counter())

    def _close(self, epoch: int, started: float, trained: float) -> None:
        """Validate, choose, record the epoch, and let go of the trials that stop early."""
        session, names = self.session, self.session.layout.names
        session.update.on_epoch_end(session.tally.balanced_losses)
        last = epoch == self.spec.epochs

        vals: list[Metrics] = [{} for _ in self.runs]
        for progress in self.progress:
            progress.epoch = epoch
        if epoch % self.spec.evaluate_every == 0 or last:
            vals = session.evaluate("val", self.values)
            self._choose(vals)

        stopped = [self.spec.patience is not None and s.since_best >= self.spec.patience for s in self.selections]
        special = session.updater.special
        theta = None if special is None else special.of(self.values)
        share = 1.0 / len(self.runs)  # share of the time of all

        for position, progress in enumerate(self.progress):
            progress.train_seconds += (trained - started) * share
            progress.seconds += (time.perf_counter() - started) * share
            tally = session.tally.of(position)
            progress.departure = furthest(progress.departure, tally)
            traces = session.update.traces(position) | session.cosines.traces(position)
            if special is not None and theta is not None:
                traces |= special.objective.traces_of(theta[position], last or stopped[position])

            entry = Epoch(
                epoch=epoch,
                train_loss=dict(zip(names, tally.mean_losses.tolist(), strict=True)),
                val=vals[position],
                seconds=(trained - started) * share,
                weights=tally.mean_weights(names),
                traces=traces,
            )
            progress.epochs.append(entry.model_dump())

        if any(stopped) and not last:
            self._finish([position for position, stop in enumerate(stopped) if stop])

    def _choose(self, vals: Sequence[Metrics]) -> None:
        """Keep each trial's parameters of its best epoch so far, for every task its own where nothing is shared."""
        layout = self.session.layout
        names, independent = layout.names, layout.independent
        better = torch.zeros(len(self.runs), len(names), dtype=torch.bool)
        for position, (selection, progress, val) in enumerate(zip(self.selections, self.progress, vals, strict=True)):
            for group in selection.choose(progress.epoch, val, self.suite, self.spec.selection, independent):
                better[position, slice(None) if group == "" else names.index(group)] = True
        better = better.to(self.device)
        for slot, value, best in zip(layout.slots, self.values, self.best, strict=True):
            where = slot.of_task(better)
            best[where] = value[where]

    # -- trials that leave -----------------------------------------------------------------------------------------

    def _leave(self, causes: Causes) -> Tensor:
        """Record the trials at these positions as diverged or failed; return the positions that stay."""
        for position, cause in causes.items():
            record = self._record(position, error=str(cause))
            if not isinstance(cause, Diverged):
                error = f"{type(cause).__name__}: {cause}"
                record = record.model_copy(update={"status": "failed", "error": error})
            self.ended.append((self.runs[position], record))
        return self._keep([position for position in range(len(self.runs)) if position not in causes])

    def _finish(self, positions: list[int]) -> None:
        """Measure the trials at these positions after their last epoch and at the chosen one, and let them go."""
        started = time.perf_counter()
        index = torch.tensor(positions, device=self.device)
        final, chosen = [value[index] for value in self.values], [value[index] for value in self.best]
        last = {split: self.session.evaluate(split, final) for split in ("val", "test")}

        items = ItemBootstrap(self.suite, len(positions), self.device)
        metrics = {
            split: self.session.evaluate(split, chosen, items if split == "test" else None)
            for split in self.session.splits
        }
        spread = items.results()

        share = (time.perf_counter() - started) / len(positions)
        for row, position in enumerate(positions):
            self.progress[position].seconds += share
            record = self._record(
                position,
                metrics={split: metrics_of_trials[row] for split, metrics_of_trials in metrics.items()},
                last={split: metrics_of_trials[row] for split, metrics_of_trials in last.items()},
                items=spread[row],
            )
            self.ended.append((self.runs[position], record))
            if self._keep_states:
                self.test_predictions[self.runs[position].run_id] = items.kept.of_trial(row)
                own_values = [value[row] for value in chosen]
                self.states[self.runs[position].run_id] = self.session.layout.state_dict(own_values)

        self._keep([position for position in range(len(self.runs)) if position not in positions])

    def _keep(self, positions: list[int]) -> Tensor:
        index = self.session.keep(positions)
        self.best = [value[index] for value in self.best]
        self.progress = [self.progress[position] for position in positions]
        self.selections = [self.selections[position] for position in positions]
        return index

    def _record(
        self,
        position: int,
        *,
        error: str | None = None,
        metrics: Mapping[str, Metrics] | None = None,
        last: Mapping[str, Metrics] | None = None,
        items: ItemErrors | None = None,
    ) -> RunRecord:
        progress = self.progress[position]

        return run_record(
            self.runs[position],
            self.suite,
            self.session.model,
            self.selections[position],
            "finished" if error is None else "diverged",
            error,
            metrics=metrics or {},
            last=last or {},
            items=items,
            epochs=progress.epochs,
            seconds=progress.seconds,
            train_seconds=progress.train_seconds,
            steps=progress.step,
            samples=progress.samples,
            started=progress.started,
            departure=progress.departure,
            counters=self.session.update.counters(position),
            workers=1,
            device=self.device,
        )
