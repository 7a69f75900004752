"""RotoGrad: hard sharing in which each task reads rotated features, so that the tasks' gradients agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, encoder_head
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs, Workers
from mtlscale.encoders import EncoderModule


class RotoGradModule(MultiTaskModule):
    """Hard sharing whose features are rotated for each task.

    `rotations` [T, d, d] are no parameters: they follow a rule of their own after every step. They rotate the first d
    channels, by default all.

    `first` [T] keeps the norms of the tasks' first gradients. A backward pass notes what a step is to do to both;
    nothing changes until the step is taken.
    """

    joint_backward = True
    rotations: Tensor
    first: Tensor

    def __init__(
        self,
        suite: TaskSuite,
        encoder: EncoderModule,
        rate: float,
        scale: bool,
        dropout: float,
        channels: int | None = None,
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder, self.rate, self.scale = encoder, rate, scale

        size, rotated_channels = len(self.names), min(channels or encoder.features, encoder.features)
        self.register_buffer("rotations", torch.eye(rotated_channels).repeat(size, 1, 1))
        self.register_buffer("first", torch.zeros(size))

        self.heads = nn.ModuleList(encoder_head(encoder, task, dropout) for task in suite.tasks)
        self.gathered: Tensor | None = None  # [T, d, d], from the last backward pass on this worker
        self.norms: Tensor | None = None  # [T], from the last backward pass, of all workers' gradients

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        index = [self.names.index(task) for task in batch.tasks]
        rotations = torch.stack([self.rotations[i] for i in index])
        branches = _Rotate.apply(features, rotations, index, self)  # type: ignore[no-untyped-call]
        return Outputs({task: self.heads[i](z) for task, i, z in zip(batch.tasks, index, branches, strict=True)})

    @torch.no_grad()
    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        """Turn every rotation against the gradient of -<Rᵀ∇ℓ, v>."""
        if self.gathered is None or self.norms is None:
            return
        self.first.copy_(torch.where(self.first > 0, self.first, self.norms))
        self.rotations.copy_(orthogonal(turned(self.rotations, sum(self.gathered), self.rate)))
        self.discard_step()

    def discard_step(self) -> None:
        self.gathered = self.norms = None

    def extra_parameter_count(self) -> int:
        """Return the number of the rotations' entries, [T, d, d]."""
        return self.rotations.numel()

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.encoder.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.heads[self.names.index(task)].parameters())


def turned(rotations: Tensor, gradient: Tensor, rate: float) -> Tensor:
    """Return rotations [T, d, d] after a step of descent on <R, gradient> among rotations, in Cayley's form."""
    skew = gradient @ rotations.mT - rotations @ gradient.mT
    identity = torch.eye(rotations.shape[-1], dtype=rotations.dtype, device=rotations.device)
    half = 0.25 * rate * skew
    # Not checked, since the host would wait for the check: 1 plus a skew matrix can always be inverted.
    result: Tensor = torch.linalg.solve_ex(identity + half, (identity - half) @ rotations).result
    return result


def orthogonal(rotations: Tensor) -> Tensor:
    """Return the rotations nearest to rotations [T, d, d] that are off by rounding.

    One step of Newton and Schulz's iteration, in float64, squares the error. Without it the errors of float32 steps add
    up.
    """
    exact = rotations.to(torch.float64)
    return (1.5 * exact - 0.5 * exact @ (exact.mT @ exact)).to(rotations.dtype)


def scaled(norms: Tensor, first: Tensor) -> Tensor:
    """Return factors [T] that bring gradients of these norms to one common norm Σ γ_t ‖G_t‖.

    γ_t is a task's norm over its first one, relative to the sum over tasks. The factor of a zero gradient is zero.
    """
    nonzero = norms > 0
    rate = torch.where(nonzero, norms / torch.where(nonzero, first, 1.0), 0.0)
    common = (rate / rate.sum().clamp(min=torch.finfo(norms.dtype).tiny) * norms).sum()
    return torch.where(nonzero, common / torch.where(nonzero, norms, 1.0), 0.0)


