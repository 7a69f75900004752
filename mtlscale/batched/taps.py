"""Looking into the shared linear layers of many trials: what goes in, and, by a zero that is added to what comes out,
what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mtlscale.architectures import MultiTaskModule
from mtlscale.spec import TaskSuite
from mtlscale.training import uses


@dataclass(frozen=True)
class Taps:
    """The linear layers of a network that hold all it shares, each in its own slots."""

    layers: tuple[nn.Linear, ...]

    @classmethod
    def of(cls, model: MultiTaskModule, suite: TaskSuite) -> Taps | None:
        """None where something else is shared, a weight is in two layers, or tasks have inputs of their own."""
        shared = {id(parameter) for parameter in model.shared_parameters()}
        found = [m for m in model.modules() if type(m) is nn.Linear and id(m.weight) in shared]
        held = [id(parameter) for layer in found for parameter in layer.parameters()]
        if suite.inputs != "shared" or len(suite.tasks) == 1 or not shared or sorted(held) != sorted(shared):
            return None
        return cls(tuple(found))

    def hold(self, inputs: Sequence[Tensor], sums: Sequence[Tensor], leaves: Sequence[Tensor]) -> bool:
        """Whether a forward pass used the layers as they are read: each called once, in their order, and each shared
        leaf by one function."""
        shapes = [(each.ndim, each.shape[-1]) for each in inputs]
        once = set(uses(torch.stack(list(sums)), leaves)) <= {1}
        return shapes == [(3, layer.in_features) for layer in self.layers] and once

    @contextmanager
    def opened(self, zeros: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """Around a forward pass: the layers' inputs as they are called; `zeros` are added to their outputs."""
        seen: list[Tensor] = []

        def tap(place: int) -> RemovableHandle:
            def hook(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
                seen.append(inputs[0])
                return output + zeros[place]

            return self.layers[place].register_forward_hook(hook)

        handles = [tap(place) for place in range(len(self.layers))]
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()
