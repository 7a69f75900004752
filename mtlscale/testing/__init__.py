"""Checks of components of one's own: what shipped ones keep, as functions that any test runner may call."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Bound": ".balancers",
        "Check": ".balancers",
        "balancer_checks": ".balancers",
    },
)
