"""Paths through the stages of several encoders, where stretches that paths have in common run once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.encoders import Memory, StagedModule

Path = tuple[Hashable, ...]  # the encoder of each stage, as a key of `encoders`


def passed(encoders: Mapping[Any, StagedModule], paths: Iterable[Path], inputs: Tensor) -> dict[Path, Tensor]:
    """Return the features of each path for the inputs [B, ...] of one stream, by the stages of the encoders it names.

    Inputs are prepared once, and a stage runs once for all paths that agree up to it. A stage that several inputs reach
    takes them as one batch if that computes the same: if it keeps no statistics of batches, or in evaluation.
    """
    distinct_paths = list(dict.fromkeys(paths))
    any_of = encoders[distinct_paths[0][0]]

    states: dict[Path, tuple[Tensor, Memory]] = {(): (any_of.prepare(inputs), Memory())}

    for stage in range(len(distinct_paths[0])):
        by_owner: dict[Hashable, list[Path]] = {}
        for path in dict.fromkeys(path[: stage + 1] for path in distinct_paths):
            by_owner.setdefault(path[-1], []).append(path)
        next_states: dict[Path, tuple[Tensor, Memory]] = {}
        for owner, reaching in by_owner.items():
            states_before = [states[path[:-1]] for path in reaching]
            next_states.update(zip(reaching, _stage(encoders[owner], stage, states_before), strict=True))
        states = next_states

    return {path: any_of.finish(states[path][0]) for path in distinct_paths}


def _stage(encoder: StagedModule, stage: int, before: list[tuple[Tensor, Memory]]) -> list[tuple[Tensor, Memory]]:
    """Pass several inputs through a stage of one encoder, each with a memory of its own."""
    if len(before) > 1 and not any(memory for _, memory in before) and side_by_side(encoder.stages[stage]):
        memory = Memory()
        outputs = encoder.stage(stage, torch.cat([features for features, _ in before]), memory)
        if not memory:
            return [(part, Memory()) for part in outputs.chunk(len(before))]

    result = []
    for features, memory_before in before:
        path_memory = Memory(memory_before)  # belongs to this path alone
        result.append((encoder.stage(stage, features, path_memory), path_memory))
    return result


def side_by_side(module: nn.Module) -> bool:
    """Return whether samples of several inputs may pass the module as one batch.

    They may if no sample's output depends on the other samples.
    """
    return not any(
        isinstance(child, nn.modules.batchnorm._BatchNorm) and (child.training or child.running_mean is None)
        for child in module.modules()
    )
