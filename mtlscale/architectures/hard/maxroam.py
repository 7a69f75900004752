"""MaxRoam: hard sharing in which every channel serves only some of the tasks, and roams until it has met them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, encoder_head
from mtlscale.architectures.hooks import EpochView
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, MapStagedModule, Memory


class MaxRoamModule(MultiTaskModule):
    """Hard sharing with masked channels.

    `masks_i` [T, C] marks the tasks that a channel of stage i serves, `met_i` those that it has served so far.
    """

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, share: float, every: int, dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder, self.every = encoder, every
        self.widths = encoder.widths if isinstance(encoder, MapStagedModule) else (encoder.features,)
        self.seed = int(torch.randint(1 << 31, (), device="cpu"))

        tasks_per_channel = max(1, round(share * len(self.names)))
        for stage, width in enumerate(self.widths):
            channel_tasks = torch.rand(width, len(self.names)).argsort(1)[:, :tasks_per_channel]
            mask = torch.zeros(width, len(self.names)).scatter_(1, channel_tasks, 1.0).T.contiguous()
            self.register_buffer(f"masks_{stage}", mask)
            self.register_buffer(f"met_{stage}", mask.clone())

        self.heads = nn.ModuleList(encoder_head(encoder, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        predictions = {}
        encoder = self.encoder
        encoded = None if isinstance(encoder, MapStagedModule) else encoder(batch.inputs)

        for task in batch.tasks:
            index = self.names.index(task)
            if encoded is not None:
                features = self.masked(encoded, 0, index)
            else:
                assert isinstance(encoder, MapStagedModule)
                features, memory = encoder.prepare(batch.inputs), Memory()
                for stage in range(len(encoder.stages)):
                    features = self.masked(encoder.stage(stage, features, memory), stage, index)
                features = encoder.finish(features)
            predictions[task] = self.heads[index](features)

        return Outputs(predictions)

    def masked(self, features: Tensor, stage: int, task: int) -> Tensor:
        """Return features [B, C, …] with the channels that do not serve the task at zero."""
        mask: Tensor = getattr(self, f"masks_{stage}")[task]
        return features * mask.reshape(-1, *[1] * (features.ndim - 2))

    @torch.no_grad()
    def on_epoch_end(self, epoch: EpochView) -> None:
        if epoch.number % self.every:
            return
        generator = torch.Generator().manual_seed(self.seed + epoch.number)  # the same on every worker
        for stage in range(len(self.widths)):
            mask, met = getattr(self, f"masks_{stage}"), getattr(self, f"met_{stage}")
            new_mask, new_met = roam(mask.cpu(), met.cpu(), generator)
            mask.copy_(new_mask)
            met.copy_(new_met)

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.encoder.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.heads[self.names.index(task)].parameters())


def roam(mask: Tensor, met: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return mask and met [T, C], both of zeros and ones, after one move.

    A channel that has not met every task takes one that it has not met in exchange for one that it serves, both drawn
    at random.
    """
    draw = torch.rand(2, *mask.shape, generator=generator)
    new_task = (draw[0] * (1 - met)).argmax(0)  # a task that is not met
    old_task = (draw[1] * mask).argmax(0)  # a task that is served
    can_roam = (met == 0).any(0)
    channels = can_roam.nonzero().squeeze(1)
    mask, met = mask.clone(), met.clone()
    mask[old_task[channels], channels] = 0.0
    mask[new_task[channels], channels] = 1.0
    met[new_task[channels], channels] = 1.0
    return mask, met


class MaxRoam(Architecture):
    """Maximum roaming: hard sharing with channels assigned to random tasks, one of which changes now and then.

    Channels are masked after every stage of the encoder, or at the output of an encoder without stages; the source
    masks every convolution. Each task passes the encoder by itself, so batch normalisation remembers the mean over
    tasks.
    """

    name: ClassVar[str] = "maxroam"
    source: ClassVar[str] = "Pascal et al., AAAI 2021"

    share: float = knob(0.6, low=0.0, high=1.0, open_low=True, help="share of the tasks that a channel serves")
    every: int = knob(1, low=1, help="epochs between two moves")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return MaxRoamModule(suite, encoder(), self.share, self.every, dropout)
