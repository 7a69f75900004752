"""What a recipe trains a run with: its phases, epochs, batches, evaluation, checkpoints and record.

Nothing here knows Ray or MLflow. All randomness is a function of the run's seed, the epoch and the worker, drawn anew
at every epoch's start, so a run resumed from a checkpoint continues as if it had not been interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mtlscale.architectures import EpochView, MultiTaskModule, Phase, PhaseOutput
from mtlscale.config import Run
from mtlscale.config.preferences import Preference
from mtlscale.data import Batch, Outputs, PreparedData, Workers
from mtlscale.data.readers.random_access import open_reader
from mtlscale.data.readers.stream import Pieces
from mtlscale.objectives import ObjectiveModule
from mtlscale.records import Epoch, FrontPoint, Metrics, PhaseCost, RunRecord
from mtlscale.training.augment import Augment
from mtlscale.training.batches import Batches
from mtlscale.training.engine import checkpoint
from mtlscale.training.engine.building import following, found_for, phase_id
from mtlscale.training.engine.phases import begin, check_shares
from mtlscale.training.engine.record import counters, now, run_record, traced
from mtlscale.training.engine.session import Session, Updater
from mtlscale.training.evaluation.evaluate import as_asked, evaluate, mean_losses
from mtlscale.training.evaluation.evaluator import evaluator_of
from mtlscale.training.evaluation.item_bootstrap import ItemBootstrap
from mtlscale.training.evaluation.kept_predictions import TaskPredictions
from mtlscale.training.evaluation.prediction_images import Pictures, pictures
from mtlscale.training.evaluation.robustness import measured_figures
from mtlscale.training.evaluation.select import Selection
from mtlscale.training.gradients.tally import Tally, furthest
from mtlscale.training.probes.survival import Cosines
from mtlscale.training.seeds import derive_seed, seed_generators


class TrainingEpoch(EpochView):
    """An epoch while it is trained: its view, its tallies by turn, and its times."""

    def __init__(self, number: int, training: Training) -> None:
        self.session = session = training.session
        batches, workers = training.batches, training.workers

        def outputs() -> Iterator[tuple[Batch, Outputs]]:
            session.model.eval()
            for batch in batches.of_split("train"):
                with torch.no_grad():
                    batch_outputs = session.model(batch)
                yield batch, batch_outputs

        super().__init__(
            number,
            training.epochs_of_phase,
            outputs=outputs,
            split_losses=lambda split: mean_losses(training.evaluate(split)),
            sum=workers.sum,
        )
        self.tallies = [Tally(len(updater.update.names)) for updater in session.updaters]
        self.val: Metrics = {}
        self.started = self.trained = time.perf_counter()

    @property
    def main(self) -> Tally:
        """The tally of the main turn."""
        return self.tallies[self.session.place]

    @property
    def seconds(self) -> float:
        """The seconds of its steps."""
        return self.trained - self.started

    def close(self) -> None:
        """End its steps: balancers see its losses, and so do hooks from now on."""
        self.trained = time.perf_counter()
        for updater, tally in zip(self.session.updaters, self.tallies, strict=True):
            updater.update.on_epoch_end(tally.balanced_losses)
        names, objective = self.session.main.update.names, self.session.objective
        self.losses = dict(zip(names, self.main.mean_losses.tolist(), strict=True))
        self.added = 0.0 if objective is None else objective.added()  # it begins its next count


@dataclass
class Progress:
    """Progress of a run: what a checkpoint keeps besides the session."""

    place: int = 0  # position of the phase
    epoch: int = 0  # finished epochs of the phase
    step: int = 0  # steps of the phase so far
    samples: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    out_of_seconds: bool = False  # the steps have taken what `training.seconds` allows, on any worker
    epochs: list[dict[str, Any]] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)  # phases that are over
    departure: float = 0.0  # see `RunRecord`; NaN where a step had no weights
    started: str = ""


class Training:
    """The training of one run on this worker: what its recipe calls.

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

        self.phases_of_run = run.parts.phases
        self.test_predictions: dict[str, TaskPredictions] = {}  # of the chosen epoch, if they are few
        self.notes: list[str] = []  # messages for whoever watches the run
        self.at = Progress(started=now())
        self._saved = time.monotonic()  # when the last checkpoint was written, or the phase began
        check_shares(run, self.suite, self.phases_of_run, self.batches)
        self._begin(0, None)

    # -- what a recipe calls -----------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Session]:
        """Yield the session of each phase that is to be trained, from the checkpoint on; kept phases are skipped."""
        content = None if self.path is None else self._read(self.path, "the run starts anew")
        if content is not None and content["run_id"] == self.run.run_id:
            self._restore(content)
        while not self._handed_over():
            self._saved = time.monotonic()
            yield self.session

    def epochs(self) -> Iterator[TrainingEpoch]:
        """Yield the epochs that the phase still has to do, until its last one, or until patience ends."""
        while not self._over():
            number = self.at.epoch + 1
            epoch = TrainingEpoch(number, self)
            later_phase = () if self.at.place == 0 else (self.phase.name,)
            seed_generators(derive_seed("epoch", self.seed, number, self.workers.rank, *later_phase))

            self.model.train()
            self.batches.waited = 0.0
            self.session.survival.cosines = Cosines()
            yield epoch

    def turns(self, epoch: TrainingEpoch) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield position and arguments of each turn: a step has one or several, which share its batches.

        Batches are this worker's, read ahead of the step. A turn that rests is left out.
        """
        updaters, total = self.session.updaters, self.epochs_of_phase * self.session.main.sampler.steps
        indices = zip(*(updater.steps(epoch.number) for updater in updaters), strict=True)
        samplers = [updater.sampler for updater in updaters]
        with closing(self.batches.steps(indices, epoch.number, samplers)) as steps:
            for parts in steps:
                others = {u.turn.name: part.micros for u, part in zip(updaters, parts, strict=True)}
                for position, (updater, part) in enumerate(zip(updaters, parts, strict=True)):
                    updater.schedule(self.at.step, total)
                    if not updater.rests(epoch.number, self.epochs_of_phase):
                        turn = {"updater": updater, "micros": part.micros, "query": part.query, "others": others}
                        yield position, turn
                        self.at.samples += part.samples
                self.at.step += 1
        if self.spec.seconds is not None:
            spent = self.at.train_seconds + time.perf_counter() - epoch.started
            self.at.out_of_seconds = not self.workers.all(spent < self.spec.seconds)

    def evaluates(self, epoch: TrainingEpoch) -> bool:
        """Return whether the network is evaluated after an epoch."""
        last = epoch.number == self.epochs_of_phase or self.at.out_of_seconds
        return last or epoch.number % self.spec.evaluate_every == 0

    def evaluate(self, split: str, items: ItemBootstrap | None = None, preference: Preference | None = None) -> Metrics:
        """Return task -> metric -> value over the whole split, "loss" included; the same for any number of workers.

        A network that is given preferences is measured for `preference`, by default the central one.
        """
        self.model.prefer(preference)
        metrics = evaluate(self.model, self.batches.of_split(split), self.suite, self.device, self.workers, items)
        return metrics if self.evaluator is None else self.evaluator.with_measured(metrics, self.model, split)

    def choose(self, epoch: TrainingEpoch) -> None:
        """Keep the parameters if the epoch is the best so far by its validation metrics."""
        groups = self.selection.choose(epoch.number, epoch.val, self.suite, self.rule, self.model.independent)
        self.session.keep(groups)

    def log(self, epoch: TrainingEpoch) -> Epoch:
        """Return what is recorded of an epoch that is over; write a checkpoint if it is time to."""
        self.at.epoch = epoch.number
        self.at.train_seconds += epoch.seconds
        self.at.seconds += time.perf_counter() - epoch.started
        self.at.departure = furthest(self.at.departure, epoch.main)
        session = self.session

        entry = Epoch(
            epoch=epoch.number,
            phase=self.phase.name if len(self.phases_of_run) > 1 else "",
            train_loss=dict(epoch.losses),
            val=epoch.val,
            seconds=epoch.seconds,
            weights=epoch.main.mean_weights(session.main.update.names),
            traces=self._traces(epoch.seconds) | _of_own(session.updaters, epoch.tallies),
        )
        self.at.epochs.append(entry.model_dump())

        # The last epoch's state is not needed again: the record follows at once.
        due = time.monotonic() - self._saved >= self.spec.checkpoint_seconds
        if due and self.at.epoch < self.epochs_of_phase:
            self._save()
            self._saved = time.monotonic()
        return entry

    def record(self) -> RunRecord:
        """Return the record of a run whose last phase is over: the chosen epoch, measured on every split, once."""
        started = time.perf_counter()
        last = {split: self.evaluate(split) for split in ("val", "test")}

        items = ItemBootstrap(self.suite, 1, self.device)
        with self.session.chosen():
            # An epoch is chosen on validation before test is looked at; test of the choice is computed once.
            metrics = {split: self.evaluate(split, items if split == "test" else None) for split in self.data.splits}
            front = [
                FrontPoint(
                    preference=list(preference),
                    metrics={split: self.evaluate(split, preference=preference) for split in ("val", "test")},
                )
                for preference in self.model.grid
            ]
            self.model.prefer()
            figures = measured_figures(self.run.evaluation, self.model, self.batches, self.suite, self.workers)
            with torch.no_grad():
                for hook in self.session.hooks:
                    hook.after_training(self.batches.of_split("train"), self.workers.sum)
            self.chosen_state = {name: value.clone() for name, value in self.model.state_dict().items()}

        self.at.seconds += time.perf_counter() - started
        if self.workers.size == 1:  # of several each has a share
            self.test_predictions = items.kept.of_trial(0)
        items_errors = items.results(self.workers)[0]
        return self.ended(metrics=metrics, last=last, items=items_errors, figures=figures, front=front)

    def ended(self, error: str | None = None, **measured: Any) -> RunRecord:
        """Return a record with what was measured; with an error, that of a run that diverged.

        Args:
            measured: The arguments of `run_record` that only a finished run has.
        """
        update = self.session.main.update
        counted = counters(update.balancer.counters, update.state)
        if self.spec.amp == "fp16":
            counted["skipped_steps"] = sum(updater.update.skipped for updater in self.session.updaters)
        if self.at.out_of_seconds:
            counted["out_of_seconds"] = 1
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

    # -- pieces ----------------------------------------------------------------------------------------------------

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
        if self.at.out_of_seconds and self.at.epoch:
            return True
        patience = self.spec.patience
        return self.at.epoch >= self.epochs_of_phase or (patience is not None and self.selection.since_best >= patience)

    def _begin(self, place: int, found: PhaseOutput | None) -> None:
        self.phase: Phase = self.phases_of_run[place]
        self.found = found
        self.epochs_of_phase = self.phase.epochs or self.spec.epochs
        self.seed = self.run.seed if self.phase.seed is None else self.phase.seed
        self.batches.augment = Augment.of(self.spec.augment, self.suite, self.seed)
        self.rule = "last" if self.phase.choose == "last" else self.spec.selection
        self.selection = Selection()
        started = time.perf_counter()
        self.session: Session = begin(
            self.run, self.suite, self.phase, found, self.batches, device=self.device, workers=self.workers
        )
        if self.run.parts.architecture.fitted:  # what is computed from the data is trained here
            self.at.seconds += time.perf_counter() - started
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
        earlier = range(0 if self.kept is None else len(self.phases_of_run) - 1)
        return [path for position in earlier if (path := self._kept(position)) is not None]

    def _kept(self, place: int) -> Path | None:
        return None if self.kept is None else self.kept / f"{phase_id(self.run, self.phases_of_run, place)}.pt"

    def _handed_over(self) -> bool:
        """Hand over every phase that has ended, or whose result is kept; return whether the last phase is over."""
        while self.at.place < len(self.phases_of_run) - 1:
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
            key = phase_id(self.run, self.phases_of_run, self.at.place)
            self.at.phases.append({**content["cost"], "phase_id": key, "reused": reused})
            self._begin(following(self.run, self.at.place, content["found"]), content["found"])
            self._save()

        return self._over()

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
