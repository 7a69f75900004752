"""What a saved state is known by, and the difference from the balancer that it is loaded into, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from mtlscale.balancing import Balancer, JacobianBalancer, State
from mtlscale.config import UserError

_ENTRIES = ("method", "settings", "tasks", "sizes")


def identity(balancer: Balancer, names: Sequence[str], sizes: Mapping[str, list[list[int]]]) -> dict[str, Any]:
    """Return what a state is known by, in plain form: the balancer, its settings, the tasks, and the parameters.

    Args:
        sizes: The shapes of all parameters, by group.
    """
    settings = json.loads(json.dumps(balancer.knob_values(), default=str))
    return dict(zip(_ENTRIES, (balancer.name, settings, list(names), dict(sizes)), strict=True))


def check_identity(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise `UserError` that names the first difference between two identities."""
    if not isinstance(saved, Mapping) or any(entry not in saved for entry in _ENTRIES):
        raise UserError("this is no state of a TaskBalancer: load what its state_dict returned")

    for entry in _ENTRIES:
        if saved[entry] != own[entry]:
            theirs, ours = _told(entry, saved[entry], own[entry]), _told(entry, own[entry], saved[entry])
            raise UserError(f"the state is of {theirs}, this balancer of {ours}; load the state that belongs to it")


def _told(entry: str, content: Any, other: Any) -> str:
    """Return in words what is known of one side, as far as it differs from the other."""
    if entry == "method":
        return str(content)
    if entry == "tasks":
        return f"{len(content)} tasks" if len(content) != len(other) else f"the tasks {', '.join(content)}"
    if entry == "settings":
        return ", ".join(f"{name} = {value!r}" for name, value in content.items() if other.get(name) != value) or "none"

    label = next(label for label in (*content, *other) if content.get(label) != other.get(label))
    shapes, other_shapes = content.get(label, []), other.get(label, [])
    if len(shapes) != len(other_shapes):
        return f"{len(shapes)} parameters in {label}"
    position = next(place for place, shape in enumerate(shapes) if shape != other_shapes[place])
    return f"{shapes[position]} as number {position} in {label}"


def check_rows(balancer: Balancer, state: State, shared: Sequence[Tensor]) -> None:
    """Raise `UserError` where a state keeps a gradient for each shared parameter, and they are others now."""
    if not isinstance(balancer, JacobianBalancer):
        return
    shapes = {
        int(key.rpartition(".")[2]): list(rows.shape[1:])
        for key, rows in state.items()
        if key.startswith(balancer.per_row or ("?",))
    }
    if shapes and shapes != {index: list(parameter.shape) for index, parameter in enumerate(shared)}:
        raise UserError(
            f"{balancer.name} remembers a gradient for each shared parameter, and they are others now: make a new "
            "balancer"
        )
