"""TAG's affinity for any network: how one task's step along its own gradient changes every task's loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule, Source
from mtlscale.config import UserError
from mtlscale.data import Batch, Workers
from mtlscale.training.gradients.gramian import combine
from mtlscale.training.gradients.per_task import Partition, TaskGradients, collect, reduce, scatter
from mtlscale.training.probes.replay import random_state, replayed, statistics_kept


def task_affinity(
    model: MultiTaskModule,
    partition: Partition,
    source: Source,
    micros: Sequence[Sequence[Batch]],
    lr: float,
    workers: Workers,
    device: torch.device,
) -> Tensor:
    """Return TAG's affinities Z [T, T] on one batch, float64 on the host.

    Z[i, j] = 1 − ℓ_j(θ − μ g_i) / ℓ_j(θ), with mean losses ℓ on the whole batch, g_i = ∇ℓ_i over the shared parameters
    and μ = `lr`. It is positive where a step for task i helps task j, and NaN in rows and columns of tasks without a
    label and in columns of losses of 0, which no step can lower.

    Every loss sees the same dropout. Parameters, random numbers and running statistics are restored, bit by bit. The
    cost is T backward and T + 1 forward passes.

    Raises:
        UserError: If the architecture combines the gradients itself or shares no parameters.
    """
    if partition.joint or not partition.shared:
        reason = "combines the tasks' gradients itself" if partition.joint else "shares no parameters"
        raise UserError(f"this architecture {reason}: its tasks have no affinity; choose hps")
    size, shared = len(partition.own), partition.shared
    shared_only = replace(partition, own=[[] for _ in partition.own], extra=[])

    states = random_state(device)

    def losses() -> Tensor:
        task_gradients = TaskGradients([], [], [], [])
        with replayed(states, device):
            for micro in micros:
                for micro_losses in source(micro, terms=False):
                    task_gradients.note(micro_losses)
        total: Tensor = workers.sum(
            scatter(task_gradients.tasks, task_gradients.sums, task_gradients.counts, size, device)
        ).cpu()
        return total[0] / total[1]

    with statistics_kept(model):
        with replayed(states, device):
            batches = (source(micro, terms=False) for micro in micros)
            task_gradients = collect(batches, shared_only, None)
        table = scatter(task_gradients.tasks, task_gradients.sums, task_gradients.counts, size, device)
        reduce(task_gradients, table, shared_only, workers, terms=False)
        sums, counts = table.cpu()
        losses_before = torch.where(sums == 0, torch.nan, sums / counts)
        result = torch.full((size, size), float("nan"), dtype=torch.float64)
        for task in (counts > 0).nonzero().flatten().tolist():
            with (
                torch.no_grad(),
                _moved(shared, combine([task_gradients.shared[task]], lr / counts[task : task + 1], shared)),
            ):
                result[task] = 1 - losses() / losses_before
    return result


@contextmanager
def _moved(parameters: Sequence[Tensor], steps: Sequence[Tensor | None]) -> Iterator[None]:
    """Subtract `steps` from the parameters inside the context, and restore the parameters on exit."""
    originals = [parameter.clone() for parameter in parameters]
    for parameter, step in zip(parameters, steps, strict=True):
        if step is not None:
            parameter.sub_(step)
    try:
        yield
    finally:
        for parameter, value in zip(parameters, originals, strict=True):
            parameter.copy_(value)
