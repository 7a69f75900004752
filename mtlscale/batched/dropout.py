"""Dropout of many trials: every trial's rates, and where a forward pass asks for random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.batched.eligibility import planning
from mtlscale.batched.parameter_layout import Layout
from mtlscale.config import Run, TaskSuite
from mtlscale.data import Batch, Samples
from mtlscale.encoders import Dropout
from mtlscale.training import build_model


@dataclass(frozen=True)
class DropoutSite:
    """Position of a dropout module in a stream's forward pass.

    It is known by the shape of the module's input for one sample, and by the axis of samples.
    """

    shape: tuple[int, ...]
    axis: int

    def of(self, samples: int) -> list[int]:
        return [*self.shape[: self.axis], samples, *self.shape[self.axis + 1 :]]


def dropout_rates(
    model: MultiTaskModule, runs: Sequence[Run], suite: TaskSuite, device: torch.device
) -> dict[str, Tensor]:
    """Return the name of each dropout module's buffer -> the trials' rates [B].

    Modules in which no trial drops anything are switched off in `model`, the network of the first trial.
    """
    differ = len({(run.parts.dropout, *planning.encoder_rates(run).values()) for run in runs}) > 1
    models = [build_model(run, suite)[0] for run in runs] if differ else [model]

    rates = {}
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            rate = torch.stack([trial_model.get_buffer(f"{name}.rate").cpu() for trial_model in models])
            module.active = bool((rate > 0).any())
            if module.active:
                rates[f"{name}.rate"] = rate.expand(len(runs)).to(device)

    return rates


def dropout_places(
    model: MultiTaskModule, layout: Layout, train: Mapping[str, Samples]
) -> dict[str | int, list[DropoutSite]]:
    """Return, for every pass, the active dropout modules in the order they run.

    The keys are the name of the pass's stream or the position of its group.
    """
    first: dict[str | int, str] = {number: layout.names[group[0]] for number, group in enumerate(layout.groups)}
    return {key: _places(model, name, train[name]) for key, name in (first or {n: n for n in train}).items()}


def _places(model: MultiTaskModule, stream: str, samples: Samples) -> list[DropoutSite]:
    """Find the dropout modules' positions by a forward pass with two samples and one with three."""
    modules = [module for module in model.modules() if isinstance(module, Dropout) and module.active]
    if not modules:
        return []

    shapes: list[list[torch.Size]] = []
    for count in (2, 3):
        input_shapes: list[torch.Size] = []
        hooks = [
            module.register_forward_pre_hook(lambda _, inputs, recorded=input_shapes: recorded.append(inputs[0].shape))
            for module in modules
        ]

        part = samples.take(torch.zeros(count, dtype=torch.int64, device=samples.inputs.device))
        with torch.no_grad():
            model.eval()
            model(Batch(stream, part, count))
            model.train()

        for hook in hooks:
            hook.remove()
        shapes.append(input_shapes)

    return [
        DropoutSite(tuple(two), next(axis for axis in range(len(two)) if two[axis] != three[axis]))
        for two, three in zip(*shapes, strict=True)
    ]
