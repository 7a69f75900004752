"""Split on the device: its streams one by one, or side by side where the tasks are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.batched.parameter_layout import Layout
from mtlscale.config import MISSING_CLASS
from mtlscale.data import Samples


@dataclass(frozen=True)
class Padded:
    """Streams of a group side by side: inputs [t, N + 1, ...], targets [t, N + 1, ...].

    Rows beyond a stream's own, and the last one of all, have no label: they enter no sum.
    """

    inputs: Tensor
    targets: Tensor

    @property
    def longest(self) -> int:
        """The number of samples of the longest stream, N."""
        return self.inputs.shape[1] - 1

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets at `indices` [..., t, n], -1 for a row without a label."""
        rows = torch.arange(len(self.inputs), device=indices.device).unsqueeze(-1)
        return self.inputs[rows, indices], self.targets[rows, indices]


class Streams:
    """Streams of a split by name, and by group where tasks are side by side."""

    def __init__(self, streams: Mapping[str, Samples], layout: Layout) -> None:
        self.by_name = dict(streams)
        self.groups = [pad(streams, [layout.names[task] for task in group]) for group in layout.groups]


def pad(streams: Mapping[str, Samples], names: Sequence[str]) -> Padded:
    """Return these streams, of one task each, side by side."""
    longest = 1 + max(len(streams[name]) for name in names)
    example = streams[names[0]]
    target = example.targets[names[0]]
    inputs = example.inputs.new_zeros(len(names), longest, *example.inputs.shape[1:])
    missing = float("nan") if target.is_floating_point() else MISSING_CLASS
    targets = target.new_full((len(names), longest, *target.shape[1:]), missing)
    for row, name in enumerate(names):
        inputs[row, : len(streams[name])] = streams[name].inputs
        targets[row, : len(streams[name])] = streams[name].targets[name]
    return Padded(inputs, targets)
