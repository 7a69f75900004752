"""ESMM: the probability of each task is that of the task before it times a conditional one."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.recommenders._chain import CHAIN_HELP, chain_of
from mtlscale.architectures.towers import tower
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class ESMMModule(MultiTaskModule):
    """The network of a shared encoder and a tower for each task, whose probabilities are multiplied along a chain."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, chain: list[int], top: int, dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.chain = chain
        self.encoder = encoder
        self.towers = nn.ModuleList(tower(encoder, task, dropout, top) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        predictions: dict[str, Tensor] = {}
        logit: Tensor | None = None
        for index in self.chain[: 1 + max(self.chain.index(self.names.index(task)) for task in batch.tasks)]:
            conditional = self.towers[index](features)
            logit = conditional if logit is None else logit_of_product(logit, conditional)
            predictions[self.names[index]] = logit
        return Outputs({task: predictions[task] for task in batch.tasks})

    def shared_parameters(self) -> list[nn.Parameter]:
        earlier = (p for index in self.chain[:-1] for p in self.towers[index].parameters())
        return [*self.encoder.parameters(), *earlier]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        last = self.chain[-1]
        return list(self.towers[last].parameters()) if self.names.index(task) == last else []


def logit_of_product(first: Tensor, second: Tensor) -> Tensor:
    """Return the logit of σ(first) σ(second), which neither overflows nor rounds to a probability of 1.

    With p the product, (1 - p) / p = (1 + e^-first) (1 + e^-second) - 1 = e^-first + e^-second + e^-(first + second).
    """
    return -torch.stack([-first, -second, -first - second]).logsumexp(0)


class ESMM(Architecture):
    """Entire space multi-task model: a shared encoder, a tower per task, probabilities multiplied along the chain.

    With two tasks it is the paper's: p(click) = σ(a) and p(click and conversion) = σ(a) σ(b), both learnt over all
    samples; σ(b), the conversion rate of what is clicked, has no loss of its own. Longer chains go
    on in the same way. The label of a later task is 0, not missing, where an earlier one is 0. The paper shares the
    embeddings alone: `hidden: []` in the encoder.
    """

    name: ClassVar[str] = "esmm"
    source: ClassVar[str] = "Ma et al., SIGIR 2018"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the towers' hidden layer")
    chain: tuple[str, ...] = knob((), help=CHAIN_HELP)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        for task in suite.tasks:
            if task.loss != "bce" or task.outputs != 1:
                raise UserError(
                    f"esmm multiplies the probabilities of yes or no, and task {task.name} has loss {task.loss} and "
                    f"{task.outputs} outputs; leave it out by `tasks`, or choose aitm"
                )
        return ESMMModule(suite, encoder(), chain_of(self.name, self.chain, suite), self.top, dropout)
