"""STCH: a smooth form of the Tchebycheff scalarisation."""

from typing import ClassVar

from mtlscale.balancing.losses.tchebycheff import Tchebycheff
from mtlscale.config import knob


class STCH(Tchebycheff):
    """Smooth Tchebycheff: the gradient of μ log Σ exp(λ_t (ℓ_t - z_t)/μ); `smoothing` is μ.

    Source: Lin et al. (ICML 2024), eq. 10, without the authors' nadir-point warm-up. Agrees with TorchJD's STCH.
    """

    name: ClassVar[str] = "stch"
    source: ClassVar[str] = "Lin et al., ICML 2024, eq. 10"

    smoothing: float = knob(0.1, low=0, open_low=True, search=(0.01, 1.0, "log"), help="μ; small values: the maximum")
