"""What a tree of stages costs, and what trees are expected to cost whose branches are drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.encoders import Memory, StagedModule


def expected_groups(probabilities: Tensor) -> Tensor:
    """Probabilities [L, T, nodes] of independent choices -> [L] float64: how many groups of tasks there are after each
    stage, where tasks are together as long as they choose alike.

    By inclusion and exclusion: the sum over sets of tasks, with sign -(-1)^size, of the probability that all of the set
    are together.
    """
    together: Tensor | float = 1.0
    found = []
    for stage in probabilities.to(torch.float64):
        products = stage.new_ones(1, stage.shape[-1])  # over the tasks of each set, by node
        signs = -stage.new_ones(1)
        for task in stage:
            products = torch.cat([products, products * task])
            signs = torch.cat([signs, -signs])
        together = together * products.sum(-1)
        found.append((signs * together)[1:].sum())
    return torch.stack(found)


def shares(costs: list[int]) -> Tensor:
    """The costs over their sum; equal ones where all are 0."""
    found = torch.tensor(costs, dtype=torch.get_default_dtype())
    return found / found.sum() if float(found.sum()) else torch.full_like(found, 1 / len(costs))


@torch.no_grad()
def stage_flops(encoder: StagedModule, inputs: Tensor) -> list[int]:
    """Floating point operations of every stage for these inputs."""
    from torch.utils.flop_counter import FlopCounterMode

    before, found = encoder.training, list[int]()
    encoder.eval()
    features, memory = encoder.prepare(inputs), Memory()
    for stage in range(len(encoder.stages)):
        with FlopCounterMode(display=False) as counter:
            features = encoder.stage(stage, features, memory)
        found.append(counter.get_total_flops())
    encoder.train(before)
    return found
