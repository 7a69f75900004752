"""Counters in a balancer's state: what went wrong, how often, per trial."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.balancing._base import State


def counters(batch: tuple[int, ...], *names: str) -> State:
    """Counters at zero, int64 [batch]."""
    return {name: torch.zeros(batch, dtype=torch.int64) for name in names}


def count(state: State, **events: Tensor) -> State:
    """The state with each named counter raised where its event [batch] (bool) happened."""
    return {**state, **{name: state[name] + event.to(state[name]) for name, event in events.items()}}
