"""Losses and metrics of many trials over whole splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import vmap

from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.streams import Streams
from mtlscale.data import Samples
from mtlscale.metrics import pooled_sums
from mtlscale.records import Metrics
from mtlscale.training import ItemBootstrap, TaskTable, tables, task_loss

_EVALUATED = 1 << 18  # samples x trials in one evaluation pass


class BatchedEvaluation:
    """Evaluation of trials with given values of the slots; `batch_limit` is the batch size."""

    def __init__(self, network: BatchedNetwork, splits: Mapping[str, Streams], batch_limit: int) -> None:
        self.network, self.splits, self.batch_limit = network, splits, batch_limit

    @torch.no_grad()
    def __call__(self, split: str, values: Sequence[Tensor], items: ItemBootstrap | None = None) -> list[Metrics]:
        """Return for every trial: task -> metric -> value over the whole split, "loss" included.

        `items` gets every prediction, too.
        """
        layout, model = self.network.layout, self.network.model
        model.eval()
        trials = len(values[0])
        task_tables = tables(self.network.suite, trials, values[0].device)

        if layout.joined:
            values_of_groups = layout.of_groups(values, [slot.side_by_side for slot in layout.slots])
            for group, group_values, data in zip(
                layout.groups, values_of_groups, self.splits[split].groups, strict=True
            ):
                for piece in self._slices(data.longest, trials * len(group)):
                    samples = data.inputs[:, piece], data.targets[:, piece]
                    self._side_by_side([task_tables[task] for task in group], group_values, samples, items, piece)
        else:
            table_of = dict(zip(layout.names, task_tables, strict=True))
            for stream, stream_samples in self.splits[split].by_name.items():
                for piece in self._slices(len(stream_samples), trials):
                    targets = {name: target[piece] for name, target in stream_samples.targets.items()}
                    self._stream(table_of, stream, values, Samples(stream_samples.inputs[piece], targets), items, piece)

        results = [table.results() for table in task_tables]
        model.train()
        return [
            {name: task_results[b] for name, task_results in zip(layout.names, results, strict=True)}
            for b in range(trials)
        ]

    def _slices(self, samples: int, copies: int) -> Iterator[slice]:
        size = max(1, min(self.batch_limit, _EVALUATED // copies))
        return (slice(start, min(start + size, samples)) for start in range(0, samples, size))

    def _stream(
        self,
        tables: Mapping[str, TaskTable],
        stream: str,
        values: Sequence[Tensor],
        samples: Samples,
        items: ItemBootstrap | None,
        rows: slice,
    ) -> None:
        predictions = self.network.predict_stream(stream, values, samples)
        if items is not None:
            weights = items.weights(stream, torch.arange(rows.start, rows.stop), values[0].device)
            for name, target in samples.targets.items():
                items.add(name, predictions[name], target, weights)

        for name, target in samples.targets.items():
            table, prediction = tables[name], predictions[name]
            task = table.task
            table.add_loss(*vmap(lambda p, task=task, target=target: task_loss(task.loss, p, target))(prediction))
            if table.by_sums:
                table.add_sums(*vmap(lambda p, task=task, target=target: pooled_sums(task, p, target))(prediction))
            else:
                table.add_predictions(prediction, target, samples.inputs)

    def _side_by_side(
        self,
        tables: Sequence[TaskTable],
        values: Sequence[Tensor],
        samples: tuple[Tensor, Tensor],
        items: ItemBootstrap | None,
        rows: slice,
    ) -> None:
        inputs, targets = samples
        with_predictions = items is not None
        (totals, counts), predictions, sums = self.network.measure_group(
            values, inputs, targets, single_batch=with_predictions
        )

        if items is not None and predictions is not None:
            item_indices = torch.arange(rows.start, rows.stop)
            for index, table in enumerate(tables):
                weights = items.weights(table.task.name, item_indices, inputs.device)
                items.add(table.task.name, predictions[:, index], targets[index], weights)

        for index, table in enumerate(tables):
            table.add_loss(totals[:, index], counts[:, index])
            if sums is not None:
                table.add_sums({name: total[:, index] for name, total in sums[0].items()}, sums[1][:, index])
            elif predictions is not None:
                table.add_predictions(predictions[:, index], targets[index], inputs[index])
