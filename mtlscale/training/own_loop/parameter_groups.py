"""The parameters that a training loop of one's own hands over: what tasks share, and each task's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mtlscale.config import UserError
from mtlscale.training.gradients.per_task import Partition

Parameters = nn.Module | Iterable[nn.Parameter]
Heads = Sequence[Parameters] | Mapping[str, Parameters] | nn.ModuleDict | nn.ModuleList

_SERVED = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)


class ParameterGroups:
    """The groups of parameters as they were handed over, which may be read again where modules have changed.

    Attributes:
        names: The tasks' names; their positions where they have none.

    Raises:
        UserError: If the numbers of heads and tasks differ, or there is no task.
    """

    def __init__(
        self, shared: Parameters | Sequence[nn.Module], heads: Heads | None, tasks: int | Sequence[str] | None
    ) -> None:
        self.names = _names(heads, tasks)
        if not isinstance(shared, nn.Module | Iterable):
            raise UserError(f"shared is a {type(shared).__name__}; give a module, or its parameters")
        self._shared = shared if isinstance(shared, nn.Module) else list(shared)
        self._heads = heads
        self._listed = [None if isinstance(head, nn.Module) else list(head) for head in self._entries()]

    def read(self) -> Partition:
        """Return the trainable parameters by whose they are.

        Raises:
            UserError: If one is in two groups or of a kind that balancers do not serve, or there is none.
        """
        modules, shared, own = self._read()
        self._check_places(shared, own)

        trainable = [p for p in shared if p.requires_grad]
        own = [[p for p in group if p.requires_grad] for group in own]
        everything = [*trainable, *(p for group in own for p in group)]
        if not everything:
            raise UserError("there is no parameter that requires gradients in shared and heads; give the network's")
        devices = list(dict.fromkeys(str(parameter.device) for parameter in everything))
        if len(devices) > 1:
            raise UserError(
                f"the parameters lie on {' and '.join(devices)}; balancers multiply gradients on one device"
            )

        index_of = {id(p): index for index, p in enumerate(trainable)}
        decided = [[index_of[id(p)] for p in module if p.requires_grad] for module in modules]
        return Partition(trainable, own, partial=True, modules=decided if len(decided) > 1 else [])

    def sizes(self) -> dict[str, list[list[int]]]:
        """Return the shapes of all parameters by group, frozen ones too."""
        _, shared, own = self._read()
        groups = {"shared": shared} | {
            f"the head of task {name}": group for name, group in zip(self.names, own, strict=True)
        }
        return {label: [list(p.shape) for p in group] for label, group in groups.items()}

    def _read(self) -> tuple[list[list[nn.Parameter]], list[nn.Parameter], list[list[nn.Parameter]]]:
        """Return the parameters of each shared module, of all shared ones, and of each head; each once in a group."""
        groups = [self._shared] if isinstance(self._shared, nn.Module) else self._shared
        of_modules = bool(groups) and all(isinstance(module, nn.Module) for module in groups)
        modules = [_listed(module) for module in groups] if of_modules else []
        shared = [p for module in modules for p in module] if of_modules else _listed(groups)
        entries = self._entries()
        if len(entries) != len(self.names):
            raise UserError(f"heads has {len(entries)} entries now, but there are {len(self.names)} tasks")
        pairs = zip(entries, self._listed, strict=True)
        own = [_listed(head if listed is None else listed) for head, listed in pairs]
        return modules, list(dict.fromkeys(shared)), own

    def _entries(self) -> list[Any]:
        """Return what was handed over for each task; nothing where there are no heads."""
        if self._heads is None or not len(self._heads):
            return [()] * len(self.names)
        return list(self._heads.values() if isinstance(self._heads, Mapping | nn.ModuleDict) else self._heads)

    def _check_places(self, shared: Sequence[nn.Parameter], own: Sequence[Sequence[nn.Parameter]]) -> None:
        """Raise `UserError` where a parameter is in two groups, or is of a kind that is not served."""
        places: dict[int, tuple[str, str]] = {}
        heads = [f"the head of task {name}" for name in self.names]
        for label, group in (("shared", shared), *zip(heads, own, strict=True)):
            for position, parameter in enumerate(group):
                place = f"{label} (number {position}, of shape {_shape(parameter)})"
                _check_kind(parameter, place)
                first = places.setdefault(id(parameter), (label, place))
                if first[1] != place:
                    mend = "leave it in one of them" if first[0] == "shared" else "put it into shared alone"
                    raise UserError(f"a parameter is in two groups: {first[1]} and {place}; {mend}")


def _names(heads: Any, tasks: int | Sequence[str] | None) -> list[str]:
    """Return the tasks' names; their positions where they have none."""
    if heads is not None and not hasattr(heads, "__len__"):
        raise UserError(f"heads is a {type(heads).__name__}; give a list with a module, or its parameters, per task")
    if isinstance(heads, Mapping | nn.ModuleDict):
        names = [str(name) for name in heads]
    elif heads is not None and (tasks is None or isinstance(tasks, int)):
        names = [str(task) for task in range(len(heads))]
    else:
        names = [str(task) for task in range(tasks)] if isinstance(tasks, int) else [str(name) for name in tasks or ()]

    if not names:
        raise UserError("there are no tasks: give heads, one group of parameters per task, or tasks, their number")
    given = len(names) if tasks is None else tasks if isinstance(tasks, int) else len(tasks)
    if given != len(names) or (heads is not None and len(heads) != len(names)):
        raise UserError(f"heads has {len(heads or ())} entries, tasks {given}; give one group of parameters per task")
    return names


def _listed(parameters: Any) -> list[nn.Parameter]:
    """Return the parameters of a module or an iterable, each once."""
    if isinstance(parameters, nn.Module):
        _check_wrapper(parameters)
        return list(parameters.parameters())
    listed = list(parameters)
    for parameter in listed:
        if not isinstance(parameter, Tensor) or not parameter.is_leaf:
            raise UserError(f"shared and heads hold parameters or modules, not a {type(parameter).__name__}")
    return list(dict.fromkeys(listed))


def _check_wrapper(module: nn.Module) -> None:
    """Raise `UserError` for a module whose parameters are cut into pieces by a wrapper for several workers."""
    for part in module.modules():
        if type(part).__name__ == "FullyShardedDataParallel":
            raise UserError(
                "the network is wrapped in FullyShardedDataParallel, which leaves a piece of each parameter to a "
                "worker, and balancers need whole gradients: give the network itself"
            )


def _check_kind(parameter: nn.Parameter, place: str) -> None:
    """Raise `UserError` for a parameter of a kind that is not served; `place` says which it is."""
    kind = None
    if is_lazy(parameter):
        raise UserError(f"{place} has no size yet: run the network once on a batch, then make the balancer")
    if type(parameter).__name__ in ("DTensor", "FlatParameter") or hasattr(parameter, "_local_tensor"):
        kind = f"a {type(parameter).__name__}, of which each worker has a piece; balancers need whole gradients"
    elif parameter.layout != torch.strided:
        kind = f"a sparse matrix ({str(parameter.layout).removeprefix('torch.')}), whose gradients cannot be multiplied"
    elif parameter.device.type == "meta":
        kind = "on the device meta and has no numbers"
    elif parameter.requires_grad and parameter.dtype not in _SERVED:
        kind = f"of the type {str(parameter.dtype).removeprefix('torch.')}, in which there is no arithmetic"
    if kind is not None:
        raise UserError(f"{place} is {kind}; give dense floating-point parameters on one device")


def _shape(parameter: nn.Parameter) -> str:
    return "none" if is_lazy(parameter) else str(list(parameter.shape))
