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

    def barrier(self) -> None:
        if self.size > 1:
            torch.distributed.barrier()
