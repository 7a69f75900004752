"""How one task's step along its own gradient changes every task's loss: TAG's affinity, of any network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule, Source
from mtlscale.data import Batch, Workers
from mtlscale.spec import UserError
from mtlscale.training.gradients import combine
from mtlscale.training.replay import random_state, replayed, statistics_kept
from mtlscale.training.rows import Partition, TaskGradients, collect, reduce, scatter


def task_affinity(
    model: MultiTaskModule,
    partition: Partition,
    source: Source,
    micros: Sequence[Sequence[Batch]],
    lr: float,
    workers: Workers,
    device: torch.device,
) -> Tensor:
    """Z [T, T], float64 on the host: Z[i, j] = 1 − ℓ_j(θ − μ g_i) / ℓ_j(θ), with mean losses ℓ on the whole batch,
    g_i = ∇ℓ_i over the shared parameters and μ = lr. Positive where a step for task i helps task j; NaN in rows and
    columns of tasks without a label.

    Every loss sees the same dropout. Parameters, random numbers and running statistics are as before, bit by bit. The
    cost is T backward and T + 1 forward passes.
    """
    if partition.joint or not partition.shared:
        why = "combines the tasks' gradients itself" if partition.joint else "shares no parameters"
        raise UserError(f"this architecture {why}: its tasks have no affinity; choose hps")
    size, shared = len(partition.own), partition.shared
    alone = replace(partition, own=[[] for _ in partition.own], extra=[])
    states = random_state(device)

    def losses() -> Tensor:
        g = TaskGradients([], [], [], [])
        with replayed(states, device):
            for micro in micros:
                for found in source(micro, terms=False):
                    g.note(found)
        total: Tensor = workers.sum(scatter(g.tasks, g.sums, g.counts, size, device)).cpu()
        return total[0] / total[1]

    with statistics_kept(model):
        with replayed(states, device):
            batches = (source(micro, terms=False) for micro in micros)
            g = collect(batches, alone, None)
        table = scatter(g.tasks, g.sums, g.counts, size, device)
        reduce(g, table, alone, workers, terms=False)
        sums, counts = table.cpu()
        before = sums / counts
        result = torch.full((size, size), float("nan"), dtype=torch.float64)
        for task in (counts > 0).nonzero().flatten().tolist():
            with torch.no_grad(), _moved(shared, combine([g.shared[task]], lr / counts[task : task + 1], shared)):
                result[task] = 1 - losses() / before
    return result


@contextmanager
def _moved(parameters: Sequence[Tensor], steps: Sequence[Tensor | None]) -> Iterator[None]:
    """The parameters less these steps for the time, then what they were."""
    before = [parameter.clone() for parameter in parameters]
    for parameter, step in zip(parameters, steps, strict=True):
        if step is not None:
            parameter.sub_(step)
    try:
        yield
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)
