"""How task losses or task gradients become one update. One module per balancer, named as in experiment files."""

from mtlscale.balancing._base import (
    Balancer,
    JacobianBalancer,
    ModuleBalancer,
    Needs,
    State,
    ValidationBalancer,
    balance,
    direct,
    look_again,
    rehearsal,
)

__all__ = [
    "Balancer",
    "JacobianBalancer",
    "ModuleBalancer",
    "Needs",
    "State",
    "ValidationBalancer",
    "balance",
    "direct",
    "look_again",
    "rehearsal",
]
