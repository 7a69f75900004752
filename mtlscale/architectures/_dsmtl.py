"""The network of DSMTL: a public encoder for all tasks, a private one per task, and a gate between the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import MultiTaskModule, encoder_head
from mtlscale.architectures._tree import in_stages
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, Memory, StagedModule
from mtlscale.spec import TaskSuite, UserError


def stage_sizes(encoder: Callable[[], EncoderModule]) -> list[int]:
    """How many numbers each stage learns. Initialisation goes on as if it had not been asked."""
    with torch.random.fork_rng(devices=[]):
        return [sum(p.numel() for p in stage.parameters()) for stage in in_stages(encoder()).stages]


class DSMTLModule(MultiTaskModule):
    """Task t's features are a f_S(x) + (1 - a) f_t(x), with a gate a = a_t in [0, 1], then its head.

    alpha: the gate of all tasks; None: learned, a sigmoid of a logit that starts at 0. after: the stage after which
    features mix, from where the private encoder goes on; None: the last. points: for each task its branch point p in
    1..stages + 1: its private encoder is stages p.. on the public features before; default: 1, all of it. Where a gate
    cannot matter there is none, and what it would have switched off is left out: a = 0 is single-task learning, a = 1
    and p = stages + 1 are hard sharing.
    """

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        *,
        alpha: float | None = None,
        after: int | None = None,
        points: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.sizes, self.alpha = stage_sizes(encoder), alpha
        self.stages = len(self.sizes)
        self.after = self.stages if after is None else after
        if self.after > self.stages:
            raise UserError(f"dsmtl: after = {after} is outside 1..{self.stages}, the stages of this encoder")
        given = list(points or [1] * len(self.names))
        self.points = [max(p, self.after + 1) for p in given] if alpha == 1.0 else given
        self.gated = [p <= self.after and alpha != 0.0 for p in self.points]
        # So many stages of the public encoder are in use.
        reach = max(self.after if gated else p - 1 for p, gated in zip(self.points, self.gated, strict=True))
        # The initial weights of single-task learning, or of hard sharing, come first.
        own = {place: in_stages(encoder()) for place, p in enumerate(self.points) if p <= self.stages}
        public = None if own else in_stages(encoder())
        model = public or next(iter(own.values()))
        self.heads = nn.ModuleList(encoder_head(model, task, dropout) for task in suite.tasks)
        for place, part in own.items():
            part.keep(self.points[place] - 1, self.stages)
        self.private = nn.ModuleDict({str(place): part for place, part in own.items()})
        self.reach, self.public = reach, public
        if reach and public is None:
            self.public = in_stages(encoder())
            self.public.keep(0, reach)
        learned = [place for place, gated in enumerate(self.gated) if gated and alpha is None]
        self.logits = nn.ParameterDict({str(place): nn.Parameter(torch.zeros(())) for place in learned})
        self.independent = not reach
        # Whether all that the tasks have of the public encoder is its output.
        whole = all(p == (1 if gated else self.stages + 1) for p, gated in zip(self.points, self.gated, strict=True))
        self.at_output = whole and reach == self.stages == self.after
        self.vectorised = self.at_output and self.public is not None and self.public.vectorised

    def gate(self, place: int) -> Tensor | float:
        """How much a task takes of the public features."""
        if self.alpha is not None:
            return self.alpha
        logit: Tensor = self.logits[str(place)]
        return logit.sigmoid()

    def open(self, place: int) -> bool:
        """Whether a task's gate is in use; closed, its network is the private one alone."""
        return self.gated[place]

    def forward(self, batch: Batch) -> Outputs:
        places = {task: self.names.index(task) for task in batch.tasks}
        passed = self._public(batch.inputs)
        shared = None
        if self.public is not None and self.reach == self.stages:
            shared = self.public.finish(passed[-1][0])
        branches = {} if shared is None else {task: shared.view_as(shared) for task in batch.tasks}
        predictions = {
            task: self.heads[place](self._features(place, batch.inputs, passed, branches.get(task)))
            for task, place in places.items()
        }
        return Outputs(predictions, shared, branches) if self.at_output else Outputs(predictions)

    def _public(self, inputs: Tensor) -> list[tuple[Tensor, Memory]]:
        """The public features before the first stage and after each that is in use, with what later stages need."""
        if self.public is None:
            return []
        passed = [(self.public.prepare(inputs), Memory())]
        for stage in range(self.reach):
            features, memory = passed[-1][0], Memory(passed[-1][1])
            passed.append((self.public.stage(stage, features, memory), memory))
        return passed

    def _features(
        self, place: int, inputs: Tensor, passed: list[tuple[Tensor, Memory]], shared: Tensor | None
    ) -> Tensor:
        point, mixes = self.points[place], self.open(place)
        if point > self.stages:
            assert shared is not None
            return shared
        private: StagedModule = self.private[str(place)]  # type: ignore[assignment]
        features, memory = (private.prepare(inputs), Memory()) if point == 1 else passed[point - 1]
        memory = Memory(memory)
        for stage in range(point - 1, self.stages):
            features = private.stage(stage, features, memory)
            if mixes and stage + 1 == self.after < self.stages:
                features = self._mixed(place, passed[self.after][0], features)
        features = private.finish(features)
        if mixes and self.after == self.stages:
            assert shared is not None
            features = self._mixed(place, shared, features)
        return features

    def _mixed(self, place: int, public: Tensor, private: Tensor) -> Tensor:
        gate = self.gate(place)
        return gate * public + (1.0 - gate) * private

    def shared_parameters(self) -> list[nn.Parameter]:
        return [] if self.public is None else list(self.public.parameters())

    def shared_modules(self) -> list[list[nn.Parameter]]:
        stages = [] if self.public is None else self.public.stages
        return [list(stage.parameters()) for stage in stages]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.names.index(task)
        key = str(place)
        logit = [self.logits[key]] if key in self.logits else []
        private = list(self.private[key].parameters()) if key in self.private else []
        return [*logit, *private, *self.heads[place].parameters()]

    def gates(self) -> dict[str, float]:
        """Task -> its gate, of tasks that have one."""
        with torch.no_grad():
            return {name: float(self.gate(place)) for place, name in enumerate(self.names) if self.gated[place]}

    def traces(self) -> dict[str, Any]:
        return {"gates": self.gates()}

    def structure(self) -> dict[str, Any]:
        points = dict(zip(self.names, self.points, strict=True))
        return {"points": points, "stage_parameters": self.sizes, "tasks": list(self.names)}
