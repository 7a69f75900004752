"""The cost of a tree of stages, and the expected cost of trees whose branches are drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.encoders import Memory, StagedModule


def expected_groups(probabilities: Tensor) -> Tensor:
    """Return the expected number of groups of tasks after each stage, [L] float64.

    Tasks choose independently with probabilities [L, T, nodes], and are in one group as long as they choose alike. The
    number follows by inclusion and exclusion: the sum over sets of tasks, with sign -(-1)^size, of the probability that
    all of the set are together.
    """
    together_probability: Tensor | float = 1.0
    group_counts = []

    for stage in probabilities.to(torch.float64):
        products = stage.new_ones(1, stage.shape[-1])  # for each set of tasks, the product of its probabilities by node
        signs = -stage.new_ones(1)
        for task in stage:
            products = torch.cat([products, products * task])
            signs = torch.cat([signs, -signs])
        together_probability = together_probability * products.sum(-1)
        group_counts.append((signs * together_probability)[1:].sum())

    return torch.stack(group_counts)


def shares(costs: list[int]) -> Tensor:
    """Return the costs divided by their sum; equal shares if all are 0."""
    cost_shares = torch.tensor(costs, dtype=torch.get_default_dtype())
    return cost_shares / cost_shares.sum() if float(cost_shares.sum()) else torch.full_like(cost_shares, 1 / len(costs))


@torch.no_grad()
def stage_flops(encoder: StagedModule, inputs: Tensor) -> list[int]:
    """Return the floating point operations of every stage for these inputs."""
    from torch.utils.flop_counter import FlopCounterMode

    was_training, flops = encoder.training, list[int]()
    encoder.eval()

    features, memory = encoder.prepare(inputs), Memory()
    for stage in range(len(encoder.stages)):
        with FlopCounterMode(display=False) as counter:
            features = encoder.stage(stage, features, memory)
        flops.append(counter.get_total_flops())

    encoder.train(was_training)
    return flops
