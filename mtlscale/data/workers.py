"""The few collective operations training needs, the same with one process or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Workers:
    """This process's place among the workers of a run; with `size == 1` every operation is the identity."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Workers:
        """From the initialised process group, or a single worker."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return cls()

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over workers, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def send_sum(self, tensor: Tensor) -> torch.distributed.Work | None:
        """Begin to sum over workers, in place; whoever uses the tensor waits for the work first."""
        return torch.distributed.all_reduce(tensor, async_op=True) if self.size > 1 else None

    def max(self, tensor: Tensor) -> Tensor:
        """Largest over workers, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
        return tensor

    def share(self, tensor: Tensor) -> Tensor:
        """The sum over workers as a new tensor whose gradient reaches this worker's part alone.

        A function of shared sums is the same on every worker, and the workers' gradients of it add up to the gradient
        it has with one worker.
        """
        if self.size == 1:
            return tensor
        own = tensor.detach()
        return tensor + (self.sum(own.clone()) - own)

    def all(self, flag: bool) -> bool:
        """Whether it holds on every worker."""
        return flag if self.size == 1 else not bool(self.max(torch.tensor(0.0 if flag else 1.0)))

    def sum_many(self, tensors: Sequence[Tensor]) -> None:
        """Sum every tensor over workers in place, with one call per dtype."""
        if self.size == 1 or not tensors:
            return
        for dtype in sorted({t.dtype for t in tensors}, key=str):
            group = [t for t in tensors if t.dtype == dtype]
            flat = torch.cat([t.reshape(-1) for t in group])
            torch.distributed.all_reduce(flat)
            for tensor, part in zip(group, flat.split([t.numel() for t in group]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, tensor: Tensor) -> Tensor:
        """[workers, *shape]: the tensors of one shape that the workers have, in their order."""
        return self.gather_many([tensor])[0]

    def gather_many(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each [workers, *shape]: what the workers have of tensors of the same shapes, with one call per dtype."""
        found = [tensor.unsqueeze(0) for tensor in tensors]
        if self.size == 1:
            return found
        for dtype in sorted({t.dtype for t in tensors}, key=str):
            places = [place for place, t in enumerate(tensors) if t.dtype == dtype]
            flat = torch.cat([tensors[place].reshape(-1) for place in places])
            there = flat.new_empty(self.size * len(flat))
            torch.distributed.all_gather_single(there, flat)
            parts = there.view(self.size, -1).split([tensors[place].numel() for place in places], dim=1)
            for place, part in zip(places, parts, strict=True):
                found[place] = part.reshape(self.size, *tensors[place].shape)
        return found

    def barrier(self) -> None:
        if self.size > 1:
            torch.distributed.barrier()
