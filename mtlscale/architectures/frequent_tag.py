"""Most frequent tag: each word gets the tag that it has most often in training, the floor of tagging."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import Architecture, LabelledData, MultiTaskModule
from mtlscale.architectures._fitted import FittedModule
from mtlscale.architectures._phases import Phase
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.spec import MISSING_CLASS, TaskSuite, UserError

_RARE = 1e-6  # the share of a tag that no training token has


class FrequentTagModule(FittedModule):
    """Counts of tags [words, tags] and their shares [tags] per task."""

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
            # One more token with the shares of all words: a word that is not known has these, of equal tags the more
            # frequent one wins.
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
                    there = samples.targets[name] != MISSING_CLASS
                    counts = self.get_buffer(f"value{self.index(name)}")
                    ones = torch.ones((), dtype=counts.dtype, device=counts.device)
                    counts.index_put_((words[there], samples.targets[name][there]), ones, accumulate=True)
        for name in self.tasks:
            total = self.get_buffer(f"value{self.index(name)}").sum(0)
            shares = (total / total.sum().clamp(min=1)).clamp(min=_RARE)
            self.get_buffer(f"shares{self.index(name)}").copy_(shares / shares.sum())


def _words(inputs: Tensor) -> Tensor:
    """Ids of tokens [B, L], or of words with their characters [B, L, 1 + K] -> of tokens or words [B, L]."""
    return (inputs if inputs.ndim == 2 else inputs[..., 0]).long()


class FrequentTag(Architecture):
    """The most frequent tag of each word: what training says of the word alone, found before the first step. A word
    that it does not know gets the tag that is most frequent in the task; of word pieces the first one of a word counts.
    """

    name: ClassVar[str] = "frequent_tag"
    source: ClassVar[str] = "own baseline: the usual floor of tagging"

    fitted: ClassVar[bool] = True

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(epochs=1),)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if not suite.per_token or suite.input_kind != "tokens":
            raise UserError(
                f"frequent_tag counts the tags of words, which {suite.name} has not; choose constant, or prepare words"
            )
        return FrequentTagModule(suite)
