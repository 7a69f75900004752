"""PEPNet: personalised recommenders of several domains."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, of_vectors
from mtlscale.config import TaskSuite, UserError, knob, nearest
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import Dropout, EncoderModule

ENCODERS = "embedding_mlp, deepfm or dcn_v2"  # which have an embedding of every column
SCALE = 2.0  # γ: gates are between 0 and 2, and 1 where their last layer gives 0


class GateUnit(nn.Module):
    """Gate neural unit γ σ(W' ReLU(W x + b) + b'): [B, inputs] -> one of its gates [B, width]."""

    def __init__(self, inputs: int, hidden: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.outputs = nn.ModuleList(nn.Linear(hidden, width) for width in widths)

    def forward(self, inputs: Tensor, output: int) -> Tensor:
        gate: Tensor = SCALE * self.outputs[output](self.hidden(inputs).relu()).sigmoid()
        return gate


class PEPNetModule(MultiTaskModule):
    """The network of an encoder whose embeddings are gated, and of a gated tower for each task."""

    def __init__(
        self,
        suite: TaskSuite,
        encoder: EncoderModule,
        domain: list[int],
        personal: list[int],
        widths: tuple[int, ...],
        dropout: float,
    ) -> None:
        """Build the network.

        Args:
            encoder: The encoder, which has embeddings.
            domain: Positions in the embedding of what describes the domain; none: embeddings are not gated.
            personal: Positions of what describes the person or the item.
            widths: Widths of the towers' hidden layers.
            dropout: Rate after each of them.
        """
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder
        self.register_buffer("domain", torch.tensor(domain, dtype=torch.int64), persistent=False)
        self.register_buffer("personal", torch.tensor(personal, dtype=torch.int64), persistent=False)
        size = encoder.embedding_size or 0

        self.embedding_gate = GateUnit(len(domain) + size, size, [size]) if domain else None
        tasks = len(suite.tasks)
        self.gates: Sequence[GateUnit] = nn.ModuleList(  # type: ignore[assignment]
            GateUnit(len(personal) + size, width, [width] * tasks) for width in widths
        )
        self.towers: Sequence[nn.ModuleList] = nn.ModuleList(  # type: ignore[assignment]
            nn.ModuleList(
                nn.Sequential(nn.Linear(before, after), nn.ReLU(), Dropout(dropout))
                for before, after in itertools.pairwise((encoder.features, *widths))
            )
            for _ in suite.tasks
        )
        self.heads = nn.ModuleList(nn.Linear(widths[-1], task.outputs) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        embedded = self.encoder.embed(batch.inputs)
        prior = embedded[:, self.get_buffer("personal")]
        if self.embedding_gate is not None:
            embedded = embedded * self.embedding_gate(_beside(embedded[:, self.get_buffer("domain")], embedded), 0)

        features = self.encoder.read(embedded, batch.inputs)
        gate_inputs = _beside(prior, embedded)
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            values = features
            for layer, gate in zip(self.towers[index], self.gates, strict=True):
                values = gate(gate_inputs, index) * layer(values)
            predictions[task] = self.heads[index](values)
        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        of_domain = [] if self.embedding_gate is None else list(self.embedding_gate.parameters())
        return [*self.encoder.parameters(), *of_domain, *(p for gate in self.gates for p in gate.hidden.parameters())]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        modules = [self.towers[index], *(gate.outputs[index] for gate in self.gates), self.heads[index]]
        return [p for module in modules for p in module.parameters()]


def _beside(prior: Tensor, embedded: Tensor) -> Tensor:
    """Return the input of a gate: the prior, and the embeddings, into which no gradient of the gate flows."""
    return torch.cat([prior, embedded.detach()], 1)


class PEPNet(Architecture):
    """Parameter and embedding personalisation: gates scale embeddings by the domain, and towers by the person.

    A gate is 2 σ(W' ReLU(W x + b) + b'). EPNet multiplies the embeddings E by one that reads those of the `domain`
    columns and, without a gradient into it, E. PPNet multiplies every hidden layer of every task's tower by one that
    reads those of the `personal` columns, such as user and item, and, without a gradient, the gated E. The encoder's
    layers, if it has any, lie between. The paper's domains are scenes of an app; here they are values of columns. As
    its gates have one hidden layer each, whose width the paper leaves open, those of towers have the tower's here.
    """

    name: ClassVar[str] = "pepnet"
    source: ClassVar[str] = "Chang et al., KDD 2023"
    batchable: ClassVar[bool] = True

    domain: tuple[str, ...] = knob((), help="columns that say which domain a sample is of; none: no gate of embeddings")
    personal: tuple[str, ...] = knob((), help="columns that say whose and what a sample is, such as user and item")
    hidden: tuple[int, ...] = knob((32,), low=1, search=((16,), (32,), (64, 32)), help="widths of the towers' layers")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if not self.hidden:
            raise UserError("pepnet gates the hidden layers of its towers; name at least one width in `hidden`")
        module = of_vectors(encoder(), "pepnet")
        if module.embedding_size is None:
            raise UserError(f"pepnet gates embeddings, and this encoder has none; choose {ENCODERS}")
        domain, personal = (positions_of(columns, suite, module) for columns in (self.domain, self.personal))
        return PEPNetModule(suite, module, domain, personal, self.hidden, dropout)


def positions_of(columns: Sequence[str], suite: TaskSuite, encoder: EncoderModule) -> list[int]:
    """Return the positions of columns in the embedding; `UserError` if a column is unknown or has none."""
    spans, names = getattr(encoder, "spans", None), list(suite.extras.get("columns", ()))
    positions: list[int] = []
    for column in columns:
        if spans is None:
            raise UserError(f"pepnet: this encoder has no embedding of column {column!r}; choose {ENCODERS}")
        if column not in names:
            hint = nearest(column, names) if names else f"{suite.name} does not name its columns"
            raise UserError(f"pepnet: there is no column {column!r}; {hint}")
        positions += range(*spans[names.index(column)])
    return positions
