"""The training of a small network with a balancer, step by step, by one worker or by threads in the place of many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from mtlscale.balancing import Balancer, ValidationBalancer
from mtlscale.data import Losses, Workers
from mtlscale.training import Partition, Tally, Update

TASKS, SAMPLES, STEPS_PER_EPOCH = 3, 12, 2
_LR = 0.05
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Labels:
    """The labels of a step: which samples have one of which task [SAMPLES, T], and which tasks are masked.

    The loss of a masked task is exactly 0, and so is its gradient.
    """

    mask: Tensor = field(default_factory=lambda: torch.ones(SAMPLES, TASKS, dtype=torch.bool))
    masked: tuple[int, ...] = ()

    def without(self, *tasks: int) -> Labels:
        """Return these labels without those of some tasks."""
        mask = self.mask.clone()
        mask[:, list(tasks)] = False
        return Labels(mask, self.masked)


@dataclass(frozen=True)
class Trail:
    """What a training leaves at each step: the tasks' weights [steps, T] and the gradients [steps, parameters]."""

    weights: Tensor
    gradients: Tensor
    shared: int  # the number of shared parameters, which stand first

    @property
    def of_shared(self) -> Tensor:
        return self.gradients[:, : self.shared]

    def of_head(self, task: int) -> Tensor:
        size = (self.gradients.shape[1] - self.shared) // TASKS
        start = self.shared + task * size
        return self.gradients[:, start : start + size]


class _Network(nn.Module):
    """Two hidden layers that tasks share, and a linear head for each."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(5, 1) for _ in range(TASKS))
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))

    def partition(self) -> Partition:
        shared = list(self.trunk.parameters())
        return Partition(shared, [list(head.parameters()) for head in self.heads], modules=[[0, 1], [2, 3]])

    def stream(self, inputs: Tensor, targets: Tensor, labels: Labels, rows: Tensor) -> Iterator[Losses]:
        """Yield the sums of losses of the samples `rows`, in which tasks without a label are missing."""
        features = self.trunk(inputs[rows])
        tasks, sums, counts = [], [], []
        for task, head in enumerate(self.heads):
            labelled = labels.mask[rows, task]
            if not bool(labelled.any()):
                continue
            errors = (head(features)[:, 0] - targets[rows, task]).square()
            tasks.append(task)
            sums.append((errors * labelled * float(task not in labels.masked)).sum())
            counts.append(labelled.sum())
        yield Losses(tasks, sums, counts, None, features, [features] * len(sums))


def train(balancer: Balancer, steps: Sequence[Labels], workers: Workers | None = None, *, micros: int = 1) -> Trail:
    """Train the network and return what each step left; epochs have `STEPS_PER_EPOCH` steps.

    Args:
        workers: The workers of which this is one; each has its part of the samples.
    """
    workers, network = workers or Workers(), _Network()
    partition = network.partition()
    update = Update(
        [f"task {task}" for task in range(TASKS)],
        partition,
        balancer,
        device=torch.device("cpu"),
        dtype=torch.float64,
        workers=workers,
    )

    generator = torch.Generator().manual_seed(1)
    parts = torch.arange(SAMPLES)[workers.rank :: workers.size].chunk(micros)
    weights, gradients, tally = [], [], Tally(TASKS)
    for number, step in enumerate(steps, 1):
        inputs, query = torch.randn(2, SAMPLES, 4, generator=generator, dtype=torch.float64)
        targets, query_targets = torch.randn(2, SAMPLES, TASKS, generator=generator, dtype=torch.float64)
        result = update(
            [network.stream(inputs, targets, step, rows) for rows in parts],
            query=[network.stream(query, query_targets, Labels(), rows) for rows in parts]
            if isinstance(balancer, ValidationBalancer)
            else None,
        )
        tally.add(result)
        weights.append(result.weights)
        gradients.append(torch.cat([_flat(p) for p in partition.all]))

        with torch.no_grad():
            for parameter in partition.all:
                if parameter.grad is not None:
                    parameter.sub_(_LR * parameter.grad)
            if balancer.needs_post_step_losses:
                update.look_again([network.stream(inputs, targets, step, rows) for rows in parts])
        if number % STEPS_PER_EPOCH == 0:
            update.on_epoch_end(tally.balanced_losses)
            tally = Tally(TASKS)

    shared = sum(parameter.numel() for parameter in partition.shared)
    return Trail(torch.stack(weights), torch.stack(gradients), shared)


def _flat(parameter: nn.Parameter) -> Tensor:
    return torch.zeros(parameter.numel()).double() if parameter.grad is None else parameter.grad.reshape(-1).clone()


class _Meeting:
    """The place where threads exchange tensors, in turns that all of them take."""

    def __init__(self, size: int) -> None:
        self._barrier, self._parts = threading.Barrier(size), [torch.empty(0)] * size

    def gather(self, rank: int, tensor: Tensor) -> Tensor:
        """Return the tensors of all threads, [threads, *shape]."""
        self._parts[rank] = tensor.detach().clone()
        self._barrier.wait()
        gathered = torch.stack(self._parts)
        self._barrier.wait()
        return gathered

    def leave(self) -> None:
        """Let nobody wait for a thread that failed."""
        self._barrier.abort()


@dataclass(frozen=True)
class _Threads(Workers):
    """Workers that are threads of this process."""

    meeting: _Meeting = field(default_factory=lambda: _Meeting(1))

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(self.meeting.gather(self.rank, tensor).sum(0))

    def max(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(self.meeting.gather(self.rank, tensor).amax(0))

    def sum_many(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self.sum(tensor)

    def gather_many(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [self.meeting.gather(self.rank, tensor) for tensor in tensors]


def by_threads(task: Callable[[Workers], Answer], size: int = 2) -> list[Answer]:
    """Return what each of several workers, threads of this process, makes of a task."""
    meeting, answers, errors = _Meeting(size), {}, []

    def work(rank: int) -> None:
        try:
            answers[rank] = task(_Threads(rank, size, meeting))
        except BaseException as error:
            errors.append(error)
            meeting.leave()

    threads = [threading.Thread(target=work, args=(rank,), name=f"worker {rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [answers[rank] for rank in range(size)]
