"""A device that is none: tensors that say they are on `gpu:0` while their numbers lie on the host.

A stand-in for an accelerator on a machine without one. Operations run, with their real results, so that what a program
does with a number that it brings to the host (a step skipped, a solver's answer, a task without labels) is what it
would do; and what would cost or fail on a real device is written down, with the line that asked for it:

* `sync`: the host waits for the device. `.item()`, copies to the host, results whose shape depends on values, errors
  of matrix decompositions, and copies from the host that do not say `non_blocking`.
* `h2d`: a copy from the host.
* an operation on tensors of both places that a device would refuse raises `WrongDevice`.

Importing this changes torch for the whole process: a test that wants it starts a process of its own.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode


class _Backend(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


NAME = "gpu"
backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())


@functools.cache
def _autocast() -> list[torch.library.Library]:
    """Mixed precision in what matters most; torch has rules for its own devices alone."""
    key = "AutocastPrivateUse1"
    rest, linear = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")

    def in_half(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        half = torch.get_autocast_dtype(NAME)
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            casts = [None if tensor is None else tensor.to(half) for tensor in (inputs, weight, bias)]
            return torch.nn.functional.linear(*casts)

    rest.fallback(torch.library.fallthrough_kernel, key)
    linear.impl("linear", in_half, key)
    return [rest, linear]


_autocast()
GPU, HOST = torch.device(NAME, 0), torch.device("cpu")
ROOT = Path(__file__).parents[2]

# Results whose shape depends on values, and checks whose outcome the host has to know. (`index` with a mask: below.)
_DYNAMIC = {
    "aten::_coalesce", "aten::_linalg_check_errors", "aten::_unique2", "aten::argwhere", "aten::bincount",
    "aten::equal", "aten::linalg_svd", "aten::_linalg_svd", "aten::masked_select", "aten::nonzero",
    "aten::repeat_interleave.Tensor", "aten::unique_consecutive", "aten::unique_dim",
}  # fmt: skip
_OF_INDICES = {"aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from"}
# Operations that take a tensor of the host by design.
_OF_BOTH = _COPIES | _OF_INDICES | {"aten::_pack_padded_sequence"}


class WrongDevice(Exception):
    """An operation on tensors of both places."""


@dataclass(frozen=True)
class Event:
    kind: str  # "sync" or "h2d"
    what: str  # the operation
    where: str  # path:line of the code that asked for it, and the line
    step: Any  # of the training, as `Watch.step` tells it; None outside of one

    def __str__(self) -> str:
        return f"{self.kind} by {self.what} at {self.where}"


class OnDevice(torch.Tensor):
    """A tensor on the stand-in device; `inner` holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        strided = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        result: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.shape,
            dtype=inner.dtype,
            layout=inner.layout,
            device=GPU,
            **(strided if inner.layout == torch.strided else {}),
        )
        result.inner = inner
        return result

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        raise WrongDevice(f"{func} outside of `Watch`")

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({tuple(self.shape)}, {self.dtype})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    # Whoever has these two is exchanged as a whole when a module moves, so that its parameters stay the same objects.
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> OnDevice:
        return OnDevice(inner["inner"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.inner.__reduce_ex__(protocol)  # a checkpoint is read onto the host


class Watch(TorchDispatchMode):
    """Runs everything that is on the stand-in device, and keeps the events.

    of_step: functions; what happens within them belongs to a step, which `step` tells.
    """

    def __init__(self, of_step: Sequence[Callable[..., Any]] = ()) -> None:
        super().__init__()
        self.of_step = {function.__code__ for function in of_step}
        self.step: Callable[[], Any] = lambda: 0
        self.events: list[Event] = []

    def __enter__(self) -> Watch:
        # torch.tensor(…, device=…) makes a tensor on the host and copies it; with this, within sight.
        self._lifts = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        # A backend in Python has no generators of its own: numbers are drawn on the host.
        self._generator = torch.Generator
        torch.Generator = _Generator  # type: ignore[misc]
        # Backward passes in the thread that asks for them: its stack tells who did.
        self._threads = torch.autograd.set_multithreading_enabled(False)
        self._threads.__enter__()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._threads.__exit__(kind, error, trace)
        torch.Generator = self._generator  # type: ignore[misc]
        torch._C._set_only_lift_cpu_tensors(self._lifts)

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [*_tensors_in(args), *_tensors_in(kwargs)]
        mine = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
        device = kwargs.get("device")
        here = bool(mine) if device is None else torch.device(device).type == NAME
        if not mine and not here:
            return func(*args, **kwargs)
        self._note(func, args, kwargs, tensors, mine, here)
        known = {id(t.inner if isinstance(t, OnDevice) else t): t for t in tensors}
        args, kwargs = _with(_inner, args), _with(_inner, kwargs)
        kernel = _KERNELS.get(func.name(), func)
        found = kernel(*args, **({**kwargs, "device": HOST} if device is not None else kwargs))

        def wrapped(tensor: Tensor) -> Tensor:
            if id(tensor) in known:  # an operation in place
                return known[id(tensor)]
            return OnDevice(tensor) if here else tensor

        if func.name() == "aten::_to_copy" and not here:
            return found.clone() if any(found is t.inner for t in mine) else found
        return _with(wrapped, found)

    def _note(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        mine: list[OnDevice],
        here: bool,
    ) -> None:
        name = func.name()
        others = [tensor for tensor in tensors if not isinstance(tensor, OnDevice)]
        if name in _COPIES:
            self._copy(name, args, kwargs, here)
            return
        if name == "aten::_local_scalar_dense" or name in _DYNAMIC:
            self._event("sync", name)
        if name in _OF_INDICES:
            for index in args[1]:
                if isinstance(index, OnDevice) and index.dtype in (torch.bool, torch.uint8):
                    self._event("sync", f"{name} with a mask")
                elif isinstance(index, Tensor) and not isinstance(index, OnDevice):
                    self._event("h2d", f"{name} with an index of the host")
                    self._event("sync", f"{name} with an index of the host")
        if mine and others and name not in _OF_BOTH:
            # A single number of the host may take part in what is done entry by entry, as an argument of the kernel.
            numbers = all(tensor.ndim == 0 for tensor in others)
            if not (numbers and (torch.Tag.pointwise in func.tags or name.startswith("aten::_foreach_"))):
                shapes = [f"{list(t.shape)} on {t.device.type}" for t in tensors]
                raise WrongDevice(f"{name} of {', '.join(shapes)} at {self._where()}")

    def _copy(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], here: bool) -> None:
        source, onto = (args[1], isinstance(args[0], OnDevice)) if name == "aten::copy_" else (args[0], here)
        blocking = not (kwargs.get("non_blocking") or (name == "aten::copy_" and len(args) > 2 and args[2]))
        of_device = isinstance(source, OnDevice)
        if of_device == onto:
            return
        if onto:
            self._event("h2d", name)
            if blocking:
                self._event("sync", f"{name} from the host that blocks")
        else:
            self._event("sync", f"{name} to the host")

    def _event(self, kind: str, what: str) -> None:
        self.events.append(Event(kind, what, self._where(), self._step()))

    def _step(self) -> Any:
        return self.step() if any(frame.f_code in self.of_step for frame in _frames()) else None

    @staticmethod
    def _where() -> str:
        """The innermost line of this repository's, or else of an optimiser's or anybody's."""
        own = [frame for frame in _frames() if _is_own(frame.f_code.co_filename)]
        frame = next(iter(own), None) or next(f for f in _frames() if "/_python_dispatch" not in f.f_code.co_filename)
        path, line = frame.f_code.co_filename, frame.f_lineno
        shown = Path(path).relative_to(ROOT) if _is_own(path) else path.rpartition("site-packages/")[2]
        return f"{shown}:{line} `{linecache.getline(path, line).strip()}`"


# torch's own trees know every kind of container, and took longer than everything else together.
def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors_in(part)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))


