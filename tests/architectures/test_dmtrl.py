from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mtlscale.architectures import EpochView
from mtlscale.architectures.hard.dmtrl import truncated_hosvd
from mtlscale.data import Batch

Build = Callable[..., Any]
MakeBatch = Callable[..., Batch]


def product(core: Tensor, factors: list[Tensor]) -> Tensor:
    """core ×₁ U₁ ×₂ U₂ ×₃ U₃."""
    return torch.einsum("abc,ia,jb,kc->ijk", core, *factors)


def low_rank(*ranks: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    core = torch.randn(*ranks, generator=generator)
    factors = [torch.randn(size, rank, generator=generator) for size, rank in zip((4, 6, 5), ranks, strict=True)]
    return product(core, factors)


def ranks(core: Tensor) -> list[int]:
    return [int(core.movedim(mode, 0).flatten(1).any(1).sum()) for mode in range(core.ndim)]


def test_a_tensor_of_low_rank_is_found_exactly() -> None:
    tensor = low_rank(2, 3, 2)
    core, factors = truncated_hosvd(tensor, 1e-6)
    assert ranks(core) == [2, 3, 2]
    torch.testing.assert_close(product(core, factors), tensor)
    for factor, rank in zip(factors, (2, 3, 2), strict=True):
        torch.testing.assert_close(factor[:, :rank].T @ factor[:, :rank], torch.eye(rank))


@pytest.mark.parametrize("error", [0.05, 0.3, 0.6])
def test_ranks_are_the_smallest_that_reach_the_error_in_their_mode(error: float) -> None:
    tensor = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(1))
    core, _ = truncated_hosvd(tensor, error)
    for mode, rank in enumerate(ranks(core)):
        values = torch.linalg.svdvals(tensor.movedim(mode, 0).flatten(1))
        assert values[rank:].norm() <= error * values.norm() < values[rank - 1 :].norm()


def test_factorising_keeps_the_function_but_for_the_error(build: Build, batch: MakeBatch) -> None:
    model = build("dmtrl", warmup=2, top=4, error=0.0)
    before = model(batch()).predictions
    model.on_epoch_end(EpochView(1))
    assert not model.factorised
    model.on_epoch_end(EpochView(2))
    assert model.factorised
    for task, prediction in model(batch()).predictions.items():
        torch.testing.assert_close(prediction, before[task], rtol=1e-10, atol=1e-12)


def test_before_the_factorisation_it_is_shared_bottom(build: Build, batch: MakeBatch) -> None:
    model, bottom = build("dmtrl", warmup=2, top=4), build("shared_bottom", top=4)
    bottom.encoder.load_state_dict(model.encoder.state_dict())
    for index, head in enumerate(bottom.heads):
        head[0].weight.data.copy_(model.core[index].T)
        head[0].bias.data.copy_(model.biases[index])
        head[3].load_state_dict(model.heads[index][1].state_dict())
    for task, prediction in model(batch()).predictions.items():
        torch.testing.assert_close(bottom(batch()).predictions[task], prediction, rtol=1e-12, atol=1e-14)


def test_what_the_truncation_cut_off_stays_zero_in_training(build: Build, batch: MakeBatch) -> None:
    model = build("dmtrl", warmup=1, top=4, error=0.5)
    model.on_epoch_end(EpochView(1))
    before = ranks(model.core.detach())
    assert before[1] < 5 and before[2] <= 4
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    start = model.core.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        sum(p.square().sum() for p in model(batch()).predictions.values()).backward()
        optimizer.step()
    assert ranks(model.core.detach()) == before
    assert not torch.equal(model.core, start)


def test_the_state_says_whether_it_is_factorised(build: Build, batch: MakeBatch) -> None:
    model, fresh = build("dmtrl", warmup=1), build("dmtrl", warmup=1, seed=1)
    model.on_epoch_end(EpochView(1))
    fresh.load_state_dict(model.state_dict())
    assert fresh.factorised
    assert torch.equal(fresh(batch()).predictions["a"], model(batch()).predictions["a"])
