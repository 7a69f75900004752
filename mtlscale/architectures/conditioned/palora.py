"""PaLoRA: Pareto low-rank adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mtlscale.architectures.conditioned._preferred import PreferredArchitecture, PreferredModule
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule


class Adapters(nn.Module):
    """Low-rank adapters of one weight: W + s Σ_t r_t B_t A_t, with B = 0 at the start.

    A convolution's weight [out, in, k, k] counts as the matrix [out, in k²].
    """

    def __init__(self, weight: Tensor, owner: PreferredModule, rank: int, scale: float) -> None:
        super().__init__()
        tasks, outputs = len(owner.names), weight.shape[0]
        inputs = weight[0].numel()
        self.down = nn.Parameter(torch.randn(tasks, rank, inputs, dtype=weight.dtype) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(tasks, outputs, rank, dtype=weight.dtype))
        self.scale = scale / rank
        self._owner = (owner,)  # in a tuple, or the network would be a part of its own part

    def forward(self, weight: Tensor) -> Tensor:
        shares = self._owner[0].preference.to(weight.dtype)
        change = torch.einsum("t,tor,tri->oi", shares, self.up, self.down)
        return weight + self.scale * change.view_as(weight)


class PaLoRA(PreferredArchitecture):
    """Hard parameter sharing whose encoder has a low-rank adapter per task, weighted by the preference.

    Source: Dimitriadis, Frossard, Fleuret (ICLR 2025). Every linear layer and convolution of the encoder has adapters;
    heads have none. Each step draws one preference, where the authors draw several and anneal their spread.
    """

    name: ClassVar[str] = "palora"
    source: ClassVar[str] = "Dimitriadis, Frossard & Fleuret, ICLR 2025"
    balancer: ClassVar[str] = "linear_scalarization"

    rank: int = knob(4, low=1, search=(1, 4, 16), help="of the adapters")
    scale: float = knob(4.0, low=0, open_low=True, search=(1.0, 16.0, "log"), help="s, over the rank")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        network = PreferredModule(suite, encoder(), dropout, self.preferences(suite), self.concentration)
        layers = [m for m in network.encoder.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d)]
        if not layers:
            raise UserError(f"{self.name} adapts linear layers and convolutions, the encoder has none; choose mlp")
        for layer in layers:
            adapters = Adapters(layer.weight, network, self.rank, self.scale)
            parametrize.register_parametrization(layer, "weight", adapters)
        return network
