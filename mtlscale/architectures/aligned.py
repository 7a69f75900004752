"""Covariance alignment: a matrix per task between the embeddings and what is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from mtlscale.architectures._base import Architecture, MultiTaskModule
from mtlscale.architectures._phases import Found, Phase
from mtlscale.architectures.hps import HPSModule
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.spec import TaskSuite, UserError, knob


class AlignedModule(HPSModule):
    """Hard sharing in which task t's embeddings E_t [.., d] are read as E_t R_t, R_t [d, d] the identity at first.

    frozen: the encoder stays as it is, alignments and heads learn.
    """

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, dropout: float, *, frozen: bool) -> None:
        super().__init__(suite, encoder, dropout)
        self.vectorised = False
        self.alignments = nn.ParameterList(nn.Parameter(torch.eye(embedding_size(encoder))) for _ in suite.tasks)
        self.independent = frozen
        self.encoder.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> AlignedModule:
        super().train(mode)
        if self.independent:
            self.encoder.eval()  # no dropout, and no statistics of batches, in what stays as it is
        return self

    def forward(self, batch: Batch) -> Outputs:
        embedded, found = self.encoder.embed(batch.inputs), {}
        for task in batch.tasks:
            turned = embedded @ self.alignments[self.names.index(task)]
            found[task] = self.head(task)(self.encoder.read(turned, batch.inputs))
        return Outputs(found)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [] if self.independent else super().shared_parameters()

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [self.shared_parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [self.alignments[self.names.index(task)], *super().task_parameters(task)]


def embedding_size(encoder: EncoderModule) -> int:
    """Of the encoder's embeddings; `UserError` where it has none."""
    size = encoder.embedding_size
    if size is None:
        raise UserError(
            "aligned turns a task's embeddings, and this encoder has no layer of them; choose mlp, averaged, lstm, "
            "bilstm, textcnn, transformer or pretrained"
        )
    return size


class _SharedModule(HPSModule):
    """Hard sharing that hands over what it has learned."""

    def hand_over(self) -> Found:
        return {"state": {key: value.detach().clone() for key, value in self.state_dict().items()}}


class Aligned(Architecture):
    """Covariance alignment: hard sharing, then a matrix per task between the embeddings and the shared module.

    First `hps` is trained. Then the shared module stays as it is, and for each task a matrix R_t, the identity at
    first, and its head learn, so that tasks whose data lie in different directions can use the same module. R_t is not
    held orthogonal. With `freeze_shared: false` everything learns together from the start, as in the paper's LSTM
    experiments. Sequences are turned token by token.
    """

    name: ClassVar[str] = "aligned"
    source: ClassVar[str] = "Wu, Zhang & Ré, ICLR 2020, Algorithm 1"

    freeze_shared: bool = knob(True, help="learn alignments and heads on a shared module that is trained already")
    align_epochs: int | None = knob(None, low=1, help="epochs of that second phase; none: the run's")

    def phases(self) -> tuple[Phase, ...]:
        if not self.freeze_shared:
            return (Phase(),)
        return Phase(name="shared"), Phase(name="alignment", epochs=self.align_epochs)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if self.freeze_shared:
            first = encoder()
            embedding_size(first)  # before anything is trained in vain
            return _SharedModule(suite, first, dropout)
        return AlignedModule(suite, encoder(), dropout, frozen=False)

    def build_next(
        self, phase: str, found: Found, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        model = AlignedModule(suite, encoder(), dropout, frozen=True)
        model.load_state_dict(found["state"], strict=False)
        return model
