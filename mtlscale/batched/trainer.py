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

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from mtlscale.architectures import MultiTaskModule
from mtlscale.balancing import Balancer, State
from mtlscale.batched import planning
from mtlscale.batched.balancer import BatchedBalancer
from mtlscale.batched.lengths import by_length
from mtlscale.batched.optimizer import BatchedOptimizer
from mtlscale.data import Batch, Samples
from mtlscale.data.prepared import PreparedData
from mtlscale.data.sampler import EpochSampler
from mtlscale.encoders import Dropout, drawn
from mtlscale.metrics import TaskMetrics, pooled, pooled_metrics, pooled_sums
from mtlscale.objectives import ProximalModule
from mtlscale.records import Epoch, Metrics, RunRecord
from mtlscale.spec import MISSING_CLASS, Run, Task, TaskSuite, UserError
from mtlscale.training import (
    Diverged,
    Progress,
    Selection,
    bad_gradient,
    bad_loss,
    build_model,
    derive_seed,
    head_weights,
    mean_losses,
    now,
    on_device,
    run_record,
    schedule_factor,
    task_loss,
)

_EVALUATED = 1 << 18  # samples x trials in one evaluation pass


@dataclass(frozen=True)
class _Part:
    """What one batched pass works on: one stream, or a group of streams side by side.

    indices: [n], or [t, n] for t streams, -1 at places without a sample. uniform: the numbers of each dropout module.
    With `per_trial`, where the trials' seeds differ, all have a leading dimension of trials.
    """

    stream: str | int  # its name, or the group's place
    indices: Tensor
    uniform: tuple[Tensor, ...]
    per_trial: bool

    def keep(self, trials: Tensor) -> _Part:
        if not self.per_trial:
            return self
        return replace(self, indices=self.indices[trials], uniform=tuple(u[trials] for u in self.uniform))


@dataclass(frozen=True)
class _Slot:
    """A batched tensor: one parameter of all trials [B, ...], or of all trials and tasks [B, T, ...]."""

    names: tuple[str, ...]  # in the network; one per task where the tasks are side by side
    task: int | None = None  # whose own it is
    side_by_side: bool = False

    @property
    def shared(self) -> bool:
        return self.task is None and not self.side_by_side


@dataclass(frozen=True)
class _Update:
    losses: Tensor  # [B, T] float64, NaN where a task had no label
    weights: Tensor  # [B, T] float64
    gradients: list[Tensor | None]  # of the slots


class _Leaving(Exception):
    """Some trials cannot go on: their places and why."""

    def __init__(self, causes: dict[int, Exception]) -> None:
        super().__init__(str(causes))
        self.causes = causes


