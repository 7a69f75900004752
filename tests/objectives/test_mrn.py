"""MRN's covariances: when they are fitted anew."""

from __future__ import annotations

import torch

from mtlscale.objectives.penalties.mrn import MRN, MRNModule


def test_covariances_are_fitted_after_every_so_many_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = tuple(torch.randn(3, 4, generator=generator) for _ in range(2))
    module = MRNModule(MRN(every=3), [layer])

    fitted_after = []
    for step in range(1, 8):
        before = [factor.clone() for factor in module.factors(0)]
        module.after_step(0.1, lambda tensor: tensor)
        layer[0].add_(0.1)
        if not all(map(torch.equal, before, module.factors(0))):
            fitted_after.append(step)
    assert fitted_after == [3, 6]
