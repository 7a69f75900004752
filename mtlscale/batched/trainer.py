"""Many small trials trained as one batched model in one process.

Trials of one method on one data set whose specs differ only in numbers (`mtlscale.batched.planning`) take their
steps together: every parameter is a tensor [B, ...] of B trials, the network runs under vmap, and losses, Gramians,
balancers, optimisers, clipping, proximal steps, random numbers, validation and early stopping keep to their trial. A
trial ends with what it would end with alone, up to the order of sums.

Where every task has its own inputs and the tasks' networks differ in nothing but their parameters, the tasks are
batched as well: one pass serves all trials and all tasks of about the same length, and gives every task's gradient of
the shared parameters at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from mtlscale.batched.dropout import dropout_places, dropout_rates
from mtlscale.batched.evaluate import BatchedEvaluation
from mtlscale.batched.moving import BatchedMover
from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.parts import Drawn, Part, Steps
from mtlscale.batched.slots import lay_out
from mtlscale.batched.streams import Streams
from mtlscale.batched.update import BatchedUpdate, Leaving
from mtlscale.data import PreparedData
from mtlscale.objectives import ProximalModule
from mtlscale.records import Epoch, Metrics, RunRecord
from mtlscale.spec import Run, UserError
from mtlscale.training import (
    Diverged,
    Progress,
    Selection,
    Tally,
    build_model,
    now,
    on_device,
    run_record,
)

Answer = TypeVar("Answer")


class BatchedTrainer:
    """Trials of one share (`mtlscale.batched.planning.shares`), trained in this process.

    keep_states: keep every trial's parameters of the chosen epoch in `states` (run_id -> name -> tensor).
    """

    def __init__(
        self,
        runs: Sequence[Run],
        data: PreparedData,
        *,
        device: torch.device | str = "cpu",
        keep_states: bool = False,
    ) -> None:
        self.runs, self.suite, self.spec = list(runs), data.suite, runs[0].training
        self.device = torch.device(device)
        of_seed = {run.seed: run for run in reversed(runs)}
        built = {seed: build_model(run, self.suite) for seed, run in of_seed.items()}
        self.model, objective = built[runs[0].seed]
        if objective is not None and not isinstance(objective, ProximalModule):
            name = runs[0].parts.objective.name
            raise UserError(f"objective {name} cannot be batched: it is more than a proximal step")
        dtype = getattr(torch, self.spec.dtype)
        splits = {split: on_device(streams, self.device, dtype) for split, streams in data.splits.items()}
        train = splits["train"]
        self.layout = lay_out(self.model, self.suite, train, self.spec.batch_size, len(runs))
        self.values = self.layout.values([built[run.seed][0] for run in runs], self.device)
        self.best = [value.clone() for value in self.values]
        self.model.to(self.device)
        self.network = BatchedNetwork(
            self.model, self.suite, self.layout, dropout_rates(self.model, runs, self.suite, self.device)
        )
        streams = {split: Streams(found, self.layout) for split, found in splits.items()}
        self.update = BatchedUpdate(runs, self.network, streams["train"], dtype)
        self.mover = BatchedMover(runs, self.layout, objective, self.device)
        self.evaluate = BatchedEvaluation(self.network, streams, self.spec.eval_batch_size)
        sizes = {stream: len(samples) for stream, samples in train.items()}
        self.steps = Steps(self.layout, sizes, self.spec, dropout_places(self.model, self.layout, train), self.device)
        self.at = [Progress(started=now()) for _ in runs]
        self.selections = [Selection() for _ in runs]
        self.tally = Tally(len(runs), len(self.layout.names))
        self.ended: list[tuple[Run, RunRecord]] = []
        self.states: dict[str, dict[str, Tensor]] = {}
        self._keep_states = keep_states

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
        self.model.train()
        self.tally = Tally(len(self.runs), len(self.layout.names))
        for drawn in self.steps.epoch(epoch, [run.seed for run in self.runs]):
            self.step(drawn)
            if not self.runs:
                return
        self._close(epoch, started, time.perf_counter())

    def step(self, drawn: Drawn) -> None:
        """One step of all trials; those that diverge in it leave."""
        parts, step = drawn.parts([run.seed for run in self.runs]), self.at[0].step
        answer, parts = self._of_those_that_go_on(parts, lambda parts: self.update(self.values, parts, step + 1))
        if answer is None:
            return
        result, gradients = answer
        self.tally.add(result)
        self.mover(self.values, gradients, step, self.spec.epochs * self.steps.per_epoch)
        if self.update.looks_again:
            self._of_those_that_go_on(parts, lambda parts: self.update.look_again(self.values, parts, step + 1))
        for at in self.at:
            at.step += 1
            at.samples += drawn.samples

    def _of_those_that_go_on(
        self, parts: list[Part], work: Callable[[list[Part]], Answer]
    ) -> tuple[Answer | None, list[Part]]:
        """What `work` gives for the trials that do not diverge in it, and their parts; None where no trial is left."""
        while self.runs:
            try:
                return work(parts), parts
            except Leaving as leaving:
                kept = self._leave(leaving.causes)
                parts = [part.keep(kept) for part in parts]
        return None, parts

    def _close(self, epoch: int, started: float, trained: float) -> None:
        """Validate, choose, note down the epoch, and let go of the trials that stop early."""
        self.update.on_epoch_end(self.tally.mean_losses)
        last = epoch == self.spec.epochs
        vals: list[Metrics] = [{} for _ in self.runs]
        for at in self.at:
            at.epoch = epoch
        if epoch % self.spec.evaluate_every == 0 or last:
            vals = self.evaluate("val", self.values)
            self._choose(vals)
        stopped = [self.spec.patience is not None and s.since_best >= self.spec.patience for s in self.selections]
        special = self.mover.special
        theta = None if special is None else special.of(self.values)
        share = 1.0 / len(self.runs)  # of the time of all
        for trial, at in enumerate(self.at):
            at.train_seconds += (trained - started) * share
            at.seconds += (time.perf_counter() - started) * share
            tally, traces = self.tally.of(trial), {}
            if special is not None and theta is not None:
                traces = special.objective.traces_of(theta[trial], last or stopped[trial])
            entry = Epoch(
                epoch=epoch,
                train_loss=dict(zip(self.layout.names, tally.mean_losses.tolist(), strict=True)),
                val=vals[trial],
                seconds=(trained - started) * share,
                weights=tally.mean_weights(self.layout.names),
                traces=traces,
            )
            at.epochs.append(entry.model_dump())
        if any(stopped) and not last:
            self._finish([trial for trial, stop in enumerate(stopped) if stop])

    def _choose(self, vals: Sequence[Metrics]) -> None:
        """Keep each trial's parameters of its best epoch so far, for every task its own where nothing is shared."""
        names, independent = self.layout.names, self.layout.independent
        better = torch.zeros(len(self.runs), len(names), dtype=torch.bool)
        for trial, (selection, at, val) in enumerate(zip(self.selections, self.at, vals, strict=True)):
            for group in selection.choose(at.epoch, val, self.suite, self.spec.selection, independent):
                better[trial, slice(None) if group == "" else names.index(group)] = True
        better = better.to(self.device)
        for slot, value, best in zip(self.layout.slots, self.values, self.best, strict=True):
            where = slot.of_task(better)
            best[where] = value[where]

    # -- trials that leave -----------------------------------------------------------------------------------------

    def _leave(self, causes: Mapping[int, Exception]) -> Tensor:
        """Record the trials at these places as diverged or failed; return the places that stay."""
        for place, cause in causes.items():
            record = self._record(place, error=str(cause))
            if not isinstance(cause, Diverged):
                error = f"{type(cause).__name__}: {cause}"
                record = record.model_copy(update={"status": "failed", "error": error})
            self.ended.append((self.runs[place], record))
        return self._keep([place for place in range(len(self.runs)) if place not in causes])

    def _finish(self, places: list[int]) -> None:
        """Measure the trials at these places after their last epoch and at the chosen one, and let them go."""
        started = time.perf_counter()
        index = torch.tensor(places, device=self.device)
        now_, chosen = [value[index] for value in self.values], [value[index] for value in self.best]
        last = {split: self.evaluate(split, now_) for split in ("val", "test")}
        metrics = {split: self.evaluate(split, chosen) for split in ("train", "val", "test")}
        share = (time.perf_counter() - started) / len(places)
        for position, place in enumerate(places):
            self.at[place].seconds += share
            record = self._record(
                place,
                metrics={split: found[position] for split, found in metrics.items()},
                last={split: found[position] for split, found in last.items()},
            )
            self.ended.append((self.runs[place], record))
            if self._keep_states:
                self.states[self.runs[place].run_id] = self._state_dict([value[position] for value in chosen])
        self._keep([place for place in range(len(self.runs)) if place not in places])

    def _keep(self, places: list[int]) -> Tensor:
        """Go on with the trials at these places alone."""
        index = torch.tensor(places, dtype=torch.int64, device=self.device)
        self.values, self.best = [v[index] for v in self.values], [v[index] for v in self.best]
        self.tally = self.tally.of(index.cpu())
        for part in (self.network, self.mover):
            part.keep(index)
        self.update.keep(places)
        self.runs, self.at = [self.runs[i] for i in places], [self.at[i] for i in places]
        self.selections = [self.selections[i] for i in places]
        return index

    def _record(
        self,
        place: int,
        *,
        error: str | None = None,
        metrics: Mapping[str, Metrics] | None = None,
        last: Mapping[str, Metrics] | None = None,
    ) -> RunRecord:
        at = self.at[place]
        return run_record(
            self.runs[place],
            self.suite,
            self.model,
            self.selections[place],
            "finished" if error is None else "diverged",
            error,
            metrics=metrics or {},
            last=last or {},
            epochs=at.epochs,
            seconds=at.seconds,
            train_seconds=at.train_seconds,
            steps=at.step,
            samples=at.samples,
            started=at.started,
            counters=self.update.counters(place),
            workers=1,
            device=self.device,
        )

    def _state_dict(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """One trial's values of the slots by the parameters' names."""
        return self.layout.state_dict(values)
