"""The replay buffer: the newest transitions of every task, up to its capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_INITIAL_CAPACITY = 1 << 12  # initial capacity, in transitions of each task


@dataclass(frozen=True)
class Transitions:
    """Transitions: [T, B, inputs] before and after, actions [T, B, actions], and rewards [T, B]."""

    inputs: Tensor
    actions: Tensor
    rewards: Tensor
    after: Tensor


class ReplayBuffer:
    """The replay buffer of transitions [tasks, room] on the host.

    A full buffer overwrites its oldest transitions. Its memory grows with its content.
    """

    def __init__(self, tasks: int, room: int, inputs: int, actions: int) -> None:
        self.room, self.added = room, 0
        sizes = {"inputs": (inputs,), "actions": (actions,), "rewards": (), "after": (inputs,)}
        self._size = {
            name: torch.zeros(tasks, min(room, _INITIAL_CAPACITY), *size, dtype=torch.float32)
            for name, size in sizes.items()
        }

    def __len__(self) -> int:
        """Return the number of transitions of each task."""
        return min(self.added, self.room)

    def add(self, new: Transitions) -> None:
        """Add B transitions of every task, in their order."""
        count = new.rewards.shape[1]
        self._grow(min(self.room, self.added + count))
        slots = (self.added + torch.arange(count)) % self.room
        newest = slice(max(0, count - self.room), None)  # only the last, if there are more than fit
        for name, buffer in self._size.items():
            buffer[:, slots[newest]] = getattr(new, name)[:, newest].to(buffer)
        self.added += count

    def at(self, places: Tensor, names: Sequence[str] = ("inputs", "actions", "rewards", "after")) -> Transitions:
        """Return the transitions at places [T, B] of each task."""
        tasks = torch.arange(len(places)).unsqueeze(1)
        return Transitions(**{name: self._size[name][tasks, places] for name in names})

    def state(self) -> dict[str, Any]:
        """Return the buffer's content, to resume from."""
        return {"added": self.added, **{name: buffer[:, : len(self)].clone() for name, buffer in self._size.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        self.added = state["added"]
        self._grow(len(self))
        for name, buffer in self._size.items():
            buffer[:, : len(self)] = state[name]

    def _grow(self, wanted: int) -> None:
        capacity = self._size["rewards"].shape[1]
        if wanted > capacity:
            size = min(self.room, max(wanted, 2 * capacity))
            for name, buffer in self._size.items():
                larger = buffer.new_zeros(buffer.shape[0], size, *buffer.shape[2:])
                larger[:, :capacity] = buffer
                self._size[name] = larger
