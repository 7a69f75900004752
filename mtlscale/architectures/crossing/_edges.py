"""Parallel networks, one per task, joined by directed edges from a stage of one task's to a stage of another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.architectures.contract import MultiTaskModule, encoder_head
from mtlscale.architectures.hooks import EpochView
from mtlscale.architectures.phases import PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import MapStagedModule, Memory, conv_block, resize

Reach = list[list[frozenset[int]]]  # task -> stage -> the tasks whose predictions depend on its features


class Edge(NamedTuple):
    """The edge from a stage of one task's network to the same or a later stage of another's.

    Tasks and stages are counted from 0.
    """

    source: int
    start: int
    task: int
    stage: int


def every_edge(tasks: int, stages: int) -> list[Edge]:
    """Return all possible edges, ordered by where they end."""
    return [
        Edge(source, start, task, stage)
        for task in range(tasks)
        for stage in range(stages)
        for source in range(tasks)
        if source != task
        for start in range(stage + 1)
    ]


def reach(tasks: int, stages: int, edges: Sequence[Edge]) -> tuple[Reach, Reach]:
    """Return the tasks that each stage's features serve, as the stage gives them and once edges are joined."""
    stage_reach: Reach = [[frozenset()] * stages for _ in range(tasks)]
    joined_reach: Reach = [[frozenset()] * stages for _ in range(tasks)]

    for stage in reversed(range(stages)):
        for task in range(tasks):
            joined_reach[task][stage] = frozenset({task}) if stage == stages - 1 else stage_reach[task][stage + 1]
        for task in range(tasks):
            ends = [joined_reach[e.task][e.stage] for e in edges if (e.source, e.start) == (task, stage)]
            stage_reach[task][stage] = joined_reach[task][stage].union(*ends)

    return stage_reach, joined_reach


