"""Samples whose inputs are pictures as their files have them, decoded and scaled when they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtlscale.data.batches import Samples

if TYPE_CHECKING:
    import numpy as np


class Pictures:
    """Encoded pictures one after the other; `offsets` [N + 1] says where each begins."""

    def __init__(self, content: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], shape: Sequence[int]) -> None:
        self._content, self._offsets, self._shape = content, offsets, tuple(shape)
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def pixels(self, index: Tensor) -> Tensor:
        """uint8 [..., 3, H, W] of the pictures at these places [...]."""
        places = index.reshape(-1).tolist()
        result = torch.empty((len(places), *self._shape), dtype=torch.uint8)
        found = result.numpy()

        def decode(number: int) -> None:
            from mtlscale.data.pictures import picture

            first, last = self._offsets[places[number]], self._offsets[places[number] + 1]
            found[number] = picture(self._content[first:last].tobytes(), (self._shape[1], self._shape[2]))[0]

        threads = torch.get_num_threads()
        if threads > 1 and len(places) > 1:
            self._pool = self._pool or ThreadPoolExecutor(threads, thread_name_prefix="decode")
            list(self._pool.map(decode, range(len(places))))
        else:
            for number in range(len(places)):
                decode(number)
        return result.reshape(*index.shape, *self._shape)


class EncodedSamples(Samples):
    """The same interface as of decoded samples; what is taken of them is decoded."""

    def __init__(self, pictures: Pictures, targets: dict[str, Tensor], weights: Tensor | None) -> None:
        self._pictures, self.targets, self.weights = pictures, targets, weights

    @property
    def inputs(self) -> Tensor:  # type: ignore[override]
        """All pictures, decoded anew each time."""
        return self._pictures.pixels(torch.arange(len(self)))

    def __len__(self) -> int:
        return len(self._pictures)

    def take(self, index: Tensor) -> Samples:
        rest = Samples(torch.empty(len(self), 0), self.targets, self.weights).take(index)
        return Samples(self._pictures.pixels(index), rest.targets, rest.weights)
