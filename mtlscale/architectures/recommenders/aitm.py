"""AITM: adaptive information transfer between tasks that follow each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, of_vectors
from mtlscale.architectures.recommenders._chain import CHAIN_HELP, chain_of
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import Dropout, EncoderModule, linear_head


class InformationTransfer(nn.Module):
    """Attention over a task's own features and what it is passed, both [B, k] -> [B, k].

    Σ_u softmax_u(⟨W₁ u, W₂ u⟩ / √k) W₃ u for u in (own, passed).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, own: Tensor, passed: Tensor) -> Tensor:
        states = torch.stack([own, passed])
        scores = (self.query(states) * self.key(states)).sum(-1) / math.sqrt(states.shape[-1])
        mixed: Tensor = (scores.softmax(0).unsqueeze(-1) * self.value(states)).sum(0)
        return mixed


class AITMModule(MultiTaskModule):
    """The network of a shared encoder and towers in a chain."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, chain: list[int], top: int, dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.chain = chain
        self.encoder = encoder
        features = of_vectors(encoder, "aitm").features
        self.towers = nn.ModuleList(_hidden(features, top, dropout) for _ in suite.tasks)
        # At a task's position what it passes on, and how it takes in what it is passed: the last task of the chain
        # passes nothing on, the first is passed nothing.
        self.passes = nn.ModuleList(
            nn.Identity() if index == chain[-1] else _hidden(top, top, dropout) for index in range(len(chain))
        )
        self.transfers = nn.ModuleList(
            nn.Identity() if index == chain[0] else InformationTransfer(top) for index in range(len(chain))
        )
        self.heads = nn.ModuleList(linear_head(top, task.outputs, 0.0) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        states: dict[str, Tensor] = {}
        passed: Tensor | None = None
        last = 1 + max(self.chain.index(self.names.index(task)) for task in batch.tasks)
        for position, index in enumerate(self.chain[:last]):
            state = self.towers[index](features)
            if passed is not None:
                state = self.transfers[index](state, passed)
            states[self.names[index]] = state
            passed = self.passes[index](state) if position < last - 1 else None
        return Outputs({task: self.heads[self.names.index(task)](states[task]) for task in batch.tasks})

    def shared_parameters(self) -> list[nn.Parameter]:
        *earlier, _ = self.chain
        parts = [*(self.towers[index] for index in earlier), *(self.transfers[index] for index in earlier)]
        parts += [self.passes[index] for index in earlier[:-1]]  # what the last of them passes on, one task reads
        return [*self.encoder.parameters(), *(p for part in parts for p in part.parameters())]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        parts = [self.heads[index]]
        if index == self.chain[-1]:
            parts += [self.towers[index], self.transfers[index], *(self.passes[i] for i in self.chain[-2:-1])]
        return [p for part in parts for p in part.parameters()]


def _hidden(inputs: int, outputs: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), Dropout(dropout))


class AITM(Architecture):
    """Adaptive information transfer: a tower per task, which attends to what the tower before it passes on.

    The towers' hidden layer of task t, q_t, and z_{t-1} of the task before it, passed through a layer g, give
    z_t = AIT(g(z_{t-1}), q_t) = Σ_u softmax_u(⟨W₁ u, W₂ u⟩ / √k) W₃ u for u in (g(z_{t-1}), q_t), which the head reads;
    the first task's z_1 is q_1. The paper shares the embeddings alone, `hidden: []` in the encoder, and its towers have
    three layers; here a tower has one. The term that later tasks may not be likelier than earlier ones is the objective
    `behavioral_calibrator`.
    """

    name: ClassVar[str] = "aitm"
    source: ClassVar[str] = "Xi et al., KDD 2021"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width k of the towers")
    chain: tuple[str, ...] = knob((), help=CHAIN_HELP)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return AITMModule(suite, encoder(), chain_of(self.name, self.chain, suite), self.top, dropout)
