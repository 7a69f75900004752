"""Counters in a balancer's state: how often each kind of failure happened, per trial."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.balancing.contract import State


def counters(batch: tuple[int, ...], *names: str) -> State:
    """Return counters at zero, int64 [batch]."""
    return {name: torch.zeros(batch, dtype=torch.int64) for name in names}


def count(state: State, **events: Tensor) -> State:
    """Return the state with each named counter raised where its event [batch] (bool) happened."""
    return {**state, **{name: state[name] + event.to(state[name]) for name, event in events.items()}}
