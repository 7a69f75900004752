"""The training loop of one run: a generator that yields every epoch and returns the run's record.

Nothing here knows Ray or MLflow. All randomness is a function of the run's seed, the epoch and the worker, drawn anew
at every epoch's start, so a run resumed from a checkpoint continues as if it had not been interrupted.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.components import UserError
from mtlscale.data import Workers
from mtlscale.data.prepared import PreparedData
from mtlscale.data.sampler import EpochSampler, slice_for
from mtlscale.encoders._batch_norm import needs_every_worker
from mtlscale.experiment import Run, TrainingSpec
from mtlscale.ledger import Epoch, Metrics, RunRecord
from mtlscale.metrics import higher_is_better, task_metrics
from mtlscale.objectives import ObjectiveModule
from mtlscale.tasks import Batch, Outputs, Samples, TaskSuite
from mtlscale.training import checkpoint, provenance
from mtlscale.training.augment import Augment
from mtlscale.training.losses import task_loss
from mtlscale.training.step import Diverged, Step


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from anything printable."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def build_model(run: Run, suite: TaskSuite) -> tuple[MultiTaskModule, ObjectiveModule | None]:
    """The network and objective of a run, initialised from its seed: the same for every method that has the same
    modules in the same order."""
    encoder = run.component("encoders", "encoder")
    if suite.input_kind not in encoder.inputs:
        raise UserError(
            f"encoder {encoder.name} reads {' or '.join(encoder.inputs)} inputs, {suite.name} has {suite.input_kind}s"
        )
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, run.training.dtype))
    try:
        torch.manual_seed(derive_seed("init", run.seed))
        architecture = run.component("architectures", "architecture")
        objective = run.component("objectives", "objective")
        if objective is not None:
            objective.require(architecture, run.training)
        model = architecture.build(suite, lambda: encoder.build(suite), run.spec["dropout"])
        return model, None if objective is None else objective.build(suite, model)
    finally:
        torch.set_default_dtype(dtype)


@dataclass
class Progress:
    """Where a run stands: what a checkpoint keeps besides parameters and optimiser."""

    epoch: int = 0  # finished epochs
    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    evaluations_since_best: int = 0
    best_score: dict[str, list[float]] = field(default_factory=dict)  # "" or the task -> best (score, -loss)
    best_epoch: dict[str, int] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)  # units of mixed metrics, from the first evaluation
    epochs: list[dict[str, Any]] = field(default_factory=list)
    started: str = ""

    def choose(self, val: Metrics, suite: TaskSuite, selection: str, independent: bool) -> list[str]:
        """Compare this epoch with the best so far on validation; return what it is better for: "" stands for the
        whole network; where nothing is shared (`independent`), every task chooses its own epoch."""
        score = {task.name: self._score(val, task.name, task.metrics[0], suite, selection) for task in suite.tasks}
        # Small validation sets tie often: of two epochs with the same score the one with the smaller loss is better.
        pairs = {task: [value, -val[task]["loss"]] for task, value in score.items()}
        groups = pairs if independent else {"": [sum(part) / len(pairs) for part in zip(*pairs.values(), strict=True)]}
        improved = []
        for group, value in groups.items():
            if group not in self.best_score or value > self.best_score[group] or selection == "last":
                self.best_score[group], self.best_epoch[group] = value, self.epoch
                improved.append(group)
        self.evaluations_since_best = 0 if improved else self.evaluations_since_best + 1
        return improved

    def _score(self, val: Metrics, task: str, metric: str, suite: TaskSuite, selection: str) -> float:
        """A task's part of the validation score, larger is better. Where main metrics differ in kind, each is taken
        relative to its size in the first evaluation, so that no unit rules."""
        if selection == "loss":
            return -val[task]["loss"]
        value = val[task][metric] if higher_is_better(metric) else -val[task][metric]
        if len({t.metrics[0] for t in suite.tasks}) == 1:
            return value
        scale = self.scales.setdefault(task, abs(value) or 1.0)
        return value / scale


class Trainer:
    """One run on this worker. `folder` receives checkpoints; without one nothing is written and nothing resumed."""

    def __init__(
        self,
        run: Run,
        data: PreparedData,
        *,
        folder: Path | None = None,
        workers: Workers | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.run, self.data, self.suite = run, data, data.suite
        self.spec: TrainingSpec = run.training
        self.workers = workers or Workers.current()
        self.device = torch.device(device)
        self.dtype: torch.dtype = getattr(torch, self.spec.dtype)
        self.path = None if folder is None else folder / "checkpoint.pt"
        model, objective = build_model(run, self.suite)
        self.model = model.to(self.device)
        if self.spec.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        kind = self.spec.augment
        self.augment = None if kind == "none" else Augment(kind, self.suite, derive_seed("augment", run.seed))
        self.waited = 0.0  # seconds of this epoch in which batches were made
        self.objective = None if objective is None else objective.to(self.device)
        self.train_data = self._device(data.splits["train"])
        self.model.from_data({name: t for samples in self.train_data.values() for name, t in samples.targets.items()})
        sizes = {stream: len(samples) for stream, samples in self.train_data.items()}
        self.sampler = EpochSampler(
            sizes, self.spec.batch_size, derive_seed("order", run.seed), steps_per_epoch=self.spec.steps_per_epoch
        )
        self.query = EpochSampler(
            sizes, self.spec.batch_size, derive_seed("query", run.seed), steps_per_epoch=self.sampler.steps
        )
        balancer = run.component("balancers", "balancer")
        parameters = list(self.model.parameters())
        if self.objective is not None:
            known = {id(p) for p in parameters}
            parameters += [p for p in self.objective.parameters() if id(p) not in known]
        self.optimizer = _optimizer(self.spec, parameters)
        state = None
        if hasattr(balancer, "from_data"):
            first = {name: self.train_data[stream] for stream, tasks in self.suite.streams.items() for name in tasks}
            state = balancer.from_data(
                {name: s.inputs for name, s in first.items()}, {name: s.targets[name] for name, s in first.items()}
            )
        self.step = Step(
            self.model,
            self.suite,
            balancer,
            self.optimizer,
            objective=self.objective,
            workers=self.workers,
            clip=self.spec.clip,
            amp=self.spec.amp,
            gramian_every=self.spec.gramian_every,
            seed=derive_seed("balancer", run.seed),
            state=state,
        )
        # A worker without a sample has to run the network all the same, if its layers exchange something.
        self.together = self.workers.size > 1 and (needs_every_worker(self.model) or self.model.joint_backward)
        self.at = Progress(started=now())
        self.best: dict[str, dict[str, Tensor]] = {}  # "" or the task -> the parameters of its best epoch

    # -- the run ---------------------------------------------------------------------------------------------------

    def train(self) -> Generator[Epoch, None, RunRecord]:
        """Yield each epoch as it ends; return the record. A diverged run returns a record that says so."""
        self._resume()
        saved = time.monotonic()
        try:
            while self.at.epoch < self.spec.epochs and not self._stopped():
                entry = self._epoch(self.at.epoch + 1)
                # The last epoch's state is not needed again: the record follows at once.
                if time.monotonic() - saved >= self.spec.checkpoint_seconds and self.at.epoch < self.spec.epochs:
                    self._save()
                    saved = time.monotonic()
                yield entry
            return self._record("finished")
        except Diverged as error:
            return self._record("diverged", str(error))

    def _epoch(self, epoch: int) -> Epoch:
        started = time.perf_counter()
        torch.manual_seed(derive_seed("epoch", self.run.seed, epoch, self.workers.rank))
        self.model.train()
        size = len(self.suite.tasks)
        losses = torch.zeros(size, dtype=torch.float64, device=self.device)
        seen = torch.zeros_like(losses)
        weights = torch.zeros_like(losses)
        self.waited = 0.0
        queries = self.query.epoch(epoch) if self.step.balancer.needs == "validation" else None
        for indices in self.sampler.epoch(epoch):
            self._schedule()
            query = None if queries is None else self._micros(next(queries))
            result = self.step(self._micros(indices), query)
            there = ~result.losses.isnan()
            losses += torch.where(there, result.losses, 0.0)
            seen += there
            weights += result.weights
            self.at.step += 1
            self.at.samples += sum(len(index) for index in indices.values())
        trained = time.perf_counter()
        names = [task.name for task in self.suite.tasks]
        means = losses / seen
        self.step.balancer_state = self.step.balancer.on_epoch_end(means, self.step.balancer_state)
        self.model.on_epoch_end(epoch)
        if self.objective is not None:
            self.model.eval()
            with torch.no_grad():
                self.objective.on_epoch_end(_View(self))
        self.at.epoch = epoch
        last = epoch == self.spec.epochs
        val: Metrics = {}
        if epoch % self.spec.evaluate_every == 0 or last:
            val = self.evaluate("val")
            self._select(val)
        self.at.train_seconds += trained - started
        self.at.seconds += time.perf_counter() - started
        mean_weights = (weights / self.sampler.steps).tolist()
        traces = {} if self.objective is None else self.objective.traces()
        if self.suite.input_kind == "image":
            traces["data_share"] = self.waited / (trained - started)
        if self.objective is not None and (last or self._stopped()):
            traces |= self.objective.final_traces()
        entry = Epoch(
            epoch=epoch,
            train_loss=dict(zip(names, means.tolist(), strict=True)),
            val=val,
            seconds=trained - started,
            weights={} if any(w != w for w in mean_weights) else dict(zip(names, mean_weights, strict=True)),
            traces=traces,
        )
        self.at.epochs.append(entry.model_dump())
        return entry

    def _stopped(self) -> bool:
        return self.spec.patience is not None and self.at.evaluations_since_best >= self.spec.patience

    # -- batches ---------------------------------------------------------------------------------------------------

    def _device(self, split: dict[str, Samples]) -> dict[str, Samples]:
        return on_device(split, self.device, self.dtype)

    def _micros(self, indices: dict[str, Tensor]) -> list[list[Batch]]:
        """This worker's part of a global step, cut into micro-batches; a stream without samples here is left out, but
        where the network waits for all workers."""
        started = time.perf_counter()
        micros: list[list[Batch]] = [[] for _ in range(self.spec.accumulate)]
        for stream, index in indices.items():
            mine = slice_for(index, self.workers.rank, self.workers.size)
            for micro, part in zip(micros, mine.tensor_split(self.spec.accumulate), strict=True):
                if len(part) or self.together:
                    samples = self.train_data[stream].take(part.to(self.device))
                    if self.augment is not None:
                        samples = self.augment(samples, stream, self.at.epoch + 1, part)
                    micro.append(Batch(stream, samples, len(index)))
        self.waited += time.perf_counter() - started
        return micros

    def _schedule(self) -> None:
        """Set the learning rate of the step to come."""
        if self.spec.schedule == "constant":
            return
        factor = schedule_factor(self.spec, self.at.step, self.spec.epochs * self.sampler.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.spec.lr * factor

    # -- evaluation ------------------------------------------------------------------------------------------------

    def batches(self, split: str) -> Iterator[Batch]:
        """This worker's share of a split in order, in evaluation batches."""
        data = self.train_data if split == "train" else self._device(self.data.splits[split])
        for stream, samples in data.items():
            mine = slice_for(torch.arange(len(samples)), self.workers.rank, self.workers.size)
            for part in mine.split(self.spec.eval_batch_size):
                if len(part):
                    yield Batch(stream, samples.take(part.to(self.device)), len(samples))

    @torch.no_grad()
    def evaluate(self, split: str) -> Metrics:
        """Task -> metric -> value over the whole split, "loss" included; the same for any number of workers."""
        self.model.eval()
        metrics = {task.name: task_metrics(task).to(self.device) for task in self.suite.tasks}
        names = {task.name: index for index, task in enumerate(self.suite.tasks)}
        sums = torch.zeros(2, len(names), dtype=torch.float64, device=self.device)
        for batch in self.batches(split):
            outputs = self.model(batch)
            for name, target in batch.samples.targets.items():
                task = self.suite.tasks[names[name]]
                metrics[name].update(outputs.predictions[name], target)
                total, count = task_loss(task.loss, outputs.predictions[name], target)
                sums[:, names[name]] += torch.stack([total, count.to(total.dtype)])
        self.workers.sum(sums)
        losses = (sums[0] / sums[1]).tolist()
        return {name: {**metrics[name].compute(), "loss": losses[index]} for name, index in names.items()}

    # -- selection -------------------------------------------------------------------------------------------------

    def _select(self, val: Metrics) -> None:
        """Keep the parameters of the best epoch so far, for every task its own where nothing is shared."""
        for group in self.at.choose(val, self.suite, self.spec.selection, self.model.independent):
            self.best[group] = self._snapshot(group)

    def _snapshot(self, group: str) -> dict[str, Tensor]:
        state = self.model.state_dict()
        if group:
            mine = {id(p) for p in self.model.task_parameters(group)}
            keys = {key for key, p in self.model.named_parameters() if id(p) in mine}
            modules = {key.rpartition(".")[0] for key in keys}
            keys |= {key for key, _ in self.model.named_buffers() if key.rpartition(".")[0] in modules}
            state = {key: state[key] for key in keys}
        return {key: value.detach().clone() for key, value in state.items()}

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self.path is not None and self.workers.rank == 0:
            self.save(self.path)

    def save(self, path: Path) -> None:
        """Write everything the run needs to go on from here."""
        checkpoint.save(
            path,
            {
                "run_id": self.run.run_id,
                "model": self.model.state_dict(),
                "objective": None if self.objective is None else self.objective.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "balancer": self.step.balancer_state,
                "loss_scale": self.step.loss_scale,
                "good_steps": self.step.good_steps,
                "skipped": self.step.skipped,
                "step_count": self.step.count,
                "reused": self.step.reused,
                "best": self.best,
                "progress": vars(self.at),
            },
        )

    def _resume(self) -> None:
        content = None if self.path is None else checkpoint.load(self.path, self.device)
        if content is not None and content["run_id"] == self.run.run_id:
            self._restore(content)

    def adopt(self, path: Path) -> None:
        """Go on from what another run has saved, with the settings of this one: population-based training."""
        content = checkpoint.load(path, self.device)
        assert content is not None, path
        own = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        self._restore(content)
        for group, settings in zip(self.optimizer.param_groups, own, strict=True):
            group.update(settings)

    def _restore(self, content: dict[str, Any]) -> None:
        self.model.load_state_dict(content["model"])
        if self.objective is not None:
            self.objective.load_state_dict(content["objective"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.step.balancer_state = content["balancer"]
        self.step.loss_scale, self.step.good_steps = content["loss_scale"], content["good_steps"]
        self.step.skipped = content["skipped"]
        self.step.count, self.step.reused = content["step_count"], content["reused"]
        self.best = content["best"]
        self.at = Progress(**content["progress"])

    @torch.no_grad()
    def pictures(self, count: int = 6) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]] | None:
        """Test images [N, ...], evenly spread over the split, and for each task with maps the chosen network's
        prediction and the truth, on the CPU; None where no task has maps, or the run chose no network."""
        samples = self.data.splits["test"].get("all")
        if samples is None or self.suite.input_kind != "image" or not hasattr(self, "chosen_state"):
            return None
        names = [name for name, target in samples.targets.items() if target.ndim >= 3]
        if not names or not len(samples):
            return None
        index = torch.linspace(0, len(samples) - 1, min(count, len(samples))).round().long()
        chosen = self._device({"all": samples.take(index)})["all"]
        final = deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.chosen_state)
        self.model.eval()
        found = self.model(Batch("all", chosen, len(index))).predictions
        self.model.load_state_dict(final)
        return samples.inputs[index], {name: (found[name].cpu(), samples.targets[name][index]) for name in names}

    # -- the record ------------------------------------------------------------------------------------------------

    def _record(self, status: Literal["finished", "diverged"], error: str | None = None) -> RunRecord:
        started = time.perf_counter()
        last: dict[str, Metrics] = {}
        chosen: dict[str, Metrics] = {}
        if status == "finished":
            last = {split: self.evaluate(split) for split in ("val", "test")}
            final = deepcopy(self.model.state_dict())
            for state in self.best.values():
                self.model.load_state_dict(state, strict=False)
            # An epoch is chosen on validation before test is looked at; test of the choice is computed once.
            chosen = {split: self.evaluate(split) for split in ("train", "val", "test")}
            self.chosen_state = deepcopy(self.model.state_dict())
            self.model.load_state_dict(final)
        counters = {
            name: int(self.step.balancer_state[name].sum())
            for name in self.step.balancer.counters
            if name in self.step.balancer_state
        }
        if self.spec.amp == "fp16":
            counters["skipped_steps"] = self.step.skipped
        self.at.seconds += time.perf_counter() - started
        return run_record(
            self.run,
            self.suite,
            self.model,
            self.at,
            status,
            error,
            metrics=chosen,
            last=last,
            counters=counters,
            workers=self.workers.size,
            device=self.device,
        )


