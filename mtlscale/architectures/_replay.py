"""What was seen, done and won: transitions of every task, the newest so many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_FIRST = 1 << 12  # transitions of a task that room is made for at first


@dataclass(frozen=True)
class Transitions:
    """[T, B, inputs] before and after, [T, B, actions] done, [T, B] won."""

    inputs: Tensor
    actions: Tensor
    rewards: Tensor
    after: Tensor


class Replay:
    """[tasks, room] transitions on the host; a full one forgets the oldest. Room grows with what is in it."""

    def __init__(self, tasks: int, room: int, inputs: int, actions: int) -> None:
        self.room, self.added = room, 0
        sizes = {"inputs": (inputs,), "actions": (actions,), "rewards": (), "after": (inputs,)}
        self._held = {
            name: torch.zeros(tasks, min(room, _FIRST), *size, dtype=torch.float32) for name, size in sizes.items()
        }

    def __len__(self) -> int:
        """Transitions of each task."""
        return min(self.added, self.room)

    def add(self, new: Transitions) -> None:
        """B more of every task, in their order."""
        count = new.rewards.shape[1]
        self._grow(min(self.room, self.added + count))
        places = (self.added + torch.arange(count)) % self.room
        kept = slice(max(0, count - self.room), None)  # of more than there is room for, the last
        for name, held in self._held.items():
            held[:, places[kept]] = getattr(new, name)[:, kept].to(held)
        self.added += count

    def take(self, places: Tensor, names: Sequence[str] = ("inputs", "actions", "rewards", "after")) -> Transitions:
        """places [T, B]: of each task's transitions."""
        tasks = torch.arange(len(places)).unsqueeze(1)
        return Transitions(**{name: self._held[name][tasks, places] for name in names})

    def state(self) -> dict[str, Any]:
        """What it holds, to go on from."""
        return {"added": self.added, **{name: held[:, : len(self)].clone() for name, held in self._held.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        self.added = state["added"]
        self._grow(len(self))
        for name, held in self._held.items():
            held[:, : len(self)] = state[name]

    def _grow(self, wanted: int) -> None:
        there = self._held["rewards"].shape[1]
        if wanted > there:
            size = min(self.room, max(wanted, 2 * there))
            for name, held in self._held.items():
                grown = held.new_zeros(held.shape[0], size, *held.shape[2:])
                grown[:, :there] = held
                self._held[name] = grown
