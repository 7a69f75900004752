"""Covariance alignment (Wu, Zhang, Ré)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, cast

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
        self.frozen = self.independent = frozen
        self.tasks = suite.tasks
        self.similarity: dict[str, list[list[float | None]]] = {}  # of the embeddings, "before" and "after" alignment
        self.encoder.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> AlignedModule:
        super().train(mode)
        if self.frozen:
            self.encoder.eval()  # the frozen encoder uses neither dropout nor statistics of batches
        return self

    def encoder_of(self, index: int) -> EncoderModule:
        """Return the encoder that reads a task's aligned embeddings."""
        return self.encoder

    def forward(self, batch: Batch) -> Outputs:
        embedded: dict[EncoderModule, Tensor] = {}
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            encoder = self.encoder_of(index)
            if encoder not in embedded:
                embedded[encoder] = encoder.embed(batch.inputs)
            predictions[task] = self.head(task)(encoder.read(embedded[encoder] @ self.alignments[index], batch.inputs))
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
            for index, task in enumerate(self.tasks):
                if task.name in batch.tasks:
                    embedded = self.encoder_of(index).embed(batch.inputs)
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


class TunedModule(AlignedModule):
    """Networks of their own, copies of the source's, in which encoder, alignment and head of each task learn."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, dropout: float, *, turning: bool) -> None:
        super().__init__(suite, encoder, dropout, frozen=False, turning=turning)
        self.copies = nn.ModuleList(copy.deepcopy(encoder) for _ in suite.tasks[1:])
        self.independent = True

    def start_from(self, state: Mapping[str, Tensor]) -> None:
        """Load the state of a shared module into every task's network."""
        self.load_state_dict(state, strict=False)
        for encoder in self.copies:
            encoder.load_state_dict(self.encoder.state_dict())

    def encoder_of(self, index: int) -> EncoderModule:
        return cast("EncoderModule", self.copies[index - 1]) if index else self.encoder

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [*self.encoder_of(self.names.index(task)).parameters(), *super().task_parameters(task)]


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
    orthogonal. With `together` everything learns from the start, as in the paper's LSTM experiments. Sequences are
    aligned token by token. With `source_task` the shared module learns from that task alone, and `align_epochs`, 5 to
    10 in the paper, fit the others to it: the variant for transfer. With `freeze_shared: false` each task then tunes a
    copy of the whole network, as for the paper's figure 5b.

    The record keeps the covariance similarity of every two tasks' embedded training samples, for sequences that of
    their tokens, before and after alignment.
    """

    name: ClassVar[str] = "aligned"
    source: ClassVar[str] = "Wu, Zhang & Ré, ICLR 2020, Algorithm 1"

    freeze_shared: bool = knob(
        True, help="alignments and heads learn on a shared module that stays; false: each task tunes a copy of it, too"
    )
    align_epochs: int | None = knob(None, low=1, help="epochs of that second phase; none: the run's")
    turning: bool = knob(True, help="false: R stays the identity, the control that tells what it adds")
    source_task: str | None = knob(None, help="the task that the shared module learns from; none: all of them")
    together: bool = knob(False, later=True, help="alignments, heads and shared module learn at once, in one phase")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.freeze_shared and self.source_task is None:
            raise UserError(
                f"{self.name}: freeze_shared: false tunes what source_task has trained; name that task, or set together"
            )
        if self.together and (self.source_task is not None or self.align_epochs is not None):
            raise UserError(f"{self.name}: together is one phase for all tasks; drop source_task and align_epochs")

    def phases(self) -> tuple[Phase, ...]:
        if self.together:
            return (Phase(),)
        return Phase(name="shared"), Phase(name="alignment", epochs=self.align_epochs)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if self.together:
            return AlignedModule(suite, encoder(), dropout, frozen=False, turning=self.turning)
        first = encoder()
        embedding_size(first)  # fails before anything is trained in vain
        return _SharedModule(suite, first, dropout, self._source(suite))

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if self.freeze_shared:
            model = AlignedModule(suite, encoder(), dropout, frozen=True, turning=self.turning)
            model.load_state_dict(found["state"], strict=False)
            return model
        tuned = TunedModule(suite, encoder(), dropout, turning=self.turning)
        tuned.start_from(found["state"])
        return tuned

    def _source(self, suite: TaskSuite) -> str:
        names = [task.name for task in suite.tasks]
        if self.source_task is not None and self.source_task not in names:
            raise UserError(
                f"{self.name}: source_task {self.source_task!r} is none of {suite.name}: "
                f"{nearest(self.source_task, names)}"
            )
        return self.source_task or ""
