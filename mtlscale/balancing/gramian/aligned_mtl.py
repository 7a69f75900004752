"""Aligned-MTL: independent components of the gradients."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.config import knob
from mtlscale.solvers import aligned_weights


class AlignedMTL(GramianBalancer):
    """The average gradient after all principal components of the gradients have been brought to the same length.

    Source: Senushkin et al. (CVPR 2023), Algorithm 1. Like TorchJD's AlignedMTLWeighting, but for whole batches.
    Eigenvalues below T·eps of the largest count as zero, with the eps of the type in which the gradients were computed.
    """

    name: ClassVar[str] = "aligned_mtl"
    source: ClassVar[str] = "Senushkin et al., CVPR 2023, Algorithm 1"
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    # heads by the tasks of the step; tasks at rest are left out; products of gradients added up in pieces
    results_version: ClassVar[int] = 3
    batchable: ClassVar[bool] = True

    scale: str = knob("min", choices=("min", "median", "rmse"), help="which eigenvalue gives the common length")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return _hints.precision(batch)

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        return aligned_weights(gramian, self.scale, precision=state["precision"]).to(losses), state
