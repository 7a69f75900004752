"""Many ways through the stages of several encoders, each stretch that ways have in common passed once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.encoders import Memory, StagedModule

Path = tuple[Hashable, ...]  # of each stage, whose encoder's it is: a key of `encoders`


def passed(encoders: Mapping[Any, StagedModule], paths: Iterable[Path], inputs: Tensor) -> dict[Path, Tensor]:
    """Inputs [B, ...] of one stream -> each path's features, by the stages of the encoders it names.

    Inputs are prepared once, a stage runs once for all paths that are the same so far. A stage that several inputs
    reach takes them side by side where that computes the same: where it remembers no batches, or in evaluation.
    """
    wanted = list(dict.fromkeys(paths))
    any_of = encoders[wanted[0][0]]
    states: dict[Path, tuple[Tensor, Memory]] = {(): (any_of.prepare(inputs), Memory())}
    for stage in range(len(wanted[0])):
        by_owner: dict[Hashable, list[Path]] = {}
        for path in dict.fromkeys(path[: stage + 1] for path in wanted):
            by_owner.setdefault(path[-1], []).append(path)
        after: dict[Path, tuple[Tensor, Memory]] = {}
        for owner, reaching in by_owner.items():
            before = [states[path[:-1]] for path in reaching]
            after.update(zip(reaching, _stage(encoders[owner], stage, before), strict=True))
        states = after
    return {path: any_of.finish(states[path][0]) for path in wanted}


def _stage(encoder: StagedModule, stage: int, before: list[tuple[Tensor, Memory]]) -> list[tuple[Tensor, Memory]]:
    """A stage of one encoder on several inputs, each with a memory of its own."""
    if len(before) > 1 and not any(memory for _, memory in before) and side_by_side(encoder.stages[stage]):
        memory = Memory()
        together = encoder.stage(stage, torch.cat([features for features, _ in before]), memory)
        if not memory:
            return [(part, Memory()) for part in together.chunk(len(before))]
    result = []
    for features, known in before:
        kept = Memory(known)  # of this path alone
        result.append((encoder.stage(stage, features, kept), kept))
    return result


def side_by_side(module: nn.Module) -> bool:
    """Whether samples of several inputs may pass the module as one batch, as none of them is told of the others."""
    return not any(
        isinstance(child, nn.modules.batchnorm._BatchNorm) and (child.training or child.running_mean is None)
        for child in module.modules()
    )
