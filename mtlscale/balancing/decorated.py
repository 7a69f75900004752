"""Balancers without state as plain functions: a decorator makes the component of a function."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, JacobianBalancer, State
from mtlscale.config import UserError

FunctionNeeds = Literal["losses", "gramian", "gradients"]
_INPUTS = {"losses": ("losses",), "gramian": ("losses", "gramian"), "gradients": ("losses", "gradients")}


class _WeightFunction(Balancer):
    """Base class of balancers made of a function that returns weights."""

    function: ClassVar[Callable[..., Tensor]]
    inputs: ClassVar[tuple[str, ...]]

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        available = {"losses": losses, "gramian": gramian}
        arguments = {name: available[name] for name in self.inputs}
        weights = type(self).function(**arguments, **_settings(self))
        if not isinstance(weights, Tensor):
            actual = "nothing" if weights is None else f"a {type(weights).__name__}"
            raise UserError(
                f"balancer {self.name} returns {actual}; a function returns weights alone, a tensor of shape "
                f"[{losses.shape[-1]}]; a class keeps a state"
            )
        return weights.to(losses), state


class _DirectionFunction(JacobianBalancer):
    """Base class of balancers made of a function that returns the update."""

    function: ClassVar[Callable[..., Tensor]]
    inputs: ClassVar[tuple[str, ...]]

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        available = {"losses": losses, "gradients": torch.cat([rows.flatten(1) for rows in jacobian], dim=1)}
        arguments = {name: available[name] for name in self.inputs}
        answer = type(self).function(**arguments, **_settings(self))

        size = available["gradients"].shape[1]
        if not isinstance(answer, Tensor) or answer.shape != (size,):
            actual = f"of shape {list(answer.shape)}" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
            raise UserError(f"balancer {self.name} returns a direction {actual}; it has to be of shape [{size}]")
        parts = answer.split([rows[0].numel() for rows in jacobian])
        return [part.view_as(rows[0]) for part, rows in zip(parts, jacobian, strict=True)], state


def balancer(
    function: Callable[..., Tensor] | None = None,
    /,
    *,
    needs: FunctionNeeds = "losses",
    heads: Literal["weighted", "mean", "sum"] | None = None,
    source: str = "own method",
    positive_losses: bool = False,
    batchable: bool = False,
) -> Callable[[Callable[..., Tensor]], type[Balancer]]:
    """Make a balancer of a function without state; one with state is a class that derives from `Balancer`.

    The function's name is the balancer's. Its parameters without a default are what it is called with: `losses` [T],
    and `gramian` [T, T] or `gradients` [T, P], as `needs` says. It returns weights [T], or with
    `gradients` the update [P]. Its parameters with a default are settings; `knob(1.0, low=0)` as a default gives their
    range.

    ```python
    @balancer(needs="losses")
    def inverse_loss(losses, power=knob(1.0, low=0, search=(0.1, 4.0, "log"))):
        return losses.clamp(min=1e-12) ** -power
    ```

    Args:
        function: Not to be given: the decorator has brackets, `@balancer()`.
        needs: The cheapest input that suffices: "losses", "gramian" or "gradients".
        heads: How the tasks' own parameters are weighted (`Balancer.heads`); default: "weighted", with gradients "sum".
        source: The paper, for tables.
        positive_losses: Whether negative losses are an error.
        batchable: Whether the function works over leading dimensions, [..., T].

    Returns:
        The decorator, which returns a balancer's class.

    Raises:
        TypeError: If the function's parameters are not as `needs` says.
        UserError: If the brackets are missing.
    """
    if function is not None:
        raise UserError("write @balancer() above the function, or @balancer(needs=…)")
    if needs not in _INPUTS:
        raise TypeError(f"needs = {needs!r} is unknown; choose {', '.join(_INPUTS)}")

    def decorate(function: Callable[..., Tensor]) -> type[Balancer]:
        inputs, settings = _parameters(function, needs)
        base = _DirectionFunction if needs == "gradients" else _WeightFunction
        namespace: dict[str, Any] = {
            "__doc__": function.__doc__ or f"{function.__name__}, a balancer made of a function.",
            "__module__": function.__module__,
            "__annotations__": {name: type(_default(value)).__name__ for name, value in settings.items()},
            **settings,
            "name": function.__name__,
            "source": source,
            "needs": "jacobian" if needs == "gradients" else needs,
            "heads": heads or base.heads,
            "positive_losses": positive_losses,
            "batchable": batchable,
            "function": staticmethod(function),
            "inputs": inputs,
        }
        return type(function.__name__, (base,), namespace)

    return decorate


def _parameters(function: Callable[..., Tensor], needs: FunctionNeeds) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of a function's inputs, and its settings with their defaults."""
    inputs, settings = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            settings[name] = parameter.default
        else:
            inputs.append(name)

    allowed = _INPUTS[needs]
    for name in inputs:
        if name not in allowed:
            raise TypeError(
                f"{function.__name__}: {name} is no input with needs = {needs!r}; inputs are {', '.join(allowed)}, "
                "settings need a default"
            )
    if allowed[-1] not in inputs:
        raise TypeError(f"{function.__name__} has no parameter {allowed[-1]}, but needs = {needs!r}")
    return tuple(inputs), settings


def _default(value: Any) -> Any:
    """Return the default of a setting, which may be declared with its range."""
    if not isinstance(value, dataclasses.Field):
        return value
    return value.default_factory() if value.default_factory is not dataclasses.MISSING else value.default


def _settings(component: Balancer) -> dict[str, Any]:
    return {name: getattr(component, name) for name in component.knobs()}
