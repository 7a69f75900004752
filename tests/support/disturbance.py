"""What rounding on another processor does, in the small: numbers that are a little off from the beginning."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import mtlscale.batched.session
import mtlscale.training.engine.phases

_TESTS = Path(__file__).parents[1]


@contextmanager
def disturbed(size: float, *, numbers: bool = False) -> Iterator[None]:
    """Multiply what float64 runs begin with by 1 + `size` · noise: the same noise for the same shape.

    Args:
        size: 1e-13 to measure how a run multiplies it, 1e-15 for what another processor's rounding comes to.
        numbers: Disturb what `torch.rand` and `torch.randn` return to tests, too: the inputs of solvers and balancers.
    """
    with ExitStack() as patches:
        for module in (mtlscale.training.engine.phases, mtlscale.batched.session) if size else ():
            patches.enter_context(mock.patch.object(module, "build_model", _built(module.build_model, size)))
        for name in ("rand", "randn") if size and numbers else ():
            patches.enter_context(mock.patch.object(torch, name, _drawn(getattr(torch, name), size)))
        yield


def _built(build_model: Callable[..., Any], size: float) -> Callable[..., Any]:
    @functools.wraps(build_model)
    def build(run: Any, suite: Any, phase: Any = None, found: Any = None) -> Any:
        model, objective = build_model(run, suite, phase, found)
        if "pretrained" in (found or {}):  # it begins with what another phase has learned
            return model, objective

        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dtype == torch.float64:
                    parameter.mul_(1 + size * _noise(parameter))
        return model, objective

    return build


def _drawn(draw: Callable[..., Tensor], size: float) -> Callable[..., Tensor]:
    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Tensor:
        values = draw(*args, **kwargs)
        of_a_test = Path(sys._getframe(1).f_code.co_filename).is_relative_to(_TESTS)
        if not of_a_test or values.dtype != torch.float64 or values.requires_grad or values.device.type != "cpu":
            return values
        return values * (1 + size * _noise(values))

    return drawn


def _noise(values: Tensor) -> Tensor:
    return torch.empty(values.shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(5))
