"""Covariance alignment: a matrix per task between the embeddings and what is shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import Architecture, MultiTaskModule
from mtlscale.architectures._phases import Found, Phase
from mtlscale.architectures.hps import HPSModule
from mtlscale.data import Batch, Outputs, labelled
from mtlscale.encoders import EncoderModule
from mtlscale.solvers import similarities_of_covariances
from mtlscale.spec import TaskSuite, UserError, knob, nearest


class AlignedModule(HPSModule):
    """Hard sharing in which task t's embeddings E_t [.., d] are read as E_t R_t, R_t [d, d] the identity at first.

    frozen: the encoder stays as it is, alignments and heads learn. turning: False holds R_t at the identity.
    """

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, dropout: float, *, frozen: bool, turning: bool = True
    ) -> None:
        super().__init__(suite, encoder, dropout)
        self.vectorised = False
        self.alignments = nn.ParameterList(nn.Parameter(torch.eye(embedding_size(encoder))) for _ in suite.tasks)
        self.alignments.requires_grad_(turning)
        self.independent = frozen
        self.tasks = suite.tasks
        self.similarity: dict[str, list[list[float | None]]] = {}  # of the embeddings, "before" and "after" they turn
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

    def look_back(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        covariances = [torch.zeros_like(turn, dtype=torch.float64) for turn in self.alignments]
        for batch in train:
            embedded = self.encoder.embed(batch.inputs)
            for place, task in enumerate(self.tasks):
                if task.name in batch.tasks:
                    kept = labelled(task, batch.samples.targets[task.name])
                    rows = _rows(embedded[kept], batch.inputs[kept]).to(torch.float64)
                    covariances[place] += rows.T @ rows
        whole = [sum(covariance).cpu() for covariance in covariances]
        turns = [turn.detach().to("cpu", torch.float64) for turn in self.alignments]
        turned = [turn.T @ covariance @ turn for covariance, turn in zip(whole, turns, strict=True)]
        self.similarity = {
            "before": _plain(similarities_of_covariances(whole)),
            "after": _plain(similarities_of_covariances(turned)),
        }

    def structure(self) -> dict[str, Any]:
        return {"tasks": list(self.names), "covariance_similarity": self.similarity} if self.similarity else {}


def _rows(embedded: Tensor, inputs: Tensor) -> Tensor:
    """[rows, d] of embedded [B, d], or [B, L, d] without padding."""
    return embedded if embedded.ndim == 2 else embedded[inputs != 0]


def _plain(table: Tensor) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in table.tolist()]


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
    """Hard sharing that hands over what it has learned.

    source: the one task whose loss the encoder learns from; "": all tasks'.
    """

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, dropout: float, source: str) -> None:
        super().__init__(suite, encoder, dropout)
        self.source = source

    def forward(self, batch: Batch) -> Outputs:
        if not self.source:
            return super().forward(batch)
        features = self.encoder(batch.inputs)
        seen = {task: features if task == self.source else features.detach() for task in batch.tasks}
        return Outputs({task: self.head(task)(seen[task]) for task in batch.tasks})  # what is detached has no gradient

    def hand_over(self) -> Found:
        return {"state": {key: value.detach().clone() for key, value in self.state_dict().items()}}


class Aligned(Architecture):
    """Covariance alignment: hard sharing, then a matrix per task between the embeddings and the shared module.

    First `hps` is trained. Then the shared module stays as it is, and for each task a matrix R_t, the identity at
    first, and its head learn, so that tasks whose data lie in different directions can use the same module. R_t is not
    held orthogonal. With `freeze_shared: false` everything learns together from the start, as in the paper's LSTM
    experiments. Sequences are turned token by token. With `source_task` the shared module learns from that task alone,
    and `align_epochs`, 5 to 10 in the paper, fit the others to it: the variant for transfer.

    The record keeps the covariance similarity of every two tasks' embedded training samples, of sequences that of their
    tokens, before and after they are turned.
    """

    name: ClassVar[str] = "aligned"
    source: ClassVar[str] = "Wu, Zhang & Ré, ICLR 2020, Algorithm 1"

    freeze_shared: bool = knob(True, help="learn alignments and heads on a shared module that is trained already")
    align_epochs: int | None = knob(None, low=1, help="epochs of that second phase; none: the run's")
    turning: bool = knob(True, help="false: R stays the identity, the control that tells what it adds")
    source_task: str | None = knob(None, help="the task that the shared module learns from; none: all of them")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_task is not None and not self.freeze_shared:
            raise UserError(f"{self.name}: source_task comes with a shared module that stays as it is; drop one")

    def phases(self) -> tuple[Phase, ...]:
        if not self.freeze_shared:
            return (Phase(),)
        return Phase(name="shared"), Phase(name="alignment", epochs=self.align_epochs)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if self.freeze_shared:
            first = encoder()
            embedding_size(first)  # before anything is trained in vain
            return _SharedModule(suite, first, dropout, self._source(suite))
        return AlignedModule(suite, encoder(), dropout, frozen=False, turning=self.turning)

    def build_next(
        self, phase: str, found: Found, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        model = AlignedModule(suite, encoder(), dropout, frozen=True, turning=self.turning)
        model.load_state_dict(found["state"], strict=False)
        return model

    def _source(self, suite: TaskSuite) -> str:
        names = [task.name for task in suite.tasks]
        if self.source_task is not None and self.source_task not in names:
            raise UserError(
                f"{self.name}: source_task {self.source_task!r} is none of {suite.name}: "
                f"{nearest(self.source_task, names)}"
            )
        return self.source_task or ""
