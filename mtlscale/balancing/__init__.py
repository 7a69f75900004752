"""Balancers: components that turn task losses or task gradients into one update.

One module per balancer, named as in experiment files. `Balancer` is the contract of all; `JacobianBalancer`,
`ValidationBalancer` and `ModuleBalancer` refine it. `balancer` makes one of a function.
"""

from mtlscale.balancing.contract import (
    Balancer,
    JacobianBalancer,
    ModuleBalancer,
    Needs,
    State,
    ValidationBalancer,
    balance,
    balanced_tasks,
    direct,
    look_again,
    look_ahead_weights,
    rehearsal,
)
from mtlscale.balancing.decorated import balancer

__all__ = [
    "Balancer",
    "JacobianBalancer",
    "ModuleBalancer",
    "Needs",
    "State",
    "ValidationBalancer",
    "balance",
    "balanced_tasks",
    "balancer",
    "direct",
    "look_again",
    "look_ahead_weights",
    "rehearsal",
]
