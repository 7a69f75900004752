"""The recurrent controller, which makes a row of decisions and learns by REINFORCE which of them pay.

Its parameters are one vector that its own rule moves, the same on every worker: no loss of the network reaches them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.solvers import first_largest

HIDDEN, SPREAD, TEMPERATURE = 64, 2.5, 5.0  # ENAS: logits 2.5 tanh(· / 5)


class Controller:
    """The controller: an LSTM that reads each choice it made, with a linear layer for every decision.

    Args:
        sizes: Number of choices of each decision.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        shapes: dict[str, tuple[int, ...]] = {
            "start": (HIDDEN,),
            "inputs": (4 * HIDDEN, HIDDEN),
            "hidden": (4 * HIDDEN, HIDDEN),
            "bias": (4 * HIDDEN,),
        }
        for index, size in enumerate(self.sizes):
            shapes |= {f"choice_{index}": (size, HIDDEN), f"logits_{index}": (size, HIDDEN)}
        self.shapes = shapes
        self.length = sum(math.prod(shape) for shape in shapes.values())

    def begin(self, generator: torch.Generator) -> Tensor:
        """Return its initial parameters [P], uniform in ±0.1 as in ENAS."""
        return torch.empty(self.length, dtype=torch.float64).uniform_(-0.1, 0.1, generator=generator)

    def decide(
        self, theta: Tensor, generator: torch.Generator | None = None, chosen: Sequence[int] | None = None
    ) -> tuple[list[int], Tensor, Tensor]:
        """Make a row of choices.

        Without `generator` and `chosen`, each decision takes its most probable choice.

        Args:
            theta: Parameters [P].
            chosen: Choices to take instead of drawing them.

        Returns:
            The choices, their log probability, and the sum of the decisions' entropies.
        """
        parts = self._distributions(theta)
        value, hidden, cell = parts["start"], theta.new_zeros(HIDDEN), theta.new_zeros(HIDDEN)

        choices: list[int] = []
        log_probability, entropy = theta.new_zeros(()), theta.new_zeros(())

        for index in range(len(self.sizes)):
            hidden, cell = _lstm(value, hidden, cell, parts)
            logs = (SPREAD * (parts[f"logits_{index}"] @ hidden / TEMPERATURE).tanh()).log_softmax(0)
            if chosen is not None:
                choice = chosen[index]
            elif generator is not None:
                choice = int(torch.multinomial(logs.detach().exp(), 1, generator=generator))
            else:
                choice = int(first_largest(logs))
            choices.append(choice)
            log_probability = log_probability + logs[choice]
            entropy = entropy - (logs.exp() * logs).sum()
            value = parts[f"choice_{index}"][choice]

        return choices, log_probability, entropy

    def gradient(self, theta: Tensor, choices: Sequence[int], advantage: float, bonus: float) -> Tensor:
        """Return the gradient [P] of the loss -(advantage · log π(chosen) + bonus · entropy)."""
        with torch.enable_grad():
            point = theta.detach().requires_grad_()
            _, log_probability, entropy = self.decide(point, chosen=choices)
            (gradient,) = torch.autograd.grad(-(advantage * log_probability + bonus * entropy), point)
        return gradient

    def _distributions(self, theta: Tensor) -> Mapping[str, Tensor]:
        pieces = theta.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


def adam_step(theta: Tensor, moments: Tensor, gradient: Tensor, step: int, lr: float) -> None:
    """Take one step of Adam in place; moments [2, P], step counted from 1."""
    moments[0].lerp_(gradient, 0.1)
    moments[1].lerp_(gradient.square(), 0.001)
    first, second = moments[0] / (1 - 0.9**step), moments[1] / (1 - 0.999**step)
    theta -= lr * first / (second.sqrt() + 1e-8)


def _lstm(value: Tensor, hidden: Tensor, cell: Tensor, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    gates = functional.linear(value, parts["inputs"]) + functional.linear(hidden, parts["hidden"], parts["bias"])
    enter, forget, new, leave = gates.chunk(4)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell
