"""Category columns of a table: values as codes, and codes as one-hot columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.config import UNKNOWN_CATEGORY

if TYPE_CHECKING:
    from torch import Tensor

UNKNOWN = UNKNOWN_CATEGORY  # the code of a value that does not occur in training


def as_text(value: object) -> str:
    """Return a category as its name: the same for 3, 3.0 and "3", and for true in whatever file."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def codes_of(values: Iterable[object], categories: Sequence[str]) -> np.ndarray:
    """Return the codes of values: 1, 2, … in the order of `categories`, and `UNKNOWN` for all others."""
    codes: Mapping[str, int] = {name: code for code, name in enumerate(categories, start=1)}
    return np.array([codes.get(as_text(value), UNKNOWN) for value in values], dtype=np.int64)


class OneHot:
    """Encoder that keeps columns of numbers and replaces each category column by one column per code.

    * `categories`: for each input column its number of codes, 0 for a column of numbers (`TaskSuite.categories`).
    * `width`: the number of output columns; `codes`: the mask [width] of those that stand for a code.
    """

    def __init__(self, categories: Sequence[int]) -> None:
        counts = [max(1, count) for count in categories]
        self.width = sum(counts)
        self._source = np.repeat(np.arange(len(counts)), counts)
        self._code = np.concatenate([np.arange(count) for count in counts])
        self.codes = np.repeat(np.array(categories) > 0, counts)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return [..., width] for inputs [..., columns]."""
        import torch

        # Created on each call and not kept as buffers, so that neither the network's state nor its
        # build on the meta device changes.
        arrays = (self._source, self._code, self.codes)
        source, code, codes = (torch.from_numpy(array).to(inputs.device) for array in arrays)
        columns = inputs.index_select(-1, source)
        return torch.where(codes, (columns == code).to(inputs.dtype), columns)
