from typing import ClassVar

from torch import Tensor

from mtlscale.balancing._base import Balancer, Needs, State
from mtlscale.components import knob
from mtlscale.solvers import aligned_weights


class AlignedMTL(Balancer):
    """The average gradient after all principal components of the gradients have been brought to the same length.

    Source: Senushkin et al. (CVPR 2023), Algorithm 1. As TorchJD's AlignedMTLWeighting, for whole batches, with
    eigenvalues below 1e-12 of the largest counted as zero.
    """

    name: ClassVar[str] = "aligned_mtl"
    source: ClassVar[str] = "Senushkin et al., CVPR 2023, Algorithm 1"
    needs: ClassVar[Needs] = "gramian"
    cost: ClassVar[str] = "T backwards"
    heads = "mean"

    scale: str = knob("min", choices=("min", "median", "rmse"), help="which eigenvalue gives the common length")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        return aligned_weights(gramian, self.scale).to(losses), state
