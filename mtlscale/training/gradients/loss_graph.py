"""Checks of a user's losses against the parameters that they should move, read off autograd's graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mtlscale.config import UserError

_ACCUMULATE = "torch::autograd::AccumulateGrad"
# Nodes whose backward pass is known to run for all tasks at once (`torch.func.vmap`) and faster so.
_BATCHABLE = frozenset(
    f"{name}Backward{number}"
    for name in (
        *("Addmm", "Mm", "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Expand", "Squeeze"),
        *("Unsqueeze", "Relu", "LeakyRelu", "Elu", "Tanh", "Sigmoid", "Silu", "Gelu", "Mul", "Div", "Add", "Sub"),
        *("Mean", "Sum", "Cat", "NativeLayerNorm", "Softplus", "ToCopy"),
    )
    for number in range(3)
) | {_ACCUMULATE}


@dataclass
class Reached:
    """Parts of the graph above some tensor: the leaves, the kinds of nodes, and whether it goes through `features`."""

    leaves: dict[int, Tensor] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    through: bool = False

    @property
    def batchable(self) -> bool:
        """Whether the backward passes of several tasks may run as one."""
        return self.kinds <= _BATCHABLE


def reached(root: Tensor, features: Tensor | None = None) -> Reached:
    """Walk the graph above `root`; where it comes to `features`, it goes no further."""
    result = Reached()
    stop = None if features is None else (features.grad_fn, features.output_nr)
    waiting: list[tuple[Any, int]] = [(root.grad_fn, root.output_nr)] if root.grad_fn is not None else []
    seen: set[Any] = set()

    while waiting:
        edge = waiting.pop()
        if edge == stop:
            result.through = True
            continue

        node = edge[0]
        if node in seen:
            continue
        seen.add(node)
        result.kinds.add(node.name())
        if node.name() == _ACCUMULATE:
            result.leaves[id(node.variable)] = node.variable
        waiting += [following for following in node.next_functions if following[0] is not None]

    return result


def check_loss(
    loss: Tensor, task: int, names: Sequence[str], owners: dict[int, int | None], features: Tensor | None
) -> None:
    """Raise `UserError` where the gradient of a loss would not be what its user means.

    Args:
        loss: The loss of the task.
        task: Its position among `names`.
        names: The tasks' names.
        owners: The position of the task that owns a parameter, None for shared ones, by the parameter's `id`.
        features: What the task's head reads, if it was handed over.
    """
    name, graph = names[task], reached(loss, features)
    shared = [leaf for key, leaf in graph.leaves.items() if owners.get(key, task) is None]

    if features is not None and not graph.through:
        raise UserError(
            f"the loss of task {name} does not depend on the features: hand over those of the same forward pass"
        )
    if features is not None and shared:
        raise UserError(
            f"the loss of task {name} depends on a shared parameter {_shape(shared[0])} beside the features; leave "
            "features out"
        )
    has_shared = any(owner is None for owner in owners.values())
    if features is None and has_shared and not shared:
        raise UserError(
            f"the loss of task {name} does not depend on the shared parameters: compute it with the network whose "
            "parameters are given as shared"
        )

    for key, leaf in graph.leaves.items():
        owner = owners.get(key, -1)
        if owner == -1:
            raise UserError(
                f"the loss of task {name} depends on a parameter {_shape(leaf)} that is neither in shared nor in "
                "heads; add it, or set its requires_grad to False"
            )
        if owner is not None and owner != task:
            raise UserError(
                f"the loss of task {name} depends on a parameter {_shape(leaf)} of the head of task {names[owner]}; "
                "put it into shared"
            )


def check_features(features: Tensor, owners: dict[int, int | None]) -> Reached:
    """Raise `UserError` where features do not come from shared parameters alone; return what is above them."""
    graph = reached(features)
    if not any(owners.get(key, -1) is None for key in graph.leaves):
        raise UserError("the features do not depend on the shared parameters: hand over the output of the shared part")
    for key, leaf in graph.leaves.items():
        if owners.get(key, -1) is not None:
            raise UserError(f"the features depend on a parameter {_shape(leaf)} that is not in shared; add it")
    return graph


def _shape(parameter: Tensor) -> str:
    return f"of shape {list(parameter.shape)}"
