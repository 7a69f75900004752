"""Samples whose inputs are encoded pictures, decoded and scaled when they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtlscale.data.batches import Samples

if TYPE_CHECKING:
    import numpy as np


class EncodedImages:
    """Encoded pictures, concatenated; `offsets` [N + 1] holds the start of each and the end of the last."""

    def __init__(self, content: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], shape: Sequence[int]) -> None:
        self._content, self._offsets, self._shape = content, offsets, tuple(shape)
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def pixels(self, index: Tensor) -> Tensor:
        """Return uint8 [..., 3, H, W] of the pictures at these indices [...]."""
        indices = index.reshape(-1).tolist()
        result = torch.empty((len(indices), *self._shape), dtype=torch.uint8)
        pixel_array = result.numpy()

        def decode(number: int) -> None:
            from mtlscale.data.format.image_decoding import picture

            first, last = self._offsets[indices[number]], self._offsets[indices[number] + 1]
            pixel_array[number] = picture(self._content[first:last].tobytes(), (self._shape[1], self._shape[2]))[0]

        threads = torch.get_num_threads()
        if threads > 1 and len(indices) > 1:
            self._pool = self._pool or ThreadPoolExecutor(threads, thread_name_prefix="decode")
            list(self._pool.map(decode, range(len(indices))))
        else:
            for number in range(len(indices)):
                decode(number)

        return result.reshape(*index.shape, *self._shape)


class EncodedSamples(Samples):
    """Samples with the interface of decoded ones; `take` decodes their pictures."""

    def __init__(self, pictures: EncodedImages, targets: dict[str, Tensor], weights: Tensor | None) -> None:
        self._pictures, self.targets, self.weights = pictures, targets, weights

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        """The pixels of all pictures, decoded anew on each access."""
        return self._pictures.pixels(torch.arange(len(self)))

    def __len__(self) -> int:
        return len(self._pictures)

    def take(self, index: Tensor) -> Samples:
        labels = Samples(torch.empty(len(self), 0), self.targets, self.weights).take(index)
        return Samples(self._pictures.pixels(index), labels.targets, labels.weights)
