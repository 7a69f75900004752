"""A balancer for many trials at once, each with knobs of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from mtlscale.balancing import Balancer, State, balance


class BatchedBalancer:
    """Answers for B trials what each trial's balancer would answer alone: losses [B, T], gramian [B, T, T], states with
    a leading B.

    Balancers with the same knobs are called once. Of others that need losses only, the knobs become tensors and the
    call is vectorised; where a balancer cannot be (it asks for a number), and for those that solve a problem per
    Gramian anyway, each trial is called.
    """

    def __init__(self, balancers: Sequence[Balancer]) -> None:
        self._all = list(balancers)
        self._one = self._all[0]
        self.per_task, self.per_pair = self._one.per_task, self._one.per_pair
        names = [field.name for field in fields(self._one)]
        self._differing = [name for name in names if len({getattr(b, name) for b in self._all}) > 1]
        numbers = all(isinstance(getattr(b, name), float) for b in self._all for name in self._differing)
        self._vectorised = numbers and self._one.needs == "losses"
        values = ([getattr(b, name) for b in self._all] for name in self._differing) if numbers else ()
        self._knobs = {
            name: torch.tensor(column, dtype=torch.float64)
            for name, column in zip(self._differing, values, strict=False)
        }

    def balance(self, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor) -> tuple[Tensor, State]:
        """Weights [B, T] where some tasks have no labels in this step (`present` [B, T])."""
        if bool((present == present[0]).all()):
            return balance(self, losses, gramian, state, present[0])  # type: ignore[arg-type]
        return self._each(
            lambda trial, part: balance(
                self._all[trial], losses[trial], None if gramian is None else gramian[trial], part, present[trial]
            ),
            state,
        )

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if not self._differing:
            return self._one(losses, gramian, state)
        if self._vectorised:
            answer = self._try(lambda one, losses, state: one(losses, None, state), losses, state)
            if answer is not None:
                return answer
        return self._each(
            lambda trial, part: self._all[trial](losses[trial], None if gramian is None else gramian[trial], part),
            state,
        )

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        """losses [B, T]: training losses averaged over the epoch."""
        if not self._differing:
            return self._one.on_epoch_end(losses, state)
        none = torch.zeros(0)
        return self._each(lambda trial, part: (none, self._all[trial].on_epoch_end(losses[trial], part)), state)[1]

    def _try(self, call: Callable[..., Any], losses: Tensor, state: State) -> tuple[Tensor, State] | None:
        knobs = {name: value.to(losses.device) for name, value in self._knobs.items()}
        try:
            return vmap(lambda knobs, losses, state: call(_with(self._one, knobs), losses, state))(knobs, losses, state)
        except (RuntimeError, TypeError):  # it branches on a knob, or leaves torch
            self._vectorised = False
            return None

    def _each(self, call: Callable[[int, State], tuple[Tensor, State]], state: State) -> tuple[Tensor, State]:
        answers = [call(trial, {key: value[trial] for key, value in state.items()}) for trial in range(len(self._all))]
        states = {key: torch.stack([after[key] for _, after in answers]) for key in answers[0][1]}
        return torch.stack([weights for weights, _ in answers]), states


def _with(balancer: Balancer, knobs: dict[str, Tensor]) -> Balancer:
    """The balancer with tensors for knobs; they were checked one by one when the trials' own were built."""
    result = copy.copy(balancer)
    for name, value in knobs.items():
        object.__setattr__(result, name, value)
    return result
