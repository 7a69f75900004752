"""DMTRL-Tucker: the tops' hidden layers of all tasks are one tensor, in factors that the tasks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, linear_head, of_vectors
from mtlscale.architectures.hooks import EpochView
from mtlscale.architectures.towers import uniform
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class DMTRLModule(MultiTaskModule):
    """The network whose hidden weights are W [T, F, top] = core ×₁ U₁ ×₂ U₂ ×₃ U₃.

    Until the factorisation `core` holds W itself. Factors keep their full size: what the truncation cuts off is 0 and,
    as its gradient is 0, stays 0.
    """

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, top: int, error: float, warmup: int, dropout: float
    ) -> None:
        super().__init__()
        size, features = len(suite.tasks), encoder.features
        self.names = tuple(task.name for task in suite.tasks)
        self.error, self.warmup = error, warmup
        self.factorised = False

        self.encoder = encoder
        self.core = nn.Parameter(uniform(features, size, features, top))
        self.inputs = nn.Parameter(torch.eye(features))
        self.outputs = nn.Parameter(torch.eye(top))
        self.tasks = nn.ParameterList(torch.eye(size).unbind())  # rows of the tasks' factor [T]
        self.biases = nn.ParameterList(uniform(features, size, top).unbind())
        self.heads = nn.ModuleList(linear_head(top, task, dropout) for task in suite.tasks)

        if warmup == 0:
            self.factorise()

    def weight(self, index: int) -> Tensor:
        """Return a task's hidden weights [F, top]."""
        if not self.factorised:
            return self.core[index]
        weight: Tensor = self.inputs @ torch.tensordot(self.tasks[index], self.core, 1) @ self.outputs.T
        return weight

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            hidden = torch.addmm(self.biases[index], features, self.weight(index)).relu()
            predictions[task] = self.heads[index](hidden)
        return Outputs(predictions)

    def on_epoch_end(self, epoch: EpochView) -> None:
        if epoch.number == self.warmup:
            self.factorise()

    @torch.no_grad()
    def factorise(self) -> None:
        """Replace the current hidden weights by their truncated higher-order SVD."""
        core, factors = truncated_hosvd(self.core, self.error)
        self.core.copy_(core)
        self.inputs.copy_(factors[1])
        self.outputs.copy_(factors[2])
        for row, value in zip(self.tasks, factors[0], strict=True):
            row.copy_(value)
        self.factorised = True

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.factorised)

    def set_extra_state(self, state: Tensor) -> None:
        self.factorised = bool(state)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), self.core, self.inputs, self.outputs]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [self.tasks[index], self.biases[index], *self.heads[index].parameters()]


def truncated_hosvd(tensor: Tensor, error: float) -> tuple[Tensor, list[Tensor]]:
    """Return the core and one factor [D, D] per mode of a truncated higher-order SVD.

    The rank of each mode is the smallest that reaches the relative error in that mode. Core and factors are zero beyond
    the ranks, so that they have the tensor's size whatever the ranks are.
    """
    core, factors = tensor.double(), []
    for mode in range(tensor.ndim):
        vectors, values, _ = torch.linalg.svd(tensor.double().movedim(mode, 0).flatten(1), full_matrices=False)
        tails = values.square().flip(0).cumsum(0).flip(0).sqrt()  # error of keeping only the values before each

        # A singular vector's sign is free. Rounding must not choose it, or two workers could get another sign than one.
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        kept_vectors = vectors * largest.sign() * (tails > error * tails[0])

        factor = kept_vectors.new_zeros(len(kept_vectors), len(kept_vectors))
        factor[:, : kept_vectors.shape[1]] = kept_vectors
        factors.append(factor.to(tensor.dtype))
        core = torch.tensordot(core, factor, ([0], [0]))  # the mode moves last; after all modes the order is as before

    return core.to(tensor.dtype), factors


class DMTRL(Architecture):
    """Deep multi-task representation learning: the tops' hidden weights as a Tucker product with shared factors.

    As in TOMATO's comparison, a trained Shared-bottom is factorised by a truncated HOSVD and the factors are trained;
    biases and logit layers stay free. Here Shared-bottom is trained in the first `warmup` epochs of the same run (0:
    factorise the initial weights), not to convergence in a run of its own, and its learning rate schedule goes on.
    """

    name: ClassVar[str] = "dmtrl"
    source: ClassVar[str] = "Yang & Hospedales, ICLR 2017; as in Zhang & Lee, CIKM 2020"

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the tops' hidden layer")
    error: float = knob(0.01, low=0.0, high=1.0, open_high=True, help="relative error that ranks may cost, per mode")
    warmup: int = knob(10, low=0, help="epochs as Shared-bottom before the factorisation")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return DMTRLModule(suite, of_vectors(encoder(), self.name), self.top, self.error, self.warmup, dropout)