class _View:
    """The training set as an objective sees it when an epoch ends."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def outputs(self) -> Iterator[tuple[Batch, Outputs]]:
        for batch in self._trainer.batches("train"):
            yield batch, self._trainer.model(batch)

    def sum(self, tensor: Tensor) -> Tensor:
        return self._trainer.workers.sum(tensor)


def _optimizer(spec: TrainingSpec, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    if spec.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay)
    kind = torch.optim.Adam if spec.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=spec.lr, weight_decay=spec.weight_decay, foreach=True)


def schedule_factor(spec: TrainingSpec, step: int, total: int) -> float:
    """The learning rate of a step (from 0) of `total`, over `spec.lr`. TOMATO's exponential decay has a continuous
    exponent."""
    if spec.schedule == "constant":
        return 1.0
    if spec.schedule == "exponential":
        return spec.decay_rate ** (step / spec.decay_steps)
    return 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / total)).item())


def on_device(split: dict[str, Samples], device: torch.device, dtype: torch.dtype) -> dict[str, Samples]:
    """Tensors where the model is, numbers in the run's precision."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    return {
        stream: Samples(move(s.inputs), {name: move(target) for name, target in s.targets.items()})
        for stream, s in split.items()
    }


def run_record(
    run: Run,
    suite: TaskSuite,
    model: MultiTaskModule,
    at: Progress,
    status: Literal["finished", "diverged"],
    error: str | None,
    *,
    metrics: dict[str, Metrics],
    last: dict[str, Metrics],
    counters: dict[str, int],
    workers: int,
    device: torch.device,
) -> RunRecord:
    """The record of a run that has ended. metrics, last: split -> metrics at the chosen and after the last epoch."""
    metric_names = {metric for task in suite.tasks for metric in task.metrics}
    return RunRecord(
        run_id=run.run_id,
        experiment=run.experiment,
        dataset=run.dataset,
        method=run.method,
        seed=run.seed,
        status=status,
        error=error,
        spec=run.spec,
        fingerprint=run.fingerprint,
        higher_is_better={**{name: higher_is_better(name) for name in metric_names}, "loss": False},
        main_metrics={task.name: task.metrics[0] for task in suite.tasks},
        metrics=metrics,
        last=last,
        chosen_epoch=at.best_epoch.get(""),
        chosen_epochs={task: epoch for task, epoch in at.best_epoch.items() if task},
        epochs=[Epoch.model_validate(entry) for entry in at.epochs],
        seconds=at.seconds,
        train_seconds=at.train_seconds,
        steps=at.step,
        samples=at.samples,
        peak_memory_mb=provenance.peak_memory_mb(device),
        parameters=sum(p.numel() for p in model.parameters()),
        shared_parameters=sum(p.numel() for p in model.shared_parameters()),
        counters=counters,
        workers=workers,
        hardware=provenance.hardware(device),
        versions=provenance.versions(),
        revision=provenance.revision(),
        started=at.started,
        finished=now(),
        trial=run.trial,
    )


def now() -> str:
    """This moment, ISO 8601, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def train(
    run: Run,
    data: PreparedData,
    *,
    folder: Path | None = None,
    workers: Workers | None = None,
    device: torch.device | str = "cpu",
) -> RunRecord:
    """Train one run in this process, to the end, and return its record."""
    steps = Trainer(run, data, folder=folder, workers=workers, device=device).train()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
