"""Seeds: which numbers they give."""

from __future__ import annotations

import torch

from mtlscale.training.seeds import seed_generators


def test_numbers_are_those_of_torch() -> None:
    torch.manual_seed(7)
    expected = torch.rand(5)
    torch.rand(3)
    seed_generators(7)
    assert torch.equal(torch.rand(5), expected)
