"""Balancer for many trials at once, each with knobs of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
from torch import Tensor
from torch.func import vmap

from mtlscale.balancing import Balancer, State, balance, look_again

# (balancer, losses [..., T], gramian [..., T, T] or None, state, present [T]) -> numbers [..., T] and the next state
Call = Callable[[Balancer, Tensor, Tensor | None, State, Tensor], tuple[Tensor, State]]


class BatchedBalancer:
    """Balancer that answers for B trials what each trial's balancer would answer alone.

    Losses are [B, T], Gramians [B, T, T], presence [B, T]; states have a leading B.

    Balancers with the same knobs are called once. For others that need losses only, the knobs become tensors and the
    call is vectorised. Each trial is called by itself where a balancer cannot be vectorised (it asks for a number),
    where balancers solve a problem per Gramian anyway, and where the trials miss labels of different tasks.
    """

    def __init__(self, balancers: Sequence[Balancer]) -> None:
        self._balancers = list(balancers)
        self._first = self._balancers[0]
        names = [field.name for field in fields(self._first) if field.name not in self._first.only_in_init]
        differing = [
            name for name in names if any(getattr(b, name) != getattr(self._first, name) for b in self._balancers)
        ]
        columns = [[getattr(b, name) for b in self._balancers] for name in differing]
        self._alike = not differing
        self._vectorised = self._first.needs == "losses" and all(isinstance(v, float) for c in columns for v in c)
        self._knobs = (
            {name: torch.tensor(column, dtype=torch.float64) for name, column in zip(differing, columns, strict=True)}
            if self._vectorised
            else {}
        )
        self._stubborn: set[Call] = set()  # calls that cannot be vectorised

    def balance(self, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor) -> tuple[Tensor, State]:
        """Return the weights [B, T] and the next states."""
        return self._for_all(balance, losses, gramian, state, present)

    def look_again(self, losses: Tensor, state: State, present: Tensor) -> State:
        """Return the states after the same batch's losses [B, T] after the step."""
        return self._for_all(_look_again, losses, None, state, present)[1]

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        """Return the states after an epoch; `losses` [B, T] are training losses averaged over it."""
        return self._for_all(_on_epoch_end, losses, None, state, torch.ones_like(losses, dtype=torch.bool))[1]

    def _for_all(
        self, call: Call, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
    ) -> tuple[Tensor, State]:
        if not bool((present == present[0]).all()):
            return self._one_by_one(call, losses, gramian, state, present)

        if self._alike:
            return call(self._first, losses, gramian, state, present[0])

        if self._vectorised and call not in self._stubborn:
            knobs = {name: value.to(losses.device) for name, value in self._knobs.items()}
            try:
                answer: tuple[Tensor, State] = vmap(
                    lambda knobs, losses, state: call(_with(self._first, knobs), losses, None, state, present[0])
                )(knobs, losses, state)
                return answer
            except (RuntimeError, TypeError):  # the balancer branches on a knob, or leaves torch
                self._stubborn.add(call)

        return self._one_by_one(call, losses, gramian, state, present)

    def _one_by_one(
        self, call: Call, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
    ) -> tuple[Tensor, State]:
        answers = [
            call(
                balancer,
                losses[trial],
                None if gramian is None else gramian[trial],
                {key: value[trial] for key, value in state.items()},
                present[trial],
            )
            for trial, balancer in enumerate(self._balancers)
        ]

        states = {key: torch.stack([after[key] for _, after in answers]) for key in answers[0][1]}
        return torch.stack([numbers for numbers, _ in answers]), states


def _look_again(
    balancer: Balancer, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
) -> tuple[Tensor, State]:
    return losses, look_again(balancer, losses, state, present)


def _on_epoch_end(
    balancer: Balancer, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
) -> tuple[Tensor, State]:
    return losses, balancer.on_epoch_end(losses, state)


def _with(balancer: Balancer, knobs: dict[str, Tensor]) -> Balancer:
    """Return the balancer with tensors for knobs; they were checked one by one when the trials' own were built."""
    result = copy.copy(balancer)
    for name, value in knobs.items():
        object.__setattr__(result, name, value)
    return result