class _Rotate(torch.autograd.Function):
    """The rotation of features [B, d, …] to R_t z for every task.

    Backward: the tasks' gradients, rotated back and scaled to a common norm, are added up; on the way the pass notes
    how the rotations should turn.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, rotations: Tensor, index: list[int], owner: RotoGradModule
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(rotations)
        ctx.index, ctx.owner = index, owner
        first, unrotated = features.split([rotations.shape[-1], features.shape[1] - rotations.shape[-1]], 1)
        rotated = [torch.einsum("ij,bj...->bi...", rotation.to(features.dtype), first) for rotation in rotations]
        return tuple(torch.cat([part, unrotated], 1) for part in rotated) if unrotated.shape[1] else tuple(rotated)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (rotations,), owner = ctx.saved_tensors, ctx.owner
        example = next(g for g in grads if g is not None)
        # A row is a sample, or a position of one.
        rows = [(torch.zeros_like(example) if g is None else g).movedim(1, -1).flatten(0, -2) for g in grads]

        gradients = torch.stack(rows).to(rotations.dtype)  # [T, n, channels]
        size = rotations.shape[-1]
        # [T, n, d], and channels that are not rotated.
        rotated_gradients, unrotated_gradients = gradients.split([size, gradients.shape[-1] - size], -1)
        rotated_back = rotated_gradients @ rotations  # rows of Rᵀ∇ℓ
        if unrotated_gradients.shape[-1]:
            rotated_back = torch.cat([rotated_back, unrotated_gradients], -1)

        squares = gradients.square().sum((1, 2))
        norms = Workers.current().sum(squares).sqrt()
        owner.norms = torch.zeros_like(owner.first)
        for row, task in enumerate(ctx.index):
            owner.norms[task] = norms[row]

        first = torch.stack([owner.first[task] for task in ctx.index])
        first = torch.where(first > 0, first, norms)
        factors = scaled(norms, first) if owner.scale else torch.ones_like(norms)
        total = torch.einsum("t,tnd->nd", factors, rotated_back)

        unit = torch.where(norms > 0, 1.0 / torch.where(norms > 0, norms, 1.0), 0.0)
        direction = torch.einsum("t,tnd->nd", unit, rotated_back[..., :size]) / len(norms)  # v, of unit gradients
        rotation_gradients = -torch.einsum("t,tni,nj->tij", unit, rotated_gradients, direction)

        owner.gathered = torch.zeros_like(owner.rotations)
        for row, task in enumerate(ctx.index):
            owner.gathered[task] = rotation_gradients[row]

        shape = example.movedim(1, -1).shape
        return total.reshape(shape).movedim(-1, 1).to(example.dtype), None, None, None


class RotoGrad(Architecture):
    """RotoGrad: hard sharing; each task's head reads features rotated for it, and gradients come back with one norm.

    The rotations are trained to bring the tasks' gradients at the shared features together, by steps of `rate` on
    gradients of norm 1, after each step of the optimiser and apart from it. Channels are rotated at every position of a
    map, with `channels` only the first of them, as the authors' package does for long features. The method needs a data
    set with one input for all tasks, a balancer that weights losses, and no gradient accumulation. The source uses a
    second Adam with a decaying rate.
    """

    name: ClassVar[str] = "rotograd"
    results_version: ClassVar[int] = 2  # rotations stay orthogonal in float32
    source: ClassVar[str] = "Javaloy & Valera, ICLR 2022"

    rate: float = knob(0.05, low=0.0, search=(0.005, 0.5, "log"), help="step size of the rotations")
    scale: bool = knob(True, help="bring the gradients to a common norm; false: rotate only")
    channels: int | None = knob(None, low=1, help="channels that are rotated, from the first; none: all")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if suite.inputs != "shared":
            raise UserError(
                f"rotograd compares the tasks' gradients at the same samples, but {suite.name} has inputs of its own "
                "per task; choose another architecture"
            )
        return RotoGradModule(suite, encoder(), self.rate, self.scale, dropout, self.channels)