def _with(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """What an operation takes or gives, with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_with(change, part) for part in value])
    if isinstance(value, dict):
        return {key: _with(change, part) for key, part in value.items()}
    return value


def _inner(tensor: Tensor) -> Tensor:
    return tensor.inner if isinstance(tensor, OnDevice) else tensor


class _Generator(torch.Generator):
    def __new__(cls, device: torch.device | str = "cpu") -> _Generator:
        return super().__new__(cls, HOST if torch.device(device).type == NAME else device)


def _lstm_cell(
    of_inputs: Tensor, of_hidden: Tensor, cx: Tensor, input_bias: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = of_inputs + of_hidden
    for extra in (input_bias, bias):
        gates = gates if extra is None else gates + extra
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = workspace.chunk(4, 1)
    grad_hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    at_cell = grad_hy * o * (1 - cy.tanh() ** 2) + (0.0 if grad_cy is None else grad_cy)
    parts = [at_cell * g * i * (1 - i), at_cell * cx * f * (1 - f), at_cell * i * (1 - g**2)]
    of_gates = torch.cat([*parts, grad_hy * cy.tanh() * o * (1 - o)], 1)
    return of_gates, at_cell * f, of_gates.sum(0) if has_bias else None


# What accelerators have kernels for and the host has none.
_KERNELS: dict[str, Callable[..., Any]] = {
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
}


def _frames() -> Iterator[FrameType]:
    """The frames outside of this file, from the innermost."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            yield frame
        frame = frame.f_back


@functools.cache
def _is_own(path: str) -> bool:
    return any(path.startswith(f"{ROOT / folder}/") for folder in ("mtlscale", "pipelines", "tests/plugins"))
