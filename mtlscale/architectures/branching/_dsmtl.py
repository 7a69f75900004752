"""The network of DSMTL: a public encoder for all tasks, a private one per task, and a gate between the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import MultiTaskModule, encoder_head
from mtlscale.architectures.trees import in_stages
from mtlscale.config import TaskSuite, UserError
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, Memory, StagedModule


def stage_sizes(encoder: Callable[[], EncoderModule]) -> list[int]:
    """Return the number of parameters of each stage.

    The random generator's state is restored, so that later initialisations do not depend on this call.
    """
    with torch.random.fork_rng(devices=[]):
        return [sum(p.numel() for p in stage.parameters()) for stage in in_stages(encoder()).stages]


class DSMTLModule(MultiTaskModule):
    """The DSMTL network: task t's head reads a f_S(x) + (1 - a) f_t(x), with a gate a = a_t in [0, 1].

    A gate that cannot matter is left out, and so is what it would switch off: a = 0 is single-task learning, a = 1 and
    p = stages + 1 are hard sharing.

    Args:
        suite: The tasks and the shapes of their data.
        encoder: Makes one freshly initialised encoder per call.
        dropout: Rate of the dropout before the heads.
        alpha: The gate of all tasks; None: each is learned, a sigmoid of a logit that starts at 0.
        after: The stage after which features mix, and from which the private encoder goes on; None: the last.
        points: The branch point p of each task, in 1..stages + 1: its private encoder is stages p.. on the public
            features before; default: 1, a full private encoder.
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

        branch_points = list(points or [1] * len(self.names))
        self.points = [max(p, self.after + 1) for p in branch_points] if alpha == 1.0 else branch_points
        self.gated = [p <= self.after and alpha != 0.0 for p in self.points]

        # The number of public stages in use.
        reach = max(self.after if gated else p - 1 for p, gated in zip(self.points, self.gated, strict=True))

        # These are initialised first, so that their weights are those of single-task learning or of hard sharing.
        private_encoders = {index: in_stages(encoder()) for index, p in enumerate(self.points) if p <= self.stages}
        public = None if private_encoders else in_stages(encoder())
        model = public or next(iter(private_encoders.values()))
        self.heads = nn.ModuleList(encoder_head(model, task, dropout) for task in suite.tasks)
        for index, private_encoder in private_encoders.items():
            private_encoder.keep(self.points[index] - 1, self.stages)
        self.private = nn.ModuleDict(
            {str(index): private_encoder for index, private_encoder in private_encoders.items()}
        )

        self.reach, self.public = reach, public
        if reach and public is None:
            self.public = in_stages(encoder())
            self.public.keep(0, reach)

        learned_gates = [index for index, gated in enumerate(self.gated) if gated and alpha is None]
        self.logits = nn.ParameterDict({str(index): nn.Parameter(torch.zeros(())) for index in learned_gates})

        self.independent = not reach
        # Whether tasks read nothing of the public encoder but its output.
        reads_output_only = all(
            p == (1 if gated else self.stages + 1) for p, gated in zip(self.points, self.gated, strict=True)
        )
        self.at_output = reads_output_only and reach == self.stages == self.after
        self.vectorised = self.at_output and self.public is not None and self.public.vectorised

    def gate(self, place: int) -> Tensor | float:
        """Return the share of the public features in a task's features."""
        if self.alpha is not None:
            return self.alpha
        logit: Tensor = self.logits[str(place)]
        return logit.sigmoid()

    def open(self, place: int) -> bool:
        """Return whether a task's gate is in use; otherwise its network is the private one alone."""
        return self.gated[place]

    def forward(self, batch: Batch) -> Outputs:
        indices = {task: self.names.index(task) for task in batch.tasks}
        public_states = self._public(batch.inputs)
        shared = None
        if self.public is not None and self.reach == self.stages:
            shared = self.public.finish(public_states[-1][0])

        branches = {} if shared is None else {task: shared.view_as(shared) for task in batch.tasks}
        predictions = {
            task: self.heads[index](self._features(index, batch.inputs, public_states, branches.get(task)))
            for task, index in indices.items()
        }
        return Outputs(predictions, shared, branches) if self.at_output else Outputs(predictions)

    def _public(self, inputs: Tensor) -> list[tuple[Tensor, Memory]]:
        """Return the public features before the first stage and after each used stage, with their memories."""
        if self.public is None:
            return []
        public_states = [(self.public.prepare(inputs), Memory())]
        for stage in range(self.reach):
            features, memory = public_states[-1][0], Memory(public_states[-1][1])
            public_states.append((self.public.stage(stage, features, memory), memory))
        return public_states

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
        index = self.names.index(task)
        key = str(index)
        logit = [self.logits[key]] if key in self.logits else []
        private = list(self.private[key].parameters()) if key in self.private else []
        return [*logit, *private, *self.heads[index].parameters()]

    def gates(self) -> dict[str, float]:
        """Return the gates by task, of the tasks that have one."""
        with torch.no_grad():
            return {name: float(self.gate(index)) for index, name in enumerate(self.names) if self.gated[index]}

    def traces(self) -> dict[str, Any]:
        return {"gates": self.gates()}

    def structure(self) -> dict[str, Any]:
        points = dict(zip(self.names, self.points, strict=True))
        return {"points": points, "stage_parameters": self.sizes, "tasks": list(self.names)}
