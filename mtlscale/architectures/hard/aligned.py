"""Covariance alignment (Wu, Zhang, Ré)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.hard.hps import HPSModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.config import TaskSuite, UserError, knob, nearest
from mtlscale.data import Batch, Outputs, labelled
from mtlscale.encoders import EncoderModule
from mtlscale.solvers import similarities_of_covariances


class AlignedModule(HPSModule):
    """Hard sharing in which the shared module reads task t's embeddings E_t [.., d] as E_t R_t.

    R_t [d, d] is the identity at first. With `frozen` the encoder stays as it is, and alignments and heads learn.
    Without `turning`, R_t stays the identity.
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
        self.similarity: dict[str, list[list[float | None]]] = {}  # of the embeddings, "before" and "after" alignment
        self.encoder.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> AlignedModule:
        super().train(mode)
        if self.independent:
            self.encoder.eval()  # the frozen encoder uses neither dropout nor statistics of batches
        return self

    def forward(self, batch: Batch) -> Outputs:
        embedded, predictions = self.encoder.embed(batch.inputs), {}
        for task in batch.tasks:
            aligned = embedded @ self.alignments[self.names.index(task)]
            predictions[task] = self.head(task)(self.encoder.read(aligned, batch.inputs))
        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [] if self.independent else super().shared_parameters()

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [self.shared_parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [self.alignments[self.names.index(task)], *super().task_parameters(task)]

    def after_training(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        covariances = [torch.zeros_like(alignment, dtype=torch.float64) for alignment in self.alignments]

        for batch in train:
            embedded = self.encoder.embed(batch.inputs)
            for index, task in enumerate(self.tasks):
                if task.name in batch.tasks:
                    has_label = labelled(task, batch.samples.targets[task.name])
                    rows = _rows(embedded[has_label], batch.inputs[has_label]).to(torch.float64)
                    covariances[index] += rows.T @ rows

        totals = [sum(covariance).cpu() for covariance in covariances]
        alignments = [alignment.detach().to("cpu", torch.float64) for alignment in self.alignments]
        aligned_totals = [
            alignment.T @ covariance @ alignment for covariance, alignment in zip(totals, alignments, strict=True)
        ]

        self.similarity = {
            "before": _plain(similarities_of_covariances(totals)),
            "after": _plain(similarities_of_covariances(aligned_totals)),
        }

    def structure(self) -> dict[str, Any]:
        return {"tasks": list(self.names), "covariance_similarity": self.similarity} if self.similarity else {}


def _rows(embedded: Tensor, inputs: Tensor) -> Tensor:
    """Return the rows [rows, d] of embedded [B, d], or of [B, L, d] without padding."""
    return embedded if embedded.ndim == 2 else embedded[inputs != 0]


def _plain(table: Tensor) -> list[list[float | None]]:
    return [[None if math.isnan(value) else value for value in row] for row in table.tolist()]


def embedding_size(encoder: EncoderModule) -> int:
    """Return the size of the encoder's embeddings; raise `UserError` if it has none."""
    size = encoder.embedding_size
    if size is None:
        raise UserError(
            "aligned turns a task's embeddings, and this encoder has no layer of them; choose mlp, averaged, lstm, "
            "bilstm, textcnn, transformer or pretrained"
        )
    return size


class _SharedModule(HPSModule):
    """Hard sharing that hands over its trained state.

    `source` is the one task whose loss the encoder learns from; empty: all tasks'.
    """

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, dropout: float, source: str) -> None:
        super().__init__(suite, encoder, dropout)
        self.source = source

    def forward(self, batch: Batch) -> Outputs:
        if not self.source:
            return super().forward(batch)
        features = self.encoder(batch.inputs)
        task_features = {task: features if task == self.source else features.detach() for task in batch.tasks}
        # Detached features pass no gradient on.
        return Outputs({task: self.head(task)(task_features[task]) for task in batch.tasks})

    def phase_output(self) -> PhaseOutput:
        return {"state": {key: value.detach().clone() for key, value in self.state_dict().items()}}


class Aligned(Architecture):
    """Covariance alignment: hard sharing, then a matrix per task between the embeddings and the shared module.

    First `hps` is trained. Then the shared module is frozen, and for each task a matrix R_t, the identity at first, and
    its head learn, so that tasks whose data lie in different directions can use the same module. R_t is not kept
    orthogonal. With `freeze_shared: false` everything learns together from the start, as in the paper's LSTM
    experiments. Sequences are aligned token by token. With `source_task` the shared module learns from that task alone,
    and `align_epochs`, 5 to 10 in the paper, fit the others to it: the variant for transfer.

    The record keeps the covariance similarity of every two tasks' embedded training samples, for sequences that of
    their tokens, before and after alignment.
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
            embedding_size(first)  # fails before anything is trained in vain
            return _SharedModule(suite, first, dropout, self._source(suite))
        return AlignedModule(suite, encoder(), dropout, frozen=False, turning=self.turning)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
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
