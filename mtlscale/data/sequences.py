"""Samples that are sequences: padded to the longest of what is taken together, and no further."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.data.batches import Samples
from mtlscale.data.columns import WIDTH


class RaggedSamples(Samples):
    """Sequences of vectors one after the other, content [vectors, D]; `offsets` [N + 1] says where each begins.

    What is taken is padded with zeros at the end, to the longest of it. targets: task -> [N, L].
    """

    def __init__(self, content: Tensor, offsets: Tensor, targets: dict[str, Tensor], weights: Tensor | None) -> None:
        self._content, self._offsets, self.targets, self.weights = content, offsets, targets, weights

    @classmethod
    def of_bytes(
        cls,
        content: Tensor,
        offsets: Tensor,
        size: int,
        targets: dict[str, Tensor],
        weights: Tensor | None,
    ) -> RaggedSamples:
        """From the bytes of vectors of so many numbers, which are shared, not copied; offsets in bytes."""
        return cls(content.view(torch.float16).reshape(-1, size), offsets // (WIDTH * size), targets, weights)

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        """All of them, padded anew each time, to as many places as labels have."""
        most = max((target.shape[1] for target in self.targets.values()), default=1)
        return self._padded(torch.arange(len(self), device=self._offsets.device), most)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def take(self, index: Tensor) -> Samples:
        rest = Samples(torch.empty(len(self), 0, device=index.device), self.targets, self.weights).take(index)
        return Samples(self._padded(index), rest.targets, rest.weights)

    def placed(self, device: torch.device, dtype: torch.dtype, rest: Samples) -> RaggedSamples:
        """The same on a device; rest: targets and weights there."""
        content = self._content.to(device, dtype)
        return RaggedSamples(content, self._offsets.to(device), rest.targets, rest.weights)

    def _padded(self, index: Tensor, least: int = 1) -> Tensor:
        first, ends = self._offsets[index], self._offsets[index + 1]
        longest = max(least, int((ends - first).max())) if len(index) else least
        places = first[:, None] + torch.arange(longest, device=first.device)
        there = places < ends[:, None]
        found = self._content.new_zeros(len(index), longest, self._content.shape[1])
        found[there] = self._content.index_select(0, places[there])
        return found


def lengths(inputs: Tensor) -> Tensor:
    """Token ids [B, L], or words with their characters [B, L, 1 + K] -> [B], the place of each sequence's last token
    that is not padding, counted from 1 (0 in an empty one)."""
    ids = inputs if inputs.ndim == 2 else inputs[..., 0]
    places = torch.arange(1, ids.shape[1] + 1, dtype=torch.int32, device=ids.device)
    return ((ids != 0) * places).amax(dim=1)


def cut(samples: Samples) -> Samples:
    """Sequences without the places that are padding in all of them, inputs and labels; copies of nothing."""
    inputs = samples.inputs
    if not inputs.is_floating_point() and len(inputs):
        inputs = inputs[:, : max(1, int(lengths(inputs).max()))]
    longest = inputs.shape[1]
    return Samples(inputs, {name: target[:, :longest] for name, target in samples.targets.items()}, samples.weights)
