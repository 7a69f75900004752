"""Hard parameter sharing (HPS), the usual baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, HeadMaker, MultiTaskModule, encoder_head
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, StagedModule


class HPSModule(MultiTaskModule):
    """Hard sharing of one encoder, with `head(encoder, task, dropout)` for each task."""

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, dropout: float, head: HeadMaker = encoder_head
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.vectorised = encoder.vectorised
        self.names = tuple(task.name for task in suite.tasks)
        self.heads = nn.ModuleList(head(encoder, task, dropout) for task in suite.tasks)

    def head(self, task: str) -> nn.Module:
        return self.heads[self.names.index(task)]

    def forward(self, batch: Batch) -> Outputs:
        representation: Tensor = self.encoder(batch.inputs)
        branches = {task: representation.view_as(representation) for task in batch.tasks}
        return Outputs({task: self.head(task)(branches[task]) for task in batch.tasks}, representation, branches)

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.encoder.parameters())

    def shared_modules(self) -> list[list[nn.Parameter]]:
        if not isinstance(self.encoder, StagedModule):
            return super().shared_modules()
        return [list(stage.parameters()) for stage in self.encoder.stages]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.head(task).parameters())


class HPS(Architecture):
    """Hard parameter sharing: one encoder for all tasks, one head per task."""

    name: ClassVar[str] = "hps"
    source: ClassVar[str] = "Caruana 1997"
    batchable: ClassVar[bool] = True

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return HPSModule(suite, encoder(), dropout)
