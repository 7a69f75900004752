"""Session of many trials: everything that changes while they train together, and how one step changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor

from mtlscale.batched.batch_plan import StepDraw, Steps, StreamBatch
from mtlscale.batched.differentiate import Gradients
from mtlscale.batched.dropout import dropout_places, dropout_rates
from mtlscale.batched.evaluate import BatchedEvaluation
from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.optimizer_step import BatchedMover
from mtlscale.batched.parameter_layout import lay_out
from mtlscale.batched.streams import Streams
from mtlscale.batched.update import BatchedUpdate, Leaving
from mtlscale.config import Run, UserError
from mtlscale.data import SAMPLERS, PreparedData
from mtlscale.data.readers.random_access import open_reader
from mtlscale.objectives import ProximalModule
from mtlscale.training import Tally, build_model
from mtlscale.training.probes.survival import Cosines, cosine, due, length

Causes = Mapping[int, Exception]  # position of a trial that cannot go on -> why
Answer = TypeVar("Answer")


class BatchedSession:
    """Session of the trials that go on, with their parameters (`values`, of the slots), their update and their updater.

    Attributes:
        model: one network, whose code serves all.
        tally: that of the current epoch.

    `processes` is the number of processes that read these data on this node.
    """

    def __init__(self, runs: Sequence[Run], data: PreparedData, device: torch.device, processes: int = 1) -> None:
        self.runs, self.device, suite, settings = list(runs), device, data.suite, runs[0].training

        run_of_seed = {run.seed: run for run in reversed(runs)}
        built = {seed: build_model(run, suite) for seed, run in run_of_seed.items()}
        self.model, objective = built[runs[0].seed]
        if objective is not None and not isinstance(objective, ProximalModule):
            name = runs[0].parts.objective.name
            raise UserError(f"objective {name} declares itself batchable, but is more than a proximal step")

        dtype = getattr(torch, settings.dtype)
        reader, _ = open_reader(data, settings.reader, device=device, dtype=dtype, processes=processes)
        splits = {split: reader.whole(split, "batching trials") for split in data.splits}
        self.splits, train = tuple(splits), splits["train"]
        self.model.to(device)

        sizes = {stream: len(samples) for stream, samples in train.items()}
        lengths = SAMPLERS[settings.batches](sizes, settings.batch_size, 0).lengths()
        self.layout = lay_out(self.model, suite, train, lengths, len(runs))
        self.values = self.layout.values([built[run.seed][0] for run in runs], device)

        streams = {split: Streams(stream_samples, self.layout) for split, stream_samples in splits.items()}
        rates = dropout_rates(self.model, runs, suite, device)
        self.network = BatchedNetwork(self.model, suite, self.layout, rates)

        self.update = BatchedUpdate(runs, self.network, streams["train"], dtype)
        self.updater = BatchedMover(runs, self.layout, objective, device)
        sites = dropout_places(self.model, self.layout, train)
        self.steps = Steps(self.layout, sizes, settings, sites, device)
        self.evaluate = BatchedEvaluation(self.network, streams, settings.eval_batch_size)

        partition_shared = self.layout.shared and not self.layout.independent and len(self.layout.names) > 1
        self._looks_at_survival = bool(partition_shared) and objective is None
        self.total = settings.epochs * self.steps.per_epoch
        self.begin_epoch()

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    def begin_epoch(self) -> None:
        self.model.train()
        self.tally = Tally(len(self.runs), len(self.layout.names))
        self.cosines = Cosines(len(self.runs))

    def step(self, draw: StepDraw, count: int, leave: Callable[[Causes], Tensor]) -> None:
        """Take one step of all trials, after `count` steps.

        Those that diverge in it are handed to `leave`, which keeps the others and returns their positions.
        """
        parts, number = draw.parts(self.seeds), count + 1
        answer, parts = self._without_diverging(parts, lambda parts: self.update(self.values, parts, number), leave)
        if answer is None:
            return
        result, gradients = answer
        self.tally.add(result)
        if self._looks_at_survival and due(number):
            self._look(parts, gradients, count)
        else:
            self.updater(self.values, gradients, count, self.total)
        if self.update.needs_post_step_losses:
            self._without_diverging(parts, lambda parts: self.update.look_again(self.values, parts, number), leave)

    def _look(self, parts: list[StreamBatch], gradients: Gradients, count: int) -> None:
        """Take the step of all trials, and note what equal weights would have made of it."""
        before = [value.clone() for value in self.values]
        balanced = self._of_shared(self.updater.clipped(gradients))
        step = self.update.of_equal(self.values, parts)
        equal = None if step is None else self._of_shared(step)
        steps_of_equal = None if equal is None else self._steps_of_equal(balanced, equal, count)

        self.updater(self.values, gradients, count, self.total)
        steps = [self.values[slot] - before[slot] for slot in self.layout.shared]
        downhill = cosine([-gradient for gradient in balanced], steps, dims=1)
        to_equal = [torch.ones_like(downhill)] * 2
        if equal is not None and steps_of_equal is not None:
            to_equal = [cosine(balanced, equal, dims=1), cosine(steps, steps_of_equal, dims=1)]
        self.cosines.add([*to_equal, downhill])

    def _of_shared(self, gradients: Gradients) -> list[Tensor]:
        """Return copies of the gradients of the shared slots, zeros where there is none."""
        values = self.values
        return [
            torch.zeros_like(values[slot]) if (gradient := gradients[slot]) is None else gradient.clone()
            for slot in self.layout.shared
        ]

    def _steps_of_equal(self, balanced: list[Tensor], equal: list[Tensor], count: int) -> list[Tensor]:
        """Return the steps of the shared slots along `equal`, made as long as `balanced`, from the same state."""
        factors = length(balanced, dims=1) / length(equal, dims=1).clamp(min=torch.finfo(torch.float64).tiny)
        gradients: list[Tensor | None] = [None] * len(self.values)
        for slot, gradient in zip(self.layout.shared, equal, strict=True):
            gradients[slot] = gradient * factors.to(gradient.dtype).reshape(-1, *[1] * (gradient.ndim - 1))
        values = [value.clone() for value in self.values]
        deepcopy(self.updater)(values, gradients, count, self.total)
        return [values[slot] - self.values[slot] for slot in self.layout.shared]

    def _without_diverging(
        self,
        parts: list[StreamBatch],
        compute: Callable[[list[StreamBatch]], Answer],
        leave: Callable[[Causes], Tensor],
    ) -> tuple[Answer | None, list[StreamBatch]]:
        """Return the result of `compute`, None where no trial is left, and the parts of trials that do not diverge."""
        while self.runs:
            try:
                return compute(parts), parts
            except Leaving as leaving:
                remaining = leave(leaving.causes)
                parts = [part.keep(remaining) for part in parts]
        return None, parts

    def keep(self, positions: Sequence[int]) -> Tensor:
        """Keep only the trials at these positions; return them as an index."""
        index = torch.tensor(positions, dtype=torch.int64, device=self.device)
        self.runs = [self.runs[position] for position in positions]
        self.values = [value[index] for value in self.values]
        self.tally = self.tally.of(index.cpu())
        self.cosines.keep(index.cpu())
        self.network.keep(index)
        self.updater.keep(index)
        self.update.keep(positions)
        return index
