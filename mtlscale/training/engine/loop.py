"""The training loop of one run, with validation, early stopping and checkpoints: a generator of epochs.

Nothing here knows Ray or MLflow. All randomness is a function of the run's seed, the epoch and the worker, drawn anew
at every epoch's start, so a run resumed from a checkpoint continues as if it had not been interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule, Phase, PhaseOutput
from mtlscale.config import Run
from mtlscale.config.preferences import Preference
from mtlscale.data import Batch, Outputs, PreparedData, Workers
from mtlscale.data.readers.random_access import open_reader
from mtlscale.data.readers.stream import Pieces
from mtlscale.objectives import ObjectiveModule
from mtlscale.records import Epoch, Metrics, PhaseCost, RunRecord
from mtlscale.training.augment import Augment
from mtlscale.training.batches import Batches
from mtlscale.training.engine import checkpoint, hooks
from mtlscale.training.engine.building import following, found_for, phase_id
from mtlscale.training.engine.phases import begin, check_shares
from mtlscale.training.engine.record import counters, now, run_record, traced
from mtlscale.training.engine.session import Session, Updater
from mtlscale.training.evaluation.evaluate import as_asked, evaluate, mean_losses
from mtlscale.training.evaluation.evaluator import evaluator_of
from mtlscale.training.evaluation.item_bootstrap import ItemBootstrap
from mtlscale.training.evaluation.prediction_images import Pictures, pictures
from mtlscale.training.evaluation.robustness import measured_figures
from mtlscale.training.evaluation.select import Selection
from mtlscale.training.gradients.step_stats import Diverged
from mtlscale.training.gradients.tally import Tally, furthest
from mtlscale.training.probes.survival import Cosines
from mtlscale.training.seeds import derive_seed, seed_generators


@dataclass
class Progress:
    """Progress of a run: what a checkpoint keeps besides the session."""

    place: int = 0  # position of the phase
    epoch: int = 0  # finished epochs of the phase
    step: int = 0  # steps of the phase so far
    samples: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)  # phases that are over
    departure: float = 0.0  # see `RunRecord`; NaN where a step had no weights
    started: str = ""


class Trainer:
    """Trainer of one run on this worker.

    Args:
        folder: directory for checkpoints; without one nothing is written and nothing resumed.
        phases: directory where finished phases are kept for other runs, by default one in `folder`.
        workers: the workers of this run, by default those of this process.
        processes: number of processes that read these data on this node, by default the workers.
        pieces: who reads for the reader `stream`, by default this process.
    """

    def __init__(
        self,
        run: Run,
        data: PreparedData,
        *,
        folder: Path | None = None,
        phases: Path | None = None,
        workers: Workers | None = None,
        device: torch.device | str = "cpu",
        processes: int | None = None,
        pieces: Pieces | None = None,
    ) -> None:
        data = as_asked(data, run)
        self.run, self.data, self.suite, self.spec = run, data, data.suite, run.parts.training
        self.workers, self.device = workers or Workers.current(), torch.device(device)

        self.path = None if folder is None else folder / "checkpoint.pt"
        self.kept = phases or (None if folder is None else folder / "phases")

        dtype = getattr(torch, self.spec.dtype)
        reader, self.choice = open_reader(
            data,
            self.spec.reader,
            device=self.device,
            dtype=dtype,
            processes=processes or self.workers.size,
            pieces=pieces,
        )

        self.batches = Batches(
            reader,
            self.suite,
            device=self.device,
            dtype=dtype,
            workers=self.workers,
            accumulate=self.spec.accumulate,
            eval_batch_size=self.spec.eval_batch_size,
        )

        self.evaluator = evaluator_of(self.suite, self.workers, self.device, dtype)

        self.phases = run.parts.phases
        self.notes: list[str] = []  # messages for whoever watches the run
        self.at = Progress(started=now())
        check_shares(run, self.suite, self.phases, self.batches)
        self._begin(0, None)

    # -- the run ---------------------------------------------------------------------------------------------------

    def train(self) -> Generator[Epoch, None, RunRecord]:
        """Yield each epoch as it ends; return the record. The record of a diverged run says so."""
        content = None if self.path is None else self._read(self.path, "the run starts anew")
        if content is not None and content["run_id"] == self.run.run_id:
            self._restore(content)

        try:
            while not self._handed_over():
                yield from self._phase()
            return self._ended()
        except Diverged as error:
            return self._record(error=str(error))

    def _phase(self) -> Iterator[Epoch]:
        """Yield the epochs that the phase still has to do."""
        saved = time.monotonic()
        while not self._over():
            entry = self._epoch(self.at.epoch + 1)
            # The last epoch's state is not needed again: the record follows at once.
            if time.monotonic() - saved >= self.spec.checkpoint_seconds and self.at.epoch < self.epochs:
                self._save()
                saved = time.monotonic()
            yield entry

    def _epoch(self, epoch: int) -> Epoch:
        started = time.perf_counter()
        session, main = self.session, self.session.main
        later_phase = () if self.at.place == 0 else (self.phase.name,)
        seed_generators(derive_seed("epoch", self.seed, epoch, self.workers.rank, *later_phase))

        self.model.train()
        hooks.begin_epoch(self.model, epoch)
        self.batches.waited = 0.0
        session.survival.cosines = Cosines()
        tallies = [Tally(len(updater.update.names)) for updater in session.updaters]

        total = self.epochs * main.sampler.steps
        step_indices = zip(*(updater.steps(epoch) for updater in session.updaters), strict=True)
        samplers = [updater.sampler for updater in session.updaters]
        with closing(self.batches.steps(step_indices, epoch, samplers)) as steps:
            for parts in steps:
                for position, result in session.turns(parts, epoch, self.epochs, self.at.step, total):
                    tallies[position].add(result)
                    self.at.samples += parts[position].samples
                self.at.step += 1

        trained = time.perf_counter()
        for updater, tally in zip(session.updaters, tallies, strict=True):
            updater.update.on_epoch_end(tally.balanced_losses)

        losses = dict(zip(main.update.names, tallies[session.place].mean_losses.tolist(), strict=True))
        added = 0.0 if session.objective is None else session.objective.added()  # it begins its next count
        hooks.end_epoch(self.model, epoch, losses, added)

        if session.objective is not None:
            self.model.eval()
            with torch.no_grad():
                session.objective.on_epoch_end(_View(self))

        self.at.epoch = epoch
        val: Metrics = {}
        if epoch % self.spec.evaluate_every == 0 or epoch == self.epochs:
            hooks.select_by_loss(self.model, lambda split: mean_losses(self.evaluate(split)))
            val = self.evaluate("val")
            session.keep(self.selection.choose(epoch, val, self.suite, self.rule, self.model.independent))

        self.at.train_seconds += trained - started
        self.at.seconds += time.perf_counter() - started
        tally = tallies[session.place]
        self.at.departure = furthest(self.at.departure, tally)

        entry = Epoch(
            epoch=epoch,
            phase=self.phase.name if len(self.phases) > 1 else "",
            train_loss=losses,
            val=val,
            seconds=trained - started,
            weights=tally.mean_weights(main.update.names),
            traces=self._traces(trained - started) | _of_own(session.updaters, tallies),
        )

        self.at.epochs.append(entry.model_dump())
        return entry

    def _traces(self, seconds: float) -> dict[str, Any]:
        """Return what network, balancers and objective report; a name that is taken is prefixed with its turn."""
        main = self.session.main
        traces: dict[str, Any] = {**self.model.traces(), **traced(main.update.balancer, main.update.state)}

        for updater in self.session.updaters:
            if updater is not main:
                added = traced(updater.update.balancer, updater.update.state)
                traces |= {f"{updater.turn.name}.{name}" if name in traces else name: added[name] for name in added}

        objective = self.session.objective
        if objective is not None:
            traces |= objective.traces()
        traces |= self.session.survival.cosines.traces()
        if self.suite.input_kind == "image":
            traces["data_share"] = self.batches.waited / seconds
        if objective is not None and self._over():
            traces |= objective.final_traces()

        return traces

    def _over(self) -> bool:
        patience = self.spec.patience
        return self.at.epoch >= self.epochs or (patience is not None and self.selection.since_best >= patience)

    def evaluate(self, split: str, items: ItemBootstrap | None = None, preference: Preference | None = None) -> Metrics:
        """Return task -> metric -> value over the whole split, "loss" included; the same for any number of workers.

        A network that is given preferences is measured for `preference`, by default the central one.
        """
        hooks.prefer(self.model, preference)
        metrics = evaluate(self.model, self.batches.of_split(split), self.suite, self.device, self.workers, items)
        return metrics if self.evaluator is None else self.evaluator.with_measured(metrics, self.model, split)

    # -- phases ----------------------------------------------------------------------------------------------------

    def _begin(self, place: int, found: PhaseOutput | None) -> None:
        self.phase: Phase = self.phases[place]
        self.found = found
        self.epochs = self.phase.epochs or self.spec.epochs
        self.seed = self.run.seed if self.phase.seed is None else self.phase.seed
        self.batches.augment = Augment.of(self.spec.augment, self.suite, self.seed)
        self.rule = "last" if self.phase.choose == "last" else self.spec.selection
        self.selection = Selection()
        self.session: Session = begin(
            self.run, self.suite, self.phase, found, self.batches, device=self.device, workers=self.workers
        )
        if self.evaluator is not None:
            self.evaluator.attach(self.session.model)
        self.at.place, self.at.epoch, self.at.step = place, 0, 0

    @property
    def model(self) -> MultiTaskModule:
        return self.session.model

    @property
    def objective(self) -> ObjectiveModule | None:
        return self.session.objective

    def phase_files(self) -> list[Path]:
        """Return where each phase but the last is kept once it is over; none where nothing is kept."""
        earlier = range(0 if self.kept is None else len(self.phases) - 1)
        return [path for position in earlier if (path := self._kept(position)) is not None]

    def _kept(self, place: int) -> Path | None:
        return None if self.kept is None else self.kept / f"{phase_id(self.run, self.phases, place)}.pt"

    def _handed_over(self) -> bool:
        """Hand over every phase that has ended, or whose result is kept; return whether the last phase is over."""
        while self.at.place < len(self.phases) - 1:
            path = self._kept(self.at.place)
            content = None if path is None else self._read(path, f"phase {self.phase.name} is done anew")
            reused = not self._over()  # else this run did it and was cut off before the next phase

            if not self.workers.all(content is not None):
                if not self._over():
                    return False
                with self.session.chosen():
                    phase_output = self.model.phase_output()

                seconds = self.at.seconds - sum(past["seconds"] for past in self.at.phases if not past["reused"])
                cost = {"epochs": self.at.epoch, "steps": self.at.step, "seconds": seconds}
                self._save()  # before the file, or the record would lose what this run did of the phase
                content = {"found": phase_output, "cost": {"name": self.phase.name, **cost}, "of": found_for(self.run)}
                if path is not None and self.workers.rank == 0:
                    checkpoint.save(path, content)

            assert content is not None
            key = phase_id(self.run, self.phases, self.at.place)
            self.at.phases.append({**content["cost"], "phase_id": key, "reused": reused})
            self._begin(following(self.run, self.at.place, content["found"]), content["found"])
            self._save()

        return self._over()

    def _ended(self) -> RunRecord:
        started = time.perf_counter()
        last = {split: self.evaluate(split) for split in ("val", "test")}

        items = ItemBootstrap(self.suite, 1, self.device)
        with self.session.chosen():
            # An epoch is chosen on validation before test is looked at; test of the choice is computed once.
            metrics = {split: self.evaluate(split, items if split == "test" else None) for split in self.data.splits}
            front = hooks.front(self.model, self.evaluate)
            figures = measured_figures(self.run.evaluation, self.model, self.batches, self.suite, self.workers)
            hooks.after_training(self.model, self.batches.of_split("train"), self.workers.sum)
            self.chosen_state = {name: value.clone() for name, value in self.model.state_dict().items()}

        self.at.seconds += time.perf_counter() - started
        items_errors = items.results(self.workers)[0]
        return self._record(metrics=metrics, last=last, items=items_errors, figures=figures, front=front)

    def _record(self, error: str | None = None, **measured: Any) -> RunRecord:
        """Return the run's record; `measured` are the arguments of `run_record` that only a finished run has."""
        update = self.session.main.update
        counted = counters(update.balancer.counters, update.state)
        if self.spec.amp == "fp16":
            counted["skipped_steps"] = sum(updater.update.skipped for updater in self.session.updaters)
        if self.evaluator is not None:
            counted |= self.evaluator.counters()

        return run_record(
            self.run,
            self.suite,
            self.model,
            self.selection,
            "finished" if error is None else "diverged",
            error,
            **{"metrics": {}, "last": {}, **measured},
            epochs=self.at.epochs,
            phases=[PhaseCost.model_validate(entry) for entry in self.at.phases],
            seconds=self.at.seconds,
            train_seconds=self.at.train_seconds,
            steps=self.at.step + sum(entry["steps"] for entry in self.at.phases if not entry["reused"]),
            samples=self.at.samples,
            started=self.at.started,
            departure=self.at.departure,
            counters=counted,
            workers=self.workers.size,
            device=self.device,
        )

    def pictures(self, count: int = 6) -> Pictures | None:
        """Return test images with the chosen network's predictions beside the truth; None where it has none to show."""
        if not hasattr(self, "chosen_state"):
            return None
        with self.session.chosen():
            return pictures(self.model, self.suite, self.batches, count)

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self.path is not None and self.workers.rank == 0:
            self.save(self.path)

    def save(self, path: Path) -> None:
        """Write a checkpoint: everything the run needs to go on from here."""
        content = {"run_id": self.run.run_id, "found": self.found, "session": self.session.state_dict()}
        checkpoint.save(path, content | {"selection": asdict(self.selection), "progress": asdict(self.at)})

    def _read(self, path: Path, otherwise: str) -> dict[str, Any] | None:
        """Return the content of a file, or None; note a damaged one, with the consequence `otherwise`."""
        try:
            return checkpoint.load(path)
        except checkpoint.Damaged as error:
            self.notes.append(f"{error}; {otherwise}")
            return None

    def adopt(self, path: Path) -> None:
        """Continue from another run's checkpoint with the settings of this one, for population-based training."""
        content = checkpoint.load(path)
        assert content is not None, path
        updaters = self.session.updaters
        own_settings = [
            [{k: v for k, v in g.items() if k != "params"} for g in m.optimizer.param_groups] for m in updaters
        ]
        self._restore(content)
        for updater, groups in zip(self.session.updaters, own_settings, strict=True):
            for group, settings in zip(updater.optimizer.param_groups, groups, strict=True):
                group.update(settings)

    def _restore(self, content: dict[str, Any]) -> None:
        at = Progress(**content["progress"])
        if at.place != self.at.place:
            self._begin(at.place, content["found"])
        self.at = at
        self.selection = Selection(**content["selection"])
        self.session.load_state_dict(content["session"])


def _of_own(updaters: Sequence[Updater], tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return losses and weights of turns whose losses are no tasks', where they made an update in this epoch."""
    traces: dict[str, Any] = {}
    for updater, tally in zip(updaters, tallies, strict=True):
        names = updater.update.names
        if not updater.source.of_tasks and bool(tally.seen.any()):
            traces[f"{updater.turn.name}.losses"] = dict(zip(names, tally.mean_losses.tolist(), strict=True))
            traces[f"{updater.turn.name}.weights"] = tally.mean_weights(names)
    return traces


class _View:
    """The training set as an objective sees it when an epoch ends."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def outputs(self) -> Iterator[tuple[Batch, Outputs]]:
        for batch in self._trainer.batches.of_split("train"):
            yield batch, self._trainer.model(batch)

    def sum(self, tensor: Tensor) -> Tensor:
        return self._trainer.workers.sum(tensor)


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
