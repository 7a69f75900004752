"""Reductions over the workers of a run (allreduce, gather), the same with one process or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Workers:
    """The rank of this process among the workers of a run; with `size == 1` every operation is the identity."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Workers:
        """Return the workers of the initialised process group, or a single worker."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return cls()

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over workers, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def send_sum(self, tensor: Tensor) -> torch.distributed.Work | None:
        """Start summing a tensor over workers, in place; wait for the returned work before using the tensor."""
        return torch.distributed.all_reduce(tensor, async_op=True) if self.size > 1 else None

    def max(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its elementwise maximum over workers, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return tensor

    def share(self, tensor: Tensor) -> Tensor:
        """Return the sum over workers as a new tensor whose gradient reaches this worker's part alone.

        A function of shared sums is the same on every worker, and the workers' gradients of it add up to the gradient
        it has with one worker.
        """
        if self.size == 1:
            return tensor
        local_part = tensor.detach()
        return tensor + (self.sum(local_part.clone()) - local_part)

    def all(self, flag: bool) -> bool:
        """Return whether the flag is set on every worker."""
        return flag if self.size == 1 else not bool(self.max(torch.tensor(0.0 if flag else 1.0)))

    def sum_many(self, tensors: Sequence[Tensor]) -> None:
        """Sum every tensor over workers in place, with one call per dtype."""
        if self.size == 1 or not tensors:
            return
        for dtype in sorted({addend.dtype for addend in tensors}, key=str):
            group = [addend for addend in tensors if addend.dtype == dtype]
            flat = torch.cat([addend.reshape(-1) for addend in group])
            torch.distributed.all_reduce(flat)
            for tensor, part in zip(group, flat.split([addend.numel() for addend in group]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the workers' tensors, all of one shape, in their order: [workers, *shape]."""
        return self.gather_many([tensor])[0]

    def gather_many(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the workers' values of each tensor, [workers, *shape], with one call per dtype.

        A tensor has the same shape on all workers.
        """
        gathered = [tensor.unsqueeze(0) for tensor in tensors]
        if self.size == 1:
            return gathered

        for dtype in sorted({local.dtype for local in tensors}, key=str):
            positions = [position for position, local in enumerate(tensors) if local.dtype == dtype]
            flat = torch.cat([tensors[position].reshape(-1) for position in positions])
            received = flat.new_empty(self.size * len(flat))
            torch.distributed.all_gather_single(received, flat)
            parts = received.view(self.size, -1).split([tensors[position].numel() for position in positions], dim=1)
            for position, part in zip(positions, parts, strict=True):
                gathered[position] = part.reshape(self.size, *tensors[position].shape)

        return gathered

    def barrier(self) -> None:
        if self.size > 1:
            torch.distributed.barrier()
