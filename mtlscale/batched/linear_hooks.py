"""Taps into the shared linear layers of many trials: their inputs, and the gradients that come back.

The gradients come back by a zero that is added to what a layer puts out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.training import uses


@dataclass(frozen=True)
class Taps:
    """Linear layers of a network that hold all it shares, each in its own slots."""

    layers: tuple[nn.Linear, ...]

    @classmethod
    def of(cls, model: MultiTaskModule, suite: TaskSuite) -> Taps | None:
        """Return the taps of a network, or None.

        It is None where anything else is shared, a weight is in two layers, or tasks have inputs of their own.
        """
        shared = {id(parameter) for parameter in model.shared_parameters()}
        layers = [m for m in model.modules() if type(m) is nn.Linear and id(m.weight) in shared]
        layer_ids = [id(parameter) for layer in layers for parameter in layer.parameters()]
        if suite.inputs != "shared" or len(suite.tasks) == 1 or not shared or sorted(layer_ids) != sorted(shared):
            return None
        return cls(tuple(layers))

    def hold(self, inputs: Sequence[Tensor], sums: Sequence[Tensor], leaves: Sequence[Tensor]) -> bool:
        """Return whether a forward pass used the layers as they are read.

        Each is called once, in their order, and each shared leaf is used by one function.
        """
        shapes = [(layer_input.ndim, layer_input.shape[-1]) for layer_input in inputs]
        once = set(uses(torch.stack(list(sums)), leaves)) <= {1}
        return shapes == [(3, layer.in_features) for layer in self.layers] and once

    @contextmanager
    def opened(self, zeros: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """Enclose a forward pass: yield the layers' inputs as they are called; `zeros` are added to their outputs."""
        layer_inputs: list[Tensor] = []

        def tap(place: int) -> RemovableHandle:
            def hook(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
                layer_inputs.append(inputs[0])
                return output + zeros[place]

            return self.layers[place].register_forward_hook(hook)

        handles = [tap(position) for position in range(len(self.layers))]
        try:
            yield layer_inputs
        finally:
            for handle in handles:
                handle.remove()
