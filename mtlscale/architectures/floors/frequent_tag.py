"""Most frequent tag: each word gets the tag that it has most often in training, the floor of tagging."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.fitted import FittedModule
from mtlscale.architectures.hooks import LabelledData
from mtlscale.config import MISSING_CLASS, TaskSuite, UserError
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule

_RARE = 1e-6  # the share of a tag that no training token has


class FrequentTagModule(FittedModule):
    """The predictor of frequent tags: counts [words, tags] and shares [tags] of tags per task."""

    def __init__(self, suite: TaskSuite) -> None:
        super().__init__(suite)
        self.suite = suite
        for index, task in enumerate(suite.tasks):
            self.register_buffer(f"value{index}", torch.zeros(suite.vocabulary_size or 0, task.outputs))
            self.register_buffer(f"shares{index}", torch.full((task.outputs,), 1.0 / task.outputs))

    def forward(self, batch: Batch) -> Outputs:
        words = _words(batch.inputs).flatten()
        predictions = {}
        for name in batch.tasks:
            # Every word has one more token, with the tag shares of all words. An unknown word then has these
            # shares, and of equally frequent tags the one that is more frequent overall wins.
            shares = self.get_buffer(f"shares{self.index(name)}")
            chance = nn.functional.normalize(self.get_buffer(f"value{self.index(name)}")[words] + shares, p=1, dim=1)
            predictions[name] = self.with_graph(name, chance.log())
        return Outputs(predictions)

    @torch.no_grad()
    def from_data(self, data: LabelledData) -> None:
        for stream, tasks in self.suite.streams.items():
            for samples in data.samples("train", stream):
                words = _words(samples.inputs)
                for name in tasks:
                    has_label = samples.targets[name] != MISSING_CLASS
                    counts = self.get_buffer(f"value{self.index(name)}")
                    increment = torch.ones((), dtype=counts.dtype, device=counts.device)
                    counts.index_put_((words[has_label], samples.targets[name][has_label]), increment, accumulate=True)

        for name in self.tasks:
            total = self.get_buffer(f"value{self.index(name)}").sum(0)
            shares = (total / total.sum().clamp(min=1)).clamp(min=_RARE)
            self.get_buffer(f"shares{self.index(name)}").copy_(shares / shares.sum())


def _words(inputs: Tensor) -> Tensor:
    """Return ids [B, L] of tokens [B, L], or of words with their characters [B, L, 1 + K]."""
    return (inputs if inputs.ndim == 2 else inputs[..., 0]).long()


class FrequentTag(Architecture):
    """The most frequent tag of each word in training, found before the first step.

    A word that training does not have gets the task's most frequent tag. Of the pieces of a word the first one counts.
    """

    name: ClassVar[str] = "frequent_tag"
    source: ClassVar[str] = "own baseline: the usual floor of tagging"

    fitted: ClassVar[bool] = True

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if not suite.per_token or suite.input_kind != "tokens":
            raise UserError(
                f"frequent_tag counts the tags of words, which {suite.name} has not; choose constant, or prepare words"
            )
        return FrequentTagModule(suite)
