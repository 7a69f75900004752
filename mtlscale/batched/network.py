"""Network of many trials: one forward pass under vmap, with every trial's values in place of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from mtlscale.architectures import MultiTaskModule
from mtlscale.batched.batch_plan import StreamBatch
from mtlscale.batched.linear_hooks import Taps
from mtlscale.batched.parameter_layout import Layout
from mtlscale.batched.streams import Streams
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Samples
from mtlscale.encoders import fixed_draws
from mtlscale.metrics import pooled, pooled_sums
from mtlscale.training import task_loss

Loss = tuple[Tensor, Tensor]  # sums and counts


class BatchedNetwork:
    """Losses and predictions of B trials.

    `rates` are the trials' dropout rates [B] by the name of each dropout module's buffer.
    """

    def __init__(self, model: MultiTaskModule, suite: TaskSuite, layout: Layout, rates: Mapping[str, Tensor]) -> None:
        self.model, self.suite, self.layout, self.rates = model, suite, layout, dict(rates)
        self.taps = Taps.of(model, suite)
        self._task = {task.name: task for task in suite.tasks}

    def keep(self, trials: Tensor) -> None:
        """Keep only the trials at the indices `trials` [B']."""
        self.rates = {name: rate[trials] for name, rate in self.rates.items()}

    def predict(
        self,
        names: Sequence[str],
        values: Sequence[Tensor],
        rates: Mapping[str, Tensor],
        stream: str,
        samples: Samples,
        uniform: Sequence[Tensor] = (),
    ) -> dict[str, Tensor]:
        """Return one trial's predictions of one stream, with `values` for the parameters `names`; runs under vmap."""
        named = dict(zip(names, values, strict=True)) | dict(rates)

        with fixed_draws(iter(uniform)):
            outputs = functional_call(self.model, named, (Batch(stream, samples, len(samples)),), tie_weights=False)
        predictions: dict[str, Tensor] = outputs.predictions
        return predictions

    def losses_of_stream(self, part: StreamBatch, train: Streams, values: Sequence[Tensor]) -> Loss:
        """Return sums and counts [B, tasks] of the losses of a stream's tasks. `values` are those of all slots."""
        sums, counts, _ = self.tapped_losses(part, train, values, None, ())
        return torch.stack(sums, 1), counts

    def tapped_losses(
        self, part: StreamBatch, train: Streams, values: Sequence[Tensor], taps: Taps | None, zeros: Sequence[Tensor]
    ) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """Return sums and counts of the losses of a stream's tasks, and the inputs of the tapped layers.

        The sums [B] come task by task, each with its own graph from the heads on; the counts are [B, tasks], the
        layers' inputs [B, n, i]. `zeros` [B, n, o] are for each of these layers.
        """
        assert isinstance(part.stream, str)
        stream, per_trial = part.stream, 0 if part.per_trial else None
        tasks = self.suite.streams[stream]
        slots = self.layout.of_tasks(tasks)
        names = [self.layout.slots[i].names[0] for i in slots]
        batch = train.by_name[stream].take(part.indices)
        weighted = {} if batch.weights is None else {"weights": batch.weights}

        def one(values: Any, rates: Any, inputs: Tensor, targets: Any, weighted: Any, uniform: Any, zeros: Any) -> Any:
            taps_opened: AbstractContextManager[list[Tensor]] = nullcontext([]) if taps is None else taps.opened(zeros)
            with taps_opened as layer_inputs:
                predictions = self.predict(names, values, rates, stream, Samples(inputs, targets), uniform)
            pairs = [task_loss(self._task[t].loss, predictions[t], targets[t], weighted.get("weights")) for t in tasks]
            return [p[0] for p in pairs], torch.stack([p[1] for p in pairs]), [x.detach() for x in layer_inputs]

        trials = vmap(one, in_dims=(0, 0, per_trial, per_trial, per_trial, per_trial, 0))
        sums, counts, layer_inputs = trials(
            [values[i] for i in slots], self.rates, batch.inputs, batch.targets, weighted, part.uniform, list(zeros)
        )
        return (
            [per_trial if part.factors is None else per_trial * part.factors for per_trial in sums],
            counts,
            layer_inputs,
        )

    def losses_of_group(self, part: StreamBatch, train: Streams, values: Sequence[Tensor], expanded: bool) -> Loss:
        """Return sums and counts [B, tasks] of the losses of a group's tasks.

        `values` are those of the slots, cut to these tasks. With `expanded`, what is shared has a copy for each task,
        too.
        """
        assert isinstance(part.stream, int)
        trial_axis = 0 if part.per_trial else None
        inputs, targets = train.groups[part.stream].take(part.indices)
        names, first = [slot.names[0] for slot in self.layout.slots], self.suite.tasks[0]
        over_tasks = [None if slot.shared and not expanded else 0 for slot in self.layout.slots]

        def one(values: Any, rates: Any, inputs: Tensor, target: Tensor, uniform: Any) -> Loss:
            samples = Samples(inputs, {first.name: target})
            predictions = self.predict(names, values, rates, first.name, samples, uniform)
            return task_loss(first.loss, predictions[first.name], target)

        tasks = vmap(one, in_dims=(over_tasks, None, 0, 0, 0))
        trials = vmap(tasks, in_dims=(0, 0, trial_axis, trial_axis, trial_axis))
        sums, counts = trials(list(values), self.rates, inputs, targets, part.uniform)
        return sums if part.factors is None else sums * part.factors, counts

    def predict_stream(self, stream: str, values: Sequence[Tensor], samples: Samples) -> dict[str, Tensor]:
        """Return [B, n, ...] for each of the stream's tasks, nothing dropped. `values` are those of all slots."""
        slots = self.layout.of_tasks(self.suite.streams[stream])
        names = [self.layout.slots[i].names[0] for i in slots]
        predictions: dict[str, Tensor] = vmap(lambda values: self.predict(names, values, {}, stream, samples))(
            [values[i] for i in slots]
        )
        return predictions

    def measure_group(
        self, values: Sequence[Tensor], inputs: Tensor, targets: Tensor, *, single_batch: bool = False
    ) -> tuple[Loss, Tensor | None, tuple[dict[str, Tensor], Tensor] | None]:
        """Return the losses [B, t] of a group's tasks, nothing dropped, and what their metrics come from.

        That is predictions [B, t, n, ...] or, where sums will do, these and their counts [B, t]. `values` are those of
        the slots, cut to the tasks; with `single_batch`, predictions come in any case.
        """
        names, first = [slot.names[0] for slot in self.layout.slots], self.suite.tasks[0]
        over_tasks = [None if slot.shared else 0 for slot in self.layout.slots]
        by_sums = pooled(first)

        def one(values: Any, inputs: Tensor, target: Tensor) -> tuple[Any, Any]:
            prediction = self.predict(names, values, {}, first.name, Samples(inputs, {first.name: target}))[first.name]
            sums = pooled_sums(first, prediction, target) if by_sums else ()
            return task_loss(first.loss, prediction, target), (sums, prediction if single_batch or not by_sums else ())

        tasks = vmap(one, in_dims=(over_tasks, 0, 0))
        losses, (sums, predictions) = vmap(tasks, in_dims=(0, None, None))(list(values), inputs, targets)
        return losses, predictions if single_batch or not by_sums else None, sums if by_sums else None
