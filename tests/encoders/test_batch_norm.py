"""Batch normalisation over all workers against torch's own on the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from two_workers import two_workers

from mtlscale.config import UserError
from mtlscale.data import Workers
from mtlscale.encoders import BatchNorm2d, needs_every_worker, resize
from mtlscale.encoders.batch_norm import _Normalise, synchronised

CHANNELS = 3


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(7, CHANNELS, 2, 3, generator=generator, dtype=torch.float64) * 5 + 100
    return inputs, torch.randn(7, CHANNELS, 2, 3, generator=generator, dtype=torch.float64)


def through(norm: nn.Module, inputs: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a pass and its backward give."""
    inputs = inputs.clone().requires_grad_()
    output = norm(inputs)
    grads = torch.autograd.grad((output.square() * target).sum(), [inputs, *norm.parameters()])
    found = dict(zip(("inputs", "weight", "bias"), grads, strict=True))
    return {"output": output.detach(), **found, "mean": norm.running_mean, "variance": norm.running_var}


def reference(kind: type[nn.BatchNorm2d]) -> nn.BatchNorm2d:
    norm = kind(CHANNELS).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.0, -2.0]))
        norm.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    return norm


def _share(share: int, workers: Workers) -> dict[str, torch.Tensor]:
    inputs, target = batch()
    mine = slice(0, share) if workers.rank == 0 else slice(share, None)
    return through(reference(BatchNorm2d), inputs[mine], target[mine])


def test_two_workers_normalise_as_torch_does_on_the_whole_batch() -> None:
    """Uneven shares, and one where worker 1 has nothing."""
    expected = through(reference(nn.BatchNorm2d), *batch())
    for first, second in zip(*two_workers(_share, [4, 6, 7]), strict=True):
        for key in ("output", "inputs"):
            torch.testing.assert_close(torch.cat([first[key], second[key]]), expected[key], rtol=1e-10, atol=1e-12)
        for key in ("weight", "bias"):
            torch.testing.assert_close(first[key] + second[key], expected[key], rtol=1e-10, atol=1e-12)
        for found in (first, second):
            for key in ("mean", "variance"):
                torch.testing.assert_close(found[key], expected[key], rtol=1e-12, atol=1e-12)


def test_own_arithmetic_in_one_process_is_torchs() -> None:
    inputs, target = batch()
    norm = reference(nn.BatchNorm2d)
    given = inputs.clone().requires_grad_()
    output, mean, variance, count = _Normalise.apply(given, norm.weight, norm.bias, norm.eps)
    expected = through(norm, inputs, target)
    torch.testing.assert_close(output, expected["output"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mean, inputs.mean((0, 2, 3)))
    torch.testing.assert_close(variance, inputs.var((0, 2, 3), correction=0))
    assert count == 42
    small = torch.randn(2, CHANNELS, 1, 2, dtype=torch.float64, requires_grad=True)
    weights = [p.detach().clone().requires_grad_() for p in (norm.weight, norm.bias)]
    assert torch.autograd.gradcheck(lambda x, w, b: _Normalise.apply(x, w, b, 1e-5)[0], (small, *weights))


def test_a_single_value_per_channel_becomes_the_bias_where_it_is_left_over() -> None:
    norm = reference(BatchNorm2d)
    with pytest.raises(UserError, match=r"a batch of one sample .* raise training\.batch_size"):
        norm(torch.full((1, CHANNELS, 1, 1), 7.0, dtype=torch.float64))
    norm(batch()[0])
    output = norm(torch.full((1, CHANNELS, 1, 1), 7.0, dtype=torch.float64))
    assert output.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert norm.running_var.isfinite().all()


def test_torchs_layers_are_replaced_with_their_parameters_and_statistics() -> None:
    inner = nn.BatchNorm2d(CHANNELS, eps=0.01, momentum=0.3)
    inner(torch.randn(4, CHANNELS, 2, 2))
    module = nn.Sequential(nn.Conv2d(3, CHANNELS, 1), nn.Sequential(inner))
    assert not needs_every_worker(module)
    before, keys = module.eval()(torch.ones(1, 3, 2, 2)), set(module.state_dict())
    assert needs_every_worker(synchronised(module)) and set(module.state_dict()) == keys
    assert torch.equal(module.eval()(torch.ones(1, 3, 2, 2)), before)


def test_resizing_takes_the_largest_down_and_interpolates_up() -> None:
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert resize(image, (2, 2)).flatten().tolist() == [5.0, 7.0, 13.0, 15.0]
    assert resize(image[..., :1, :2], (1, 4)).flatten().tolist() == [0.0, 0.25, 0.75, 1.0]
    assert resize(image, (4, 4)) is image
