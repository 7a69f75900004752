"""Samples that are sequences, padded only to the longest one that is taken together with them."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.data.batches import Samples
from mtlscale.data.format.columns import WIDTH


class RaggedSamples(Samples):
    """Sequences of vectors, concatenated: content [vectors, D]; `offsets` [N + 1] holds the start of each.

    `take` pads with zeros at the end, to the longest sequence taken. targets: task -> [N, L].
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
        """Build the samples from the bytes of vectors, which are shared, not copied.

        Args:
            offsets: [N + 1] the start of each sequence, in bytes.
            size: The numbers of a vector.
            targets: Task -> labels.
        """
        return cls(content.view(torch.float16).reshape(-1, size), offsets // (WIDTH * size), targets, weights)

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        """The inputs of all samples, padded anew on each access to the length of the labels."""
        most = max((target.shape[1] for target in self.targets.values()), default=1)
        return self._padded(torch.arange(len(self), device=self._offsets.device), most)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def take(self, index: Tensor) -> Samples:
        labels = Samples(torch.empty(len(self), 0, device=index.device), self.targets, self.weights).take(index)
        return Samples(self._padded(index), labels.targets, labels.weights)

    def placed(self, device: torch.device, dtype: torch.dtype, others: Samples) -> RaggedSamples:
        """Return the samples on a device.

        Args:
            dtype: The type of the inputs.
            others: The targets and weights on the device.
        """
        content = self._content.to(device, dtype)
        return RaggedSamples(content, self._offsets.to(device), others.targets, others.weights)

    def _padded(self, index: Tensor, least: int = 1) -> Tensor:
        first, ends = self._offsets[index], self._offsets[index + 1]
        longest = max(least, int((ends - first).max())) if len(index) else least
        positions = first[:, None] + torch.arange(longest, device=first.device)
        present = positions < ends[:, None]
        padded = self._content.new_zeros(len(index), longest, self._content.shape[1])
        padded[present] = self._content.index_select(0, positions[present])
        return padded


def lengths(inputs: Tensor) -> Tensor:
    """Return the lengths [B] of sequences: the position, from 1, of the last token that is not padding.

    It is 0 for an empty sequence. `inputs` are token ids [B, L], or words with their characters [B, L, 1 + K].
    """
    ids = inputs if inputs.ndim == 2 else inputs[..., 0]
    positions = torch.arange(1, ids.shape[1] + 1, dtype=torch.int32, device=ids.device)
    return ((ids != 0) * positions).amax(dim=1)


def cut(samples: Samples) -> Samples:
    """Cut off the positions that are padding in all sequences, in inputs and labels; nothing is copied."""
    inputs = samples.inputs
    if not inputs.is_floating_point() and len(inputs):
        inputs = inputs[:, : max(1, int(lengths(inputs).max()))]
    longest = inputs.shape[1]
    return Samples(inputs, {name: target[:, :longest] for name, target in samples.targets.items()}, samples.weights)
