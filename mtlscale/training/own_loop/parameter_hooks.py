"""Hooks of parameters (`register_hook`, `register_post_accumulate_grad_hook`), called once for a balanced gradient.

Balancers that differentiate each task's loss would call them for each task, or not at all: an optimiser that steps in
such a hook would then train nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class ParameterHooks:
    """The hooks of some parameters: those of their gradients, and those of the parameters themselves."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._of_gradients = {id(p): list(p._backward_hooks.values()) for p in parameters if p._backward_hooks}
        self._registered: list[tuple[dict[int, Any], dict[int, Any]]] = [
            (hooks, dict(hooks))
            for parameter in parameters
            for hooks in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
            if hooks
        ]

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Take the hooks away inside the context."""
        for hooks, _ in self._registered:
            hooks.clear()
        try:
            yield
        finally:
            for hooks, content in self._registered:
                hooks.update(content)

    def accumulate(self, parameters: Sequence[nn.Parameter], previous: Sequence[Tensor | None]) -> None:
        """Add `previous` to `.grad` of the parameters as a backward pass does: through hooks, one by one."""
        gradients = [parameter.grad for parameter in parameters]
        for parameter, before in zip(parameters, previous, strict=True):
            parameter.grad = before

        for parameter, gradient, before in zip(parameters, gradients, previous, strict=True):
            if gradient is None:
                continue
            for hook in self._of_gradients.get(id(parameter), ()):
                answer = hook(gradient)
                gradient = gradient if answer is None else answer
            parameter.grad = gradient if before is None else before.add_(gradient)
            for hook in list((parameter._post_accumulate_grad_hooks or {}).values()):
                hook(parameter)


def hooks_of(parameters: Sequence[nn.Parameter]) -> ParameterHooks | None:
    """Return the hooks of parameters; None where there are none."""
    if any(parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in parameters):
        return ParameterHooks(parameters)
    return None
