"""Networks side by side, one per task, joined by directed edges from a stage of one task's to a stage of another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.architectures._base import MultiTaskModule, encoder_head
from mtlscale.architectures._phases import Found
from mtlscale.architectures._search import CHOICE, WEIGHTS
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import MapStagedModule, Memory, conv_block, resize
from mtlscale.spec import TaskSuite

Reach = list[list[frozenset[int]]]  # task -> stage -> the tasks whose predictions depend on what is there


class Edge(NamedTuple):
    """From a stage of one task's network to a stage, no earlier, of another's; all counted from 0."""

    source: int
    start: int
    task: int
    stage: int


def every_edge(tasks: int, stages: int) -> list[Edge]:
    """All edges there may be, by where they end."""
    return [
        Edge(source, start, task, stage)
        for task in range(tasks)
        for stage in range(stages)
        for source in range(tasks)
        if source != task
        for start in range(stage + 1)
    ]


def reach(tasks: int, stages: int, edges: Sequence[Edge]) -> tuple[Reach, Reach]:
    """Whom the features of a stage serve, as the stage gives them and as they are once joined with what edges bring."""
    given: Reach = [[frozenset()] * stages for _ in range(tasks)]
    joined: Reach = [[frozenset()] * stages for _ in range(tasks)]
    for stage in reversed(range(stages)):
        for task in range(tasks):
            joined[task][stage] = frozenset({task}) if stage == stages - 1 else given[task][stage + 1]
        for task in range(tasks):
            ends = [joined[e.task][e.stage] for e in edges if (e.source, e.start) == (task, stage)]
            given[task][stage] = joined[task][stage].union(*ends)
    return given, joined


class JoinedModule(MultiTaskModule):
    """An encoder and a head per task, and an operation wherever edges end: the task's own features and those that the
    edges bring, resized, are concatenated and reduced by a 1x1 convolution, normalisation and ReLU.

    Edges read what a stage gives, before anything is joined to it, so that no two networks wait for each other. What
    serves a single task is that task's, all else is shared. weights: of the edges, for the record.
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
        """What the features of each edge that ends here are multiplied by."""
        return [1.0] * len(self.into[task, stage])

    def forward(self, batch: Batch) -> Outputs:
        encoders: list[MapStagedModule] = list(self.encoders)  # type: ignore[arg-type]
        wanted = {self.names.index(task) for task in batch.tasks}
        features = {t: e.prepare(batch.inputs) for t, e in enumerate(encoders) if self.given[t][0] & wanted}
        memories = [Memory() for _ in encoders]
        found: dict[tuple[int, int], Tensor] = {}
        for stage in range(self.stages):
            for task, encoder in enumerate(encoders):
                if self.given[task][stage] & wanted:
                    found[task, stage] = encoder.stage(stage, features[task], memories[task])
            for task in range(len(encoders)):
                if self.joined[task][stage] & wanted:
                    features[task] = self.join(task, stage, found)
        places = {task: self.names.index(task) for task in batch.tasks}
        return Outputs({name: self.heads[t](encoders[t].finish(features[t])) for name, t in places.items()})

    def join(self, task: int, stage: int, found: dict[tuple[int, int], Tensor]) -> Tensor:
        """found: (task, stage) -> what that stage gave, [B, C, h, w] -> the task's features from here on."""
        own = found[task, stage]
        if (task, stage) not in self.into:
            return own
        size = (own.shape[-2], own.shape[-1])
        brought = [
            resize(found[edge.source, edge.start], size) * strength
            for edge, strength in zip(self.into[task, stage], self.strengths(task, stage), strict=True)
        ]
        joined: Tensor = self.joints[_key(task, stage)](torch.cat([own, *brought], dim=1))
        return joined

    def of_joint(self, task: int, stage: int) -> list[nn.Parameter]:
        """What `join` uses there."""
        return list(self.joints[_key(task, stage)].parameters()) if (task, stage) in self.into else []

    def _serving(self, whom: int | None) -> list[nn.Parameter]:
        """Parameters that serve this task alone; None: those that serve several."""
        found: list[nn.Parameter] = []
        for task, encoder in enumerate(self.encoders):
            for stage, layers in enumerate(encoder.stages):  # type: ignore[arg-type]
                for served, parameters in (
                    (self.given[task][stage], layers.parameters()),
                    (self.joined[task][stage], self.of_joint(task, stage)),
                ):
                    if (task if len(served) == 1 else None) == whom:
                        found += parameters
        return found

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
    """All edges there may be, each with a weight σ(logit), and a term that pushes these weights to 0 or 1.

    The term is their mean entropy, in nats, times a factor: 0 in the first epoch, `entropy` more with each.
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
        found: Sequence[Tensor] = self.logits[_key(task, stage)].sigmoid().unbind()
        return found

    def of_joint(self, task: int, stage: int) -> list[nn.Parameter]:
        return [*super().of_joint(task, stage), self.logits[_key(task, stage)]]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        rest = [*self.encoders.parameters(), *self.heads.parameters(), *self.joints.parameters()]
        return {WEIGHTS: rest, CHOICE: list(self.logits.values())}

    def penalty(self) -> Tensor:
        return self.factor * entropy(self._all_logits()).mean()

    def on_epoch_end(self, epoch: int) -> None:
        self.factor.fill_(epoch * self.entropy)

    def edge_weights(self) -> list[float]:
        """In the order of `edges`."""
        found: list[float] = self._all_logits().detach().sigmoid().tolist()
        return found

    def traces(self) -> dict[str, Any]:
        logits = self._all_logits().detach()
        return {"kept_edges": int((logits > 0).sum()), "edge_entropy": entropy(logits).mean().item()}

    def hand_over(self) -> Found:
        weighted = zip(self.edges, self.edge_weights(), strict=True)
        return {"edges": [[*edge, weight] for edge, weight in weighted if weight > 0.5]}

    def _all_logits(self) -> Tensor:
        return torch.cat(list(self.logits.values()))


def entropy(logits: Tensor) -> Tensor:
    """Of coins that fall on 1 with probability σ(logit), in nats."""
    share = logits.sigmoid()
    return functional.softplus(logits) - share * logits


def joint(width: int, others: Sequence[int], own: float) -> nn.Sequential:
    """1x1 convolution from a task's own channels and those that edges bring, normalisation and ReLU: at first `own` of
    each own channel, and the rest spread over the edges' same channels, as far as they have so many."""
    block = conv_block(width + sum(others), width, 1)
    convolution = block[0]
    assert isinstance(convolution, nn.Conv2d)
    parts = [own * torch.eye(width), *((1.0 - own) / len(others) * torch.eye(width, other) for other in others)]
    with torch.no_grad():
        convolution.weight.copy_(torch.cat(parts, dim=1)[:, :, None, None])
    return block


def _key(task: int, stage: int) -> str:
    return f"{task}_{stage}"