@dataclass(frozen=True)
class _Place:
    """A dropout module in a stream's forward pass: the shape of its input for one sample, and where samples go."""

    shape: tuple[int, ...]
    axis: int

    def of(self, samples: int) -> list[int]:
        return [*self.shape[: self.axis], samples, *self.shape[self.axis + 1 :]]


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
        self.runs, self.suite = list(runs), data.suite
        self.spec = runs[0].training
        self.device, self.dtype = torch.device(device), getattr(torch, self.spec.dtype)
        self.names = [task.name for task in self.suite.tasks]
        self.data = {split: on_device(streams, self.device, self.dtype) for split, streams in data.splits.items()}
        built = {run.seed: build_model(run, self.suite) for run in runs}
        self.model, objective = built[runs[0].seed]
        if objective is not None and not isinstance(objective, ProximalModule):
            raise UserError(f"the objective of {runs[0].method} cannot be batched")
        self.objective = objective
        self.model.to(self.device)
        self.joined = tasks_are_alike(self.model, self.suite, self.data["train"])
        self.groups = self._groups() if self.joined else []
        self.padded = {
            split: [_pad(streams, [self.names[task] for task in group]) for group in self.groups]
            for split, streams in self.data.items()
        }
        self.slots = self._layout()
        self.values = self._values([built[run.seed][0] for run in runs])
        self.best = [value.clone() for value in self.values]
        self.rates = self._dropout_rates()
        first = {s: self.names[self.groups[s][0]] if isinstance(s, int) else s for s in self._passes()}
        self.places = {stream: self._dropout_places(name) for stream, name in first.items()}
        self.balancers: list[Balancer] = [run.parts.balancer for run in runs]
        self.balancer = BatchedBalancer(self.balancers)
        self.state = self._balancer_state()
        specs = [run.training for run in runs]
        decay, momentum = ([getattr(s, name) for s in specs] for name in ("weight_decay", "momentum"))
        self.optimizer = BatchedOptimizer(self.spec.optimizer, self._tensor(decay), self._tensor(momentum))
        self.at = [Progress(started=now()) for _ in runs]
        self.selections = [Selection() for _ in runs]
        self.samplers = {run.seed: self._sampler(run.seed) for run in runs}
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
        shape = (len(self.runs), len(self.names))
        self.losses = torch.zeros(shape, dtype=torch.float64, device=self.device)
        self.seen, self.weights = torch.zeros_like(self.losses), torch.zeros_like(self.losses)
        total = self.spec.epochs * self._steps_per_epoch
        for parts, samples in self._steps(epoch):
            update = None
            while self.runs and update is None:
                try:
                    update = self._differentiate(parts)
                except _Leaving as leaving:
                    kept = self._leave(leaving.causes)
                    parts = [part.keep(kept) for part in parts]
            if update is None:
                return
            specs = [run.training for run in self.runs]
            lr = [s.lr * schedule_factor(s, at.step, total) for s, at in zip(specs, self.at, strict=True)]
            self._update(update, self._tensor(lr))
            there = ~update.losses.isnan()
            self.losses += torch.where(there, update.losses, 0.0)
            self.seen += there
            self.weights += update.weights
            for at in self.at:
                at.step += 1
                at.samples += samples
        self._close(epoch, started, time.perf_counter())

    def _close(self, epoch: int, started: float, trained: float) -> None:
        """Validate, choose, note down the epoch, and let go of the trials that stop early."""
        means = self.losses / self.seen
        self.state = self.balancer.on_epoch_end(means, self.state)
        last = epoch == self.spec.epochs
        vals: list[Metrics] = [{} for _ in self.runs]
        for at in self.at:
            at.epoch = epoch
        if epoch % self.spec.evaluate_every == 0 or last:
            vals = self.evaluate("val", self.values)
            self._choose(vals)
        stopped = [self.spec.patience is not None and s.since_best >= self.spec.patience for s in self.selections]
        weights, losses = (self.weights / self._steps_per_epoch).tolist(), means.tolist()
        special = None if self.objective is None else self._special()
        share = 1.0 / len(self.runs)  # of the time of all
        for index, at in enumerate(self.at):
            at.train_seconds += (trained - started) * share
            at.seconds += (time.perf_counter() - started) * share
            traces = {}
            if special is not None and self.objective is not None:
                traces = self.objective.traces_of(special[index], last or stopped[index])
            entry = Epoch(
                epoch=epoch,
                train_loss=dict(zip(self.names, losses[index], strict=True)),
                val=vals[index],
                seconds=(trained - started) * share,
                weights={}
                if any(w != w for w in weights[index])
                else dict(zip(self.names, weights[index], strict=True)),
                traces=traces,
            )
            at.epochs.append(entry.model_dump())
        if any(stopped) and not last:
            self._finish([index for index, stop in enumerate(stopped) if stop])

    # -- trials that leave -----------------------------------------------------------------------------------------

    def _leave(self, causes: dict[int, Exception]) -> Tensor:
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
        self.rates = {name: rate[index] for name, rate in self.rates.items()}
        self.state = {key: value[index] for key, value in self.state.items()}
        self.losses, self.seen, self.weights = self.losses[index], self.seen[index], self.weights[index]
        self.optimizer.keep(index)
        self.runs, self.at = [self.runs[i] for i in places], [self.at[i] for i in places]
        self.selections = [self.selections[i] for i in places]
        self.balancers = [self.balancers[i] for i in places]
        if places:
            self.balancer = BatchedBalancer(self.balancers)
        return index

    def _record(
        self,
        place: int,
        *,
        error: str | None = None,
        metrics: dict[str, Metrics] | None = None,
        last: dict[str, Metrics] | None = None,
    ) -> RunRecord:
        counters = [name for name in self.balancers[place].counters if name in self.state]
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
            counters={name: int(self.state[name][place].sum()) for name in counters},
            workers=1,
            device=self.device,
        )

    def _state_dict(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """One trial's values of the slots by the parameters' names."""
        result: dict[str, Tensor] = {}
        for slot, value in zip(self.slots, values, strict=True):
            parts = value.unbind() if slot.side_by_side else [value]
            result |= {name: part.clone() for name, part in zip(slot.names, parts, strict=True)}
        return result

    # -- what is batched -------------------------------------------------------------------------------------------

    def _layout(self) -> list[_Slot]:
        """The shared parameters, then the tasks' own, side by side where the tasks are."""
        name_of = {id(p): name for name, p in self.model.named_parameters()}
        slots = [_Slot((name_of[id(p)],)) for p in self.model.shared_parameters()]
        own = [[name_of[id(p)] for p in self.model.task_parameters(task)] for task in self.names]
        if self.joined:
            return slots + [_Slot(names, side_by_side=True) for names in zip(*own, strict=True)]
        return slots + [_Slot((name,), task) for task, names in enumerate(own) for name in names]

    def _values(self, models: Sequence[MultiTaskModule]) -> list[Tensor]:
        states = [{name: p.detach().to(self.device) for name, p in model.named_parameters()} for model in models]
        return [
            torch.stack(
                [
                    torch.stack([state[name] for name in slot.names]) if slot.side_by_side else state[slot.names[0]]
                    for state in states
                ]
            )
            for slot in self.slots
        ]

    def _groups(self) -> list[list[int]]:
        """The tasks whose streams are side by side in one pass each."""
        lengths = [min(len(self.data["train"][name]), self.spec.batch_size) for name in self.names]
        work = planning.multiplications(self.model, self.names[:1])
        return by_length(lengths, planning.pass_in_samples(work, len(self.runs)))

    def _passes(self) -> list[str | int]:
        return list(range(len(self.groups))) if self.joined else list(self.suite.streams)

    def _dropout_rates(self) -> dict[str, Tensor]:
        """Name of each dropout module's buffer -> the trials' rates [B]; what no trial drops is switched off."""
        models = [build_model(run, self.suite)[0] for run in self.runs] if self._rates_differ() else [self.model]
        rates = {}
        for name, module in self.model.named_modules():
            if isinstance(module, Dropout):
                found = torch.stack([model.get_buffer(f"{name}.rate") for model in models])
                module.active = bool((found > 0).any())
                if module.active:
                    rates[f"{name}.rate"] = found.expand(len(self.runs)).to(self.device)
        return rates

    def _rates_differ(self) -> bool:
        return len({(run.parts.dropout, getattr(run.parts.encoder, "dropout", None)) for run in self.runs}) > 1

    def _dropout_places(self, name: str) -> list[_Place]:
        """The active dropout modules of a forward pass in the order they run, found by running it with 2 and 3."""
        if not self.rates:
            return []
        shapes: list[list[torch.Size]] = []
        for count in (2, 3):
            seen: list[torch.Size] = []
            hooks = [
                module.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0].shape))
                for module in self.model.modules()
                if isinstance(module, Dropout) and module.active
            ]
            samples = self.data["train"][name]
            part = samples.take(torch.zeros(count, dtype=torch.int64, device=self.device))
            with torch.no_grad():
                self.model.eval()
                self.model(Batch(name, part, count))
                self.model.train()
            for hook in hooks:
                hook.remove()
            shapes.append(seen)
        return [
            _Place(tuple(two), next(axis for axis in range(len(two)) if two[axis] != three[axis]))
            for two, three in zip(*shapes, strict=True)
        ]

    def _balancer_state(self) -> State:
        states = []
        for run, balancer in zip(self.runs, self.balancers, strict=True):
            if hasattr(balancer, "from_data"):
                train = self.data["train"]
                first = {name: train[stream] for stream, tasks in self.suite.streams.items() for name in tasks}
                inputs = {name: samples.inputs for name, samples in first.items()}
                states.append(balancer.from_data(inputs, {n: samples.targets[n] for n, samples in first.items()}))
            else:
                states.append(balancer.init(len(self.names), seed=derive_seed("balancer", run.seed)))
        return {key: torch.stack([state[key] for state in states]).to(self.device) for key in states[0]}

    def _tensor(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _sampler(self, seed: int) -> EpochSampler:
        sizes = {stream: len(samples) for stream, samples in self.data["train"].items()}
        order = derive_seed("order", seed)
        return EpochSampler(sizes, self.spec.batch_size, order, steps_per_epoch=self.spec.steps_per_epoch)

    @property
    def _steps_per_epoch(self) -> int:
        return next(iter(self.samplers.values())).steps

    def _steps(self, epoch: int) -> Iterator[tuple[list[_Part], int]]:
        """The parts of each step and how many samples a trial sees in it. Every seed has its order and its random
        numbers, as the loop of a single run draws them."""
        seeds = list(dict.fromkeys(run.seed for run in self.runs))
        steps = {seed: self.samplers[seed].epoch(epoch) for seed in seeds}
        generators = {
            seed: torch.Generator(self.device).manual_seed(derive_seed("epoch", seed, epoch, 0)) for seed in seeds
        }
        for _ in range(self._steps_per_epoch):
            indices = {seed: next(steps[seed]) for seed in seeds}
            found = {seed: self._seed_parts(indices[seed], generators[seed]) for seed in seeds}
            samples = sum(len(index) for index in indices[seeds[0]].values())
            if len(seeds) == 1:
                yield found[seeds[0]], samples
            else:
                yield (
                    [self._of_trials([found[run.seed][i] for run in self.runs]) for i in range(len(found[seeds[0]]))],
                    samples,
                )

    @staticmethod
    def _of_trials(parts: Sequence[_Part]) -> _Part:
        uniform = tuple(torch.stack(drawn) for drawn in zip(*(part.uniform for part in parts), strict=True))
        return _Part(parts[0].stream, torch.stack([part.indices for part in parts]), uniform, True)

    def _seed_parts(self, indices: dict[str, Tensor], generator: torch.Generator) -> list[_Part]:
        def numbers(place: _Place, samples: int) -> Tensor:
            return torch.rand(place.of(samples), generator=generator, dtype=self.dtype, device=self.device)

        if not self.joined:
            return [
                _Part(s, index.to(self.device), tuple(numbers(p, len(index)) for p in self.places[s]), False)
                for s, index in indices.items()
            ]
        places = self.places[0]
        uniform = {name: [numbers(place, len(index)) for place in places] for name, index in indices.items()}
        parts = []
        for number, group in enumerate(self.groups):
            names = [self.names[task] for task in group]
            longest = max(len(indices[name]) for name in names)
            side_by_side = torch.full((len(group), longest), -1)
            filled = [torch.zeros(len(group), *p.of(longest), dtype=self.dtype, device=self.device) for p in places]
            for row, name in enumerate(names):
                side_by_side[row, : len(indices[name])] = indices[name]
                for place, target, drawn_ in zip(places, filled, uniform[name], strict=True):
                    target[row].narrow(place.axis, 0, len(indices[name])).copy_(drawn_)
            parts.append(_Part(number, side_by_side.to(self.device), tuple(filled), False))
        return parts

    # -- forward ---------------------------------------------------------------------------------------------------

    def _predict(
        self,
        names: Sequence[str],
        values: Sequence[Tensor],
        rates: dict[str, Tensor],
        stream: str,
        inputs: Tensor,
        targets: dict[str, Tensor],
        uniform: Sequence[Tensor],
    ) -> dict[str, Tensor]:
        """One trial's predictions of one stream; runs under vmap."""
        named = dict(zip(names, values, strict=True)) | rates
        batch = Batch(stream, Samples(inputs, targets), len(inputs))
        with drawn(iter(uniform)):
            outputs = functional_call(self.model, named, (batch,), tie_weights=False)
        predictions: dict[str, Tensor] = outputs.predictions
        return predictions

    def _sums(self, part: _Part, leaves: Sequence[Tensor], expanded: bool) -> tuple[list[int], Tensor, Tensor]:
        """(tasks, sums of losses [B, tasks], counts [B, tasks]) of a part, differentiable in the leaves: of the slots,
        those of tasks side by side cut to the part's tasks."""
        each = 0 if part.per_trial else None
        if isinstance(part.stream, str):
            stream, tasks = part.stream, self.suite.streams[part.stream]
            slots = [i for i, slot in enumerate(self.slots) if slot.task is None or self.names[slot.task] in tasks]
            samples = self.data["train"][stream].take(part.indices)

            def one_stream(
                values: Any, rates: Any, inputs: Tensor, targets: Any, uniform: Any
            ) -> tuple[Tensor, Tensor]:
                found = self._predict(
                    [self.slots[i].names[0] for i in slots], values, rates, stream, inputs, targets, uniform
                )
                pairs = [task_loss(self._task(name).loss, found[name], targets[name]) for name in tasks]
                return torch.stack([p[0] for p in pairs]), torch.stack([p[1] for p in pairs])

            sums, counts = vmap(one_stream, in_dims=(0, 0, each, each, each))(
                [leaves[i] for i in slots], self.rates, samples.inputs, samples.targets, part.uniform
            )
            return [self.names.index(name) for name in tasks], sums, counts
        inputs, targets = self.padded["train"][part.stream].take(part.indices)
        names, first = [slot.names[0] for slot in self.slots], self.names[0]
        over_tasks = [None if slot.shared and not expanded else 0 for slot in self.slots]

        def one_task(values: Any, rates: Any, inputs: Tensor, target: Tensor, uniform: Any) -> tuple[Tensor, Tensor]:
            found = self._predict(names, values, rates, first, inputs, {first: target}, uniform)
            return task_loss(self.suite.tasks[0].loss, found[first], target)

        tasks_at_once = vmap(one_task, in_dims=(over_tasks, None, 0, 0, 0))
        sums, counts = vmap(tasks_at_once, in_dims=(0, 0, each, each, each))(
            list(leaves), self.rates, inputs, targets, part.uniform
        )
        return self.groups[part.stream], sums, counts

    def _of_groups(self, values: Sequence[Tensor], slots_apart: Sequence[bool]) -> list[list[Tensor]]:
        """For each group, the values of the slots cut to its tasks where `slots_apart` says that tasks are apart."""
        order = torch.tensor([task for group in self.groups for task in group], device=self.device)
        sizes = [len(group) for group in self.groups]
        if len(sizes) == 1:
            return [list(values)]
        columns = [
            value.index_select(1, order).split(sizes, dim=1) if apart else [value] * len(sizes)
            for value, apart in zip(values, slots_apart, strict=True)
        ]
        return [list(group) for group in zip(*columns, strict=True)]

    def _task(self, name: str) -> Task:
        return self.suite.tasks[self.names.index(name)]

    # -- a step ----------------------------------------------------------------------------------------------------

    def _differentiate(self, parts: Sequence[_Part]) -> _Update:
        """Losses, weights and gradients of all trials. Raises `_Leaving` where a trial has diverged."""
        one, size = self.balancers[0], len(self.names)
        shared = [i for i, slot in enumerate(self.slots) if slot.shared]
        by_losses = one.needs == "losses" or not shared or size == 1
        expanded = self.joined and not by_losses
        leaves = [value.detach() for value in self.values]
        if expanded:  # a copy per task, so that one pass gives each task's gradient
            leaves = [
                leaf.unsqueeze(1).expand(-1, size, *leaf.shape[1:]) if slot.shared else leaf
                for slot, leaf in zip(self.slots, leaves, strict=True)
            ]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        cut = self._of_groups(leaves, [slot.side_by_side or expanded for slot in self.slots]) if self.joined else []
        found = [self._sums(part, cut[i] if self.joined else leaves, expanded) for i, part in enumerate(parts)]
        order = torch.tensor([task for tasks, _, _ in found for task in tasks], device=self.device).argsort()
        sums = torch.cat([s for _, s, _ in found], dim=1)[:, order]
        counts = torch.cat([c for _, _, c in found], dim=1)[:, order].to(torch.float64)
        losses, present, bad = mean_losses(sums.detach().to(torch.float64), counts, one)
        if bool(bad.any()):
            raise _Leaving({b: self._bad_loss(b, losses, bad) for b in bad.any(1).nonzero().flatten().tolist()})
        per_sum = 1.0 / counts.clamp(min=1)
        alone = self.model.independent or size == 1
        if by_losses:
            weights = present.to(torch.float64) if alone else self._balance(losses, None, present)
            return _Update(losses, weights, self._by_losses(sums, leaves, weights, present, per_sum))
        rows = self._rows(sums, leaves, shared)
        k = torch.zeros(len(self.runs), size, size, dtype=torch.float64, device=self.device)
        for i in shared:
            of_tasks = rows[i]
            if of_tasks is not None:
                flat = of_tasks.flatten(2)
                k += (flat @ flat.mT).to(torch.float64)
        k = k * per_sum.unsqueeze(2) * per_sum.unsqueeze(1)
        weights = self._balance(losses, k, present)
        gradients: list[Tensor | None] = list(rows)
        along, own = weights * per_sum, head_weights(one, weights, present) * per_sum
        for i, slot in enumerate(self.slots):
            row = gradients[i]
            if row is not None and slot.shared:
                flat = along.unsqueeze(1).to(row.dtype) @ row.flatten(2)
                gradients[i] = flat.reshape(len(row), *row.shape[2:])
            elif row is not None:
                gradients[i] = row * _broadcast(own if slot.side_by_side else own[:, slot.task], row)
        return _Update(losses, weights, gradients)

    def _bad_loss(self, trial: int, losses: Tensor, bad: Tensor) -> Exception:
        return bad_loss(self.balancers[trial], losses[trial], bad[trial], self.names, self.at[trial].step + 1)

    def _balance(self, losses: Tensor, k: Tensor | None, present: Tensor) -> Tensor:
        if k is not None and not bool(k.isfinite().all()):
            places = (~k.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
            raise _Leaving({b: bad_gradient(self.balancers[b], k[b], self.names, self.at[b].step + 1) for b in places})
        weights, self.state = self.balancer.balance(losses, k, self.state, present)
        return weights

    def _by_losses(
        self, sums: Tensor, leaves: Sequence[Tensor], weights: Tensor, present: Tensor, per_sum: Tensor
    ) -> list[Tensor | None]:
        """One backward pass of the weighted losses; a second where heads are weighted otherwise."""
        total = (sums * (weights * per_sum).to(sums.dtype)).sum()
        one = self.balancers[0]
        if self.model.independent or one.heads == "weighted":
            return list(torch.autograd.grad(total, leaves, allow_unused=True))
        of_heads = (sums * (head_weights(one, weights, present) * per_sum).to(sums.dtype)).sum()
        heads = torch.autograd.grad(of_heads, leaves, allow_unused=True, retain_graph=True)
        trunk = torch.autograd.grad(total, leaves, allow_unused=True)
        return [t if slot.shared else h for slot, h, t in zip(self.slots, heads, trunk, strict=True)]

    def _rows(self, sums: Tensor, leaves: Sequence[Tensor], shared: Sequence[int]) -> list[Tensor | None]:
        """Gradients of the sums of losses: of shared parameters by task [B, T, ...], of the tasks' own as they are."""
        if self.joined:
            return list(torch.autograd.grad(sums.sum(), leaves, allow_unused=True))
        result: list[Tensor | None] = [None] * len(leaves)
        by_task: list[list[Tensor | None]] = []
        for task in range(len(self.names)):
            own = [i for i, slot in enumerate(self.slots) if slot.task == task]
            wanted = [leaves[i] for i in (*shared, *own)]
            found = torch.autograd.grad(sums[:, task].sum(), wanted, allow_unused=True, retain_graph=True)
            by_task.append(list(found[: len(shared)]))
            for i, gradient in zip(own, found[len(shared) :], strict=True):
                result[i] = gradient
        for position, i in enumerate(shared):
            column = [row[position] for row in by_task]
            if any(g is not None for g in column):
                result[i] = torch.stack([torch.zeros_like(leaves[i]) if g is None else g for g in column], dim=1)
        return result

    @torch.no_grad()
    def _update(self, update: _Update, lr: Tensor) -> None:
        """Clip, take the optimisers' steps and the proximal ones."""
        gradients = update.gradients
        if self.spec.clip is not None:
            gradients = self._clip(gradients)
        self.optimizer.step(self.values, gradients, lr)
        if self.objective is not None:
            strengths = self._tensor([run.parts.objective.strength for run in self.runs])
            shrunk = self.objective.shrink(self._special(), strengths * lr)
            places = self._special_places()
            if self.joined:
                self.values[places[0]] = shrunk.transpose(1, 2).contiguous()
            else:
                for place, value in zip(places, shrunk.unbind(2), strict=True):
                    self.values[place] = value.contiguous()

    def _special_places(self) -> list[int]:
        assert self.objective is not None
        name_of = {id(p): name for name, p in self.model.named_parameters()}
        wanted = [name_of[id(p)] for p in self.objective.special]
        place_of = {name: place for place, slot in enumerate(self.slots) for name in slot.names}
        return [place_of[name] for name in wanted]

    def _special(self) -> Tensor:
        """The parameters the proximal step works on: [B, K, T, P]."""
        places = self._special_places()
        if self.joined:
            return self.values[places[0]].transpose(1, 2)
        return torch.stack([self.values[place] for place in places], dim=2)

    def _clip(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Clip the norm of each trial's whole gradient, or of each of its networks where nothing is shared."""
        limits = self._tensor([run.training.clip or float("inf") for run in self.runs])
        squares = torch.zeros(len(self.runs), len(self.names), dtype=torch.float64, device=self.device)
        for slot, gradient in zip(self.slots, gradients, strict=True):
            if gradient is None:
                continue
            if slot.side_by_side:
                squares += gradient.flatten(2).pow(2).sum(-1)
            else:
                squares[:, slot.task or 0] += gradient.flatten(1).pow(2).sum(-1)
        if not self.model.independent:
            squares = squares.sum(1, keepdim=True).expand_as(squares)
        factors = (limits.unsqueeze(1) / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        return [
            None if g is None else g * _broadcast(factors if slot.side_by_side else factors[:, slot.task or 0], g)
            for slot, g in zip(self.slots, gradients, strict=True)
        ]

    # -- evaluation and choice -------------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self, split: str, values: Sequence[Tensor]) -> list[Metrics]:
        """For every trial: task -> metric -> value over the whole split, "loss" included. values: of the slots."""
        self.model.eval()
        trials = len(values[0])
        tables = [_Table(task, trials, self.device) for task in self.suite.tasks]
        if self.joined:
            cut = self._of_groups(values, [slot.side_by_side for slot in self.slots])
            for group, of_group, data in zip(self.groups, cut, self.padded[split], strict=True):
                of_tasks = [tables[task] for task in group]
                for piece in self._pieces(data.longest, trials * len(group)):
                    self._measure_side_by_side(of_tasks, of_group, data.inputs[:, piece], data.targets[:, piece])
        else:
            for stream, samples in self.data[split].items():
                for piece in self._pieces(len(samples), trials):
                    targets = {name: target[piece] for name, target in samples.targets.items()}
                    self._measure(tables, stream, values, samples.inputs[piece], targets)
        results = [table.results() for table in tables]
        self.model.train()
        return [{name: found[b] for name, found in zip(self.names, results, strict=True)} for b in range(trials)]

    def _pieces(self, samples: int, copies: int) -> Iterator[slice]:
        size = max(1, min(self.spec.eval_batch_size, _EVALUATED // copies))
        return (slice(start, min(start + size, samples)) for start in range(0, samples, size))

    def _measure(
        self,
        tables: Sequence[_Table],
        stream: str,
        values: Sequence[Tensor],
        inputs: Tensor,
        targets: dict[str, Tensor],
    ) -> None:
        tasks = self.suite.streams[stream]
        slots = [i for i, slot in enumerate(self.slots) if slot.task is None or self.names[slot.task] in tasks]
        names = [self.slots[i].names[0] for i in slots]
        predictions = vmap(lambda v: self._predict(names, v, {}, stream, inputs, targets, ()))(
            [values[i] for i in slots]
        )
        for name in tasks:
            tables[self.names.index(name)].update(predictions[name], targets[name])

    def _measure_side_by_side(
        self, tables: Sequence[_Table], values: Sequence[Tensor], inputs: Tensor, targets: Tensor
    ) -> None:
        names, first = [slot.names[0] for slot in self.slots], self.names[0]
        task = self.suite.tasks[0]
        over_tasks = [None if slot.shared else 0 for slot in self.slots]

        def one_task(values: Any, inputs: Tensor, target: Tensor) -> tuple[Any, Any, Any]:
            prediction = self._predict(names, values, {}, first, inputs, {first: target}, ())[first]
            if not pooled(task):
                return task_loss(task.loss, prediction, target), prediction, ()
            return task_loss(task.loss, prediction, target), (), pooled_sums(task, prediction, target)

        tasks_at_once = vmap(one_task, in_dims=(over_tasks, 0, 0))
        loss, predictions, sums = vmap(tasks_at_once, in_dims=(0, None, None))(list(values), inputs, targets)
        for index, table in enumerate(tables):
            table.add_loss(loss[0][:, index], loss[1][:, index])
            if sums:
                table.add_sums({name: total[:, index] for name, total in sums[0].items()}, sums[1][:, index])
            else:
                table.add_predictions(predictions[:, index], targets[index])

    def _choose(self, vals: Sequence[Metrics]) -> None:
        """Keep each trial's parameters of its best epoch so far, for every task its own where nothing is shared."""
        better = torch.zeros(len(self.runs), len(self.names), dtype=torch.bool)
        for trial, (at, val) in enumerate(zip(self.at, vals, strict=True)):
            for group in self.selections[trial].choose(
                at.epoch, val, self.suite, self.spec.selection, self.model.independent
            ):
                better[trial, slice(None) if group == "" else self.names.index(group)] = True
        better = better.to(self.device)
        for slot, value, best in zip(self.slots, self.values, self.best, strict=True):
            where = better if slot.side_by_side else better[:, slot.task or 0]
            best[where] = value[where]


class _Table:
    """One task's loss and metrics over a split, for every trial."""

    def __init__(self, task: Task, trials: int, device: torch.device) -> None:
        self.task = task
        self._loss = torch.zeros(2, trials, dtype=torch.float64, device=device)
        self._sums: dict[str, Tensor] = {}
        self._count = torch.zeros(trials, dtype=torch.int64, device=device)
        self._metrics = [] if pooled(task) else [TaskMetrics(task).to(device) for _ in range(trials)]

    def update(self, predictions: Tensor, target: Tensor) -> None:
        """predictions: [B, n, outputs]; target: [n, ...]."""
        self.add_loss(*vmap(lambda p: task_loss(self.task.loss, p, target))(predictions))
        if self._metrics:
            self.add_predictions(predictions, target)
        else:
            self.add_sums(*vmap(lambda p: pooled_sums(self.task, p, target))(predictions))

    def add_loss(self, total: Tensor, count: Tensor) -> None:
        self._loss += torch.stack([total.to(torch.float64), count.to(torch.float64)])

    def add_sums(self, sums: dict[str, Tensor], count: Tensor) -> None:
        self._sums = {name: total + self._sums.get(name, 0.0) for name, total in sums.items()}
        self._count += count

    def add_predictions(self, predictions: Tensor, target: Tensor) -> None:
        for metrics, prediction in zip(self._metrics, predictions, strict=True):
            metrics.update(prediction, target)

    def results(self) -> list[dict[str, float]]:
        """metric -> value for every trial, "loss" included."""
        losses = (self._loss[0] / self._loss[1]).tolist()
        if self._metrics:
            found = [metrics.compute() for metrics in self._metrics]
        else:
            means = {name: (total / self._count).tolist() for name, total in self._sums.items()}
            trials = range(len(losses))
            found = [pooled_metrics(self.task, {name: column[b] for name, column in means.items()}) for b in trials]
        return [{**values, "loss": loss} for values, loss in zip(found, losses, strict=True)]


@dataclass(frozen=True)
class _Padded:
    """A group's streams of a split side by side: inputs [t, N + 1, ...], targets [t, N + 1, ...].

    Rows beyond a stream's own, and the last one of all, have no label: they enter no sum.
    """

    inputs: Tensor
    targets: Tensor

    @property
    def longest(self) -> int:
        """Samples of the longest stream, N."""
        return self.inputs.shape[1] - 1

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """indices: [..., t, n], -1 for a row without a label."""
        rows = torch.arange(len(self.inputs), device=indices.device).unsqueeze(-1)
        return self.inputs[rows, indices], self.targets[rows, indices]


def _pad(streams: dict[str, Samples], names: Sequence[str]) -> _Padded:
    longest = 1 + max(len(streams[name]) for name in names)
    example = streams[names[0]]
    target = example.targets[names[0]]
    inputs = example.inputs.new_zeros(len(names), longest, *example.inputs.shape[1:])
    missing = float("nan") if target.is_floating_point() else MISSING_CLASS
    targets = target.new_full((len(names), longest, *target.shape[1:]), missing)
    for row, name in enumerate(names):
        inputs[row, : len(streams[name])] = streams[name].inputs
        targets[row, : len(streams[name])] = streams[name].targets[name]
    return _Padded(inputs, targets)


def _broadcast(factors: Tensor, like: Tensor) -> Tensor:
    """[B] or [B, T] that broadcasts against [B, ...] or [B, T, ...]."""
    return factors.to(like.dtype).reshape(*factors.shape, *[1] * (like.ndim - factors.ndim))


def tasks_are_alike(model: MultiTaskModule, suite: TaskSuite, train: dict[str, Samples]) -> bool:
    """Whether every task has its own inputs, and its network is that of the first task with its own parameters in
    place of the first one's. Found by trying, on random parameters."""
    first = suite.tasks[0]
    if suite.inputs != "per_task" or len(suite.tasks) == 1:
        return False
    kinds = {(t.loss, t.outputs, t.metrics, train[t.name].targets[t.name].shape[1:]) for t in suite.tasks}
    own = [[p.shape for p in model.task_parameters(task.name)] for task in suite.tasks]
    if len(kinds) > 1 or any(shapes != own[0] for shapes in own):
        return False
    trial = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(0)
    names = {id(p): name for name, p in trial.named_parameters()}
    with torch.no_grad():
        for parameter in trial.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        for task in {suite.tasks[i] for i in (1, len(suite.tasks) // 2, -1)}:
            inputs = train[task.name].inputs[:2].double()
            target = train[task.name].targets[task.name][:2]
            pairs = zip(trial.task_parameters(first.name), trial.task_parameters(task.name), strict=True)
            there = trial(Batch(task.name, Samples(inputs, {task.name: target}), 2)).predictions[task.name]
            batch = Batch(first.name, Samples(inputs, {first.name: target}), 2)
            replaced: dict[str, Tensor] = {names[id(mine)]: theirs for mine, theirs in pairs}
            here = functional_call(trial, replaced, (batch,), tie_weights=False).predictions[first.name]
            if not torch.allclose(here, there, rtol=1e-9, atol=1e-9):
                return False
    return True
