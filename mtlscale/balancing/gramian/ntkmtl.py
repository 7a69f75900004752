"""NTKMTL: weights that bring the largest eigenvalues of the tasks' tangent kernels together."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import GramianBalancer, State


class NTKMTL(GramianBalancer):
    """Weights that bring the tasks' neural tangent kernels together: ω_t = √(Σ_s λ_s / λ_t), λ_t = ‖g_t‖².

    Source: Qin et al. (NeurIPS 2025), with the batch as one sample, so that the kernel's eigenvalue λ_t is the squared
    norm of the task's gradient; the authors also split the batch. A gradient of zero gets weight 0.
    """

    name: ClassVar[str] = "ntkmtl"
    source: ClassVar[str] = "Qin et al., NeurIPS 2025"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T backwards"
    batchable: ClassVar[bool] = True

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        eigenvalues = gramian.diagonal(dim1=-2, dim2=-1)
        ratios = eigenvalues.sum(-1, keepdim=True) / torch.where(eigenvalues == 0, 1.0, eigenvalues)
        weights = torch.where(eigenvalues == 0, 0.0, ratios).sqrt()
        # All gradients zero: no kernel to compare.
        return torch.where((eigenvalues == 0).all(-1, keepdim=True), 1.0, weights).to(losses), state
