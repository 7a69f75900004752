"""Batch normalisation with the statistics of the whole step's batch, for any number of workers.

torch's SyncBatchNorm does not run on CPUs. Gradient accumulation cuts a step into micro-batches, each of which has its
own statistics, as in other implementations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.config import UserError
from mtlscale.data import Workers


class BatchNorm2d(nn.BatchNorm2d):
    """The layer `torch.nn.BatchNorm2d` with mean and variance of all workers' samples: [B, C, H, W] -> the same shape.

    In training every worker has to run it equally often, forward and backward; a worker without a sample takes part
    with an empty batch. A single value per channel, of the last sample of an epoch, becomes the bias.

    Raises:
        UserError: If the very first batch has a single value per channel, as all later ones will.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return super().forward(inputs)
        if Workers.current().size == 1 and inputs.numel() > inputs.shape[1]:  # more than one value per channel
            return super().forward(inputs)

        assert self.running_mean is not None and self.running_var is not None
        if Workers.current().size == 1 and len(inputs) == 1 and not self.num_batches_tracked:
            raise UserError(
                "a batch of one sample below batch normalisation: every feature is a constant, and nothing below it "
                "learns; raise training.batch_size, or lower training.accumulate"
            )
        weight, bias = self.weight, self.bias
        if weight is None:
            weight, bias = torch.ones_like(self.running_mean), torch.zeros_like(self.running_mean)

        normalised = _Normalise.apply(inputs, weight, bias, self.eps)  # type: ignore[no-untyped-call]
        output: Tensor = normalised[0]
        self._remember(*normalised[1:])
        return output

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        assert self.num_batches_tracked is not None
        rate = self.momentum * (count > 0).to(count.dtype)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        self.running_mean += rate * (mean - self.running_mean)
        self.running_var += rate * (unbiased - self.running_var)
        self.num_batches_tracked += 1


class _Normalise(torch.autograd.Function):
    """The function (x - mean) / sqrt(variance + eps) * weight + bias over all workers' samples.

    It also returns mean [C], biased variance [C] and the number of values per channel [].
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = inputs.to(weight.dtype)
        channels = x.shape[1]
        own_count = torch.tensor(float(x.numel() // channels), dtype=weight.dtype, device=x.device)
        sums = torch.cat([x.sum((0, 2, 3)), own_count.reshape(1)])
        Workers.current().sum(sums)
        count = sums[-1]
        mean = sums[:-1] / count.clamp(min=1)

        centred = x - _wide(mean)
        squares = centred.square().sum((0, 2, 3))  # about the common mean: no cancellation
        Workers.current().sum(squares)

        variance = squares / count.clamp(min=1)
        scale = (variance + eps).rsqrt()
        normal = centred * _wide(scale)

        ctx.save_for_backward(normal, weight, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        output = normal * _wide(weight) + _wide(bias)
        return output.to(inputs.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, Tensor, None]:
        normal, weight, scale, count = ctx.saved_tensors
        output_gradient: Tensor = grads[0]
        cast_gradient = output_gradient.to(weight.dtype)
        own_sums = torch.cat([cast_gradient.sum((0, 2, 3)), (cast_gradient * normal).sum((0, 2, 3))])
        total = own_sums.clone()
        Workers.current().sum(total)
        mean, mean_along_normal = (total / count.clamp(min=1)).chunk(2)

        bias_gradient, weight_gradient = own_sums.chunk(2)
        input_gradient = (cast_gradient - _wide(mean) - normal * _wide(mean_along_normal)) * _wide(weight * scale)
        return input_gradient.to(output_gradient.dtype), weight_gradient, bias_gradient, None


def _wide(values: Tensor) -> Tensor:
    return values[:, None, None]


def synchronised(module: nn.Module) -> nn.Module:
    """Replace torch's batch normalisation in a module by this one, parameters and statistics kept, and return it."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d) and not isinstance(child, BatchNorm2d):
            new = BatchNorm2d(child.num_features, child.eps, child.momentum)
            new.load_state_dict(child.state_dict())
            setattr(module, name, new)
        else:
            synchronised(child)
    return module


def needs_every_worker(module: nn.Module) -> bool:
    """Return True if a training pass through the module waits for all workers, so that none may skip it."""
    return any(isinstance(child, BatchNorm2d) for child in module.modules())


def conv_block(inputs: int, outputs: int, size: int = 3, dilation: int = 1) -> nn.Sequential:
    """Build convolution without bias, normalisation and ReLU: [B, inputs, H, W] -> [B, outputs, H, W]."""
    conv = nn.Conv2d(inputs, outputs, size, padding=dilation * (size // 2), dilation=dilation, bias=False)
    return nn.Sequential(conv, BatchNorm2d(outputs), nn.ReLU())


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, project: bool) -> None:
        super().__init__()
        inner = max(1, outputs // 4)
        last = [nn.Conv2d(inner, outputs, 1, bias=False), BatchNorm2d(outputs)]
        self.layers = nn.Sequential(*conv_block(inputs, inner, 1), *conv_block(inner, inner), *last)
        projection = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), BatchNorm2d(outputs)) if project else None
        self.shortcut = projection or nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = (self.layers(inputs) + self.shortcut(inputs)).relu()
        return result


def residual_block(inputs: int, outputs: int, project: bool = True) -> nn.Module:
    """Build ResNet's bottleneck block of a quarter of the width: [B, inputs, H, W] -> [B, outputs, H, W].

    Args:
        inputs: Input channels.
        outputs: Output channels.
        project: Whether the shortcut is a projection; if not, it is the identity and needs inputs == outputs.
    """
    return _Bottleneck(inputs, outputs, project)


def resize(features: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize maps [B, C, h, w] to [B, C, *size]: by adaptive maximum if they shrink, bilinearly if they grow."""
    height, width = features.shape[-2:]
    if (height, width) == size:
        return features
    if height >= size[0] and width >= size[1]:
        return functional.adaptive_max_pool2d(features, size)
    return functional.interpolate(features, size=size, mode="bilinear", align_corners=False)
