"""Balancers: components that turn task losses or task gradients into one update.

One module per balancer, named as in experiment files. `Balancer` is the contract of all; `JacobianBalancer`,
`ValidationBalancer` and `ModuleBalancer` refine it. `balancer` makes one of a function.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Balancer": ".contract",
        "JacobianBalancer": ".contract",
        "ModuleBalancer": ".contract",
        "Needs": ".contract",
        "State": ".contract",
        "ValidationBalancer": ".contract",
        "balance": ".contract",
        "balanced_tasks": ".contract",
        "balancer": ".decorated",
        "direct": ".contract",
        "look_again": ".contract",
        "look_ahead_weights": ".contract",
        "rehearsal": ".contract",
    },
)