class JoinedModule(MultiTaskModule):
    """Parallel encoders and heads, one per task, with an operation wherever edges end.

    The operation concatenates the task's own features and those that the edges bring, resized, and reduces them by a
    1x1 convolution, normalisation and ReLU. Edges read a stage's output before anything is joined to it, so that no two
    networks wait for each other. Parameters that serve a single task are that task's, all others are shared. `weights`
    are the edges' weights, for the record.
    """

    def __init__(
        self,
        suite: TaskSuite,
        encoders: Sequence[MapStagedModule],
        edges: Sequence[Edge],
        own: float,
        dropout: float,
        weights: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.names, self.edges, self.weights = tuple(task.name for task in suite.tasks), list(edges), list(weights)

        self.encoders = nn.ModuleList(encoders)
        self.heads = nn.ModuleList(encoder_head(e, t, dropout) for e, t in zip(encoders, suite.tasks, strict=True))
        self.stages, widths = len(encoders[0].stages), encoders[0].widths
        self.given, self.joined = reach(len(encoders), self.stages, self.edges)

        self.into: dict[tuple[int, int], list[Edge]] = {}
        for edge in self.edges:
            self.into.setdefault((edge.task, edge.stage), []).append(edge)
        self.joints = nn.ModuleDict(
            {_key(*end): joint(widths[end[1]], [widths[e.start] for e in into], own) for end, into in self.into.items()}
        )

        self.independent = not edges

    def strengths(self, task: int, stage: int) -> Sequence[Tensor | float]:
        """Return the factors that multiply the features of each edge that ends here."""
        return [1.0] * len(self.into[task, stage])

    def forward(self, batch: Batch) -> Outputs:
        encoders: list[MapStagedModule] = list(self.encoders)  # type: ignore[arg-type]

        batch_tasks = {self.names.index(task) for task in batch.tasks}
        features = {t: e.prepare(batch.inputs) for t, e in enumerate(encoders) if self.given[t][0] & batch_tasks}
        memories = [Memory() for _ in encoders]
        stage_outputs: dict[tuple[int, int], Tensor] = {}

        for stage in range(self.stages):
            for task, encoder in enumerate(encoders):
                if self.given[task][stage] & batch_tasks:
                    stage_outputs[task, stage] = encoder.stage(stage, features[task], memories[task])
            for task in range(len(encoders)):
                if self.joined[task][stage] & batch_tasks:
                    features[task] = self.join(task, stage, stage_outputs)

        indices = {task: self.names.index(task) for task in batch.tasks}
        return Outputs({name: self.heads[t](encoders[t].finish(features[t])) for name, t in indices.items()})

    def join(self, task: int, stage: int, found: dict[tuple[int, int], Tensor]) -> Tensor:
        """Return the features [B, C, h, w] with which a task goes on after a stage.

        Args:
            found: (task, stage) -> the output [B, C, h, w] of that stage.
        """
        own_features = found[task, stage]
        if (task, stage) not in self.into:
            return own_features

        size = (own_features.shape[-2], own_features.shape[-1])
        edge_features = [
            resize(found[edge.source, edge.start], size) * strength
            for edge, strength in zip(self.into[task, stage], self.strengths(task, stage), strict=True)
        ]

        joined: Tensor = self.joints[_key(task, stage)](torch.cat([own_features, *edge_features], dim=1))
        return joined

    def of_joint(self, task: int, stage: int) -> list[nn.Parameter]:
        """Return the parameters that `join` uses at this task and stage."""
        return list(self.joints[_key(task, stage)].parameters()) if (task, stage) in self.into else []

    def _serving(self, whom: int | None) -> list[nn.Parameter]:
        """Return the parameters that serve this task alone; for None, those that serve several tasks."""
        serving: list[nn.Parameter] = []
        for task, encoder in enumerate(self.encoders):
            for stage, layers in enumerate(encoder.stages):  # type: ignore[arg-type]
                for served, parameters in (
                    (self.given[task][stage], layers.parameters()),
                    (self.joined[task][stage], self.of_joint(task, stage)),
                ):
                    if (task if len(served) == 1 else None) == whom:
                        serving += parameters
        return serving

    def shared_parameters(self) -> list[nn.Parameter]:
        return self._serving(None)

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [*self._serving(index), *self.heads[index].parameters()]

    def structure(self) -> dict[str, Any]:
        return {
            "edges": [
                [self.names[e.source], e.start + 1, self.names[e.task], e.stage + 1, weight]
                for e, weight in zip(self.edges, self.weights, strict=True)
            ],
            "tasks": list(self.names),
        }


class SearchedModule(JoinedModule):
    """Parallel networks with all possible edges, whose weights σ(logit) a penalty pushes to 0 or 1.

    The penalty is the weights' mean entropy, in nats, times a factor: 0 in the first epoch, `entropy` more with each.
    """

    factor: Tensor

    def __init__(
        self, suite: TaskSuite, encoders: Sequence[MapStagedModule], own: float, entropy: float, dropout: float
    ) -> None:
        super().__init__(suite, encoders, every_edge(len(encoders), len(encoders[0].stages)), own, dropout)
        self.logits = nn.ParameterDict({_key(*end): torch.zeros(len(into)) for end, into in self.into.items()})
        self.entropy = entropy
        self.register_buffer("factor", torch.zeros((), dtype=torch.float64))

    def strengths(self, task: int, stage: int) -> Sequence[Tensor | float]:
        weights: Sequence[Tensor] = self.logits[_key(task, stage)].sigmoid().unbind()
        return weights

    def of_joint(self, task: int, stage: int) -> list[nn.Parameter]:
        return [*super().of_joint(task, stage), self.logits[_key(task, stage)]]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        weights = [*self.encoders.parameters(), *self.heads.parameters(), *self.joints.parameters()]
        return {WEIGHTS: weights, CHOICE: list(self.logits.values())}

    def penalty(self) -> Tensor:
        return self.factor * entropy(self._all_logits()).mean()

    def on_epoch_end(self, epoch: EpochView) -> None:
        self.factor.fill_(epoch.number * self.entropy)

    def edge_weights(self) -> list[float]:
        """Return the weights of the edges, in the order of `edges`."""
        weights: list[float] = self._all_logits().detach().sigmoid().tolist()
        return weights

    def traces(self) -> dict[str, Any]:
        logits = self._all_logits().detach()
        return {"kept_edges": int((logits > 0).sum()), "edge_entropy": entropy(logits).mean().item()}

    def phase_output(self) -> PhaseOutput:
        weighted = zip(self.edges, self.edge_weights(), strict=True)
        return {"edges": [[*edge, weight] for edge, weight in weighted if weight > 0.5]}

    def _all_logits(self) -> Tensor:
        return torch.cat(list(self.logits.values()))


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy, in nats, of coins that fall on 1 with probability σ(logit)."""
    probability = logits.sigmoid()
    return functional.softplus(logits) - probability * logits


def joint(width: int, others: Sequence[int], own: float) -> nn.Sequential:
    """Build a 1x1 convolution from a task's own channels and those that edges bring, normalisation and ReLU.

    The convolution starts with weight `own` on each own channel, and spreads 1 - `own` evenly over the edges' same
    channels, as far as they have so many.
    """
    block = conv_block(width + sum(others), width, 1)
    convolution = block[0]
    assert isinstance(convolution, nn.Conv2d)
    parts = [
        own * torch.eye(width),
        *((1.0 - own) / len(others) * torch.eye(width, edge_width) for edge_width in others),
    ]
    with torch.no_grad():
        convolution.weight.copy_(torch.cat(parts, dim=1)[:, :, None, None])
    return block


def _key(task: int, stage: int) -> str:
    return f"{task}_{stage}"
