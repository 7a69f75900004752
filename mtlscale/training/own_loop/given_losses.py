"""The losses of a micro-batch as a training loop hands them over: checked, and turned into sums."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mtlscale.config import UserError
from mtlscale.data import Losses

PerTask = Sequence[Any] | Mapping[str, Any]  # one entry per task, in their order or by name

_MARK = "_mtlscale_differentiated"  # attribute of a loss: its graph, once it was differentiated and kept
_LONGEST_CHAIN = 16  # nodes between a loss and the multiplication by a scaler's scale


@dataclass(frozen=True)
class GivenLosses:
    """The losses of the tasks that a micro-batch has.

    Attributes:
        tasks: Their positions.
        means: The losses as they were handed over.
        sums: The losses times their counts.
        counts: The numbers of terms that they are the means of.
        features: What each task's head reads; None where it was not handed over.
        one: Whether the tasks have their features in common.
        empty: The tasks whose loss is the mean of no terms.
    """

    tasks: list[int]
    means: list[Tensor]
    sums: list[Tensor]
    counts: list[float]
    features: list[Tensor | None]
    one: bool
    empty: list[int]

    def batches(self, *, keep: bool = False) -> list[Losses]:
        """Return one batch, or one per task where tasks have inputs of their own; `keep` the graph for other uses."""
        counts = self._counts()
        if self.one or not self.features or self.features[0] is None:
            z = self.features[0] if self.features else None
            branches = [] if z is None else [z] * len(self.sums)
            return [Losses(self.tasks, self.sums, counts, None, z, branches, keep)]

        rows = zip(self.tasks, self.sums, counts, self.features, strict=True)
        return [
            Losses([task], [total], [count], None, z, [] if z is None else [z], keep) for task, total, count, z in rows
        ]

    def _counts(self) -> list[Tensor]:
        if not self.sums:
            return []
        device = self.sums[0].device
        if all(count == 1 for count in self.counts):
            return [torch.ones((), dtype=torch.float64, device=device)] * len(self.counts)
        return list(torch.tensor(self.counts, dtype=torch.float64, device=device).unbind())

    def mark(self) -> None:
        """Note at each loss that its graph was differentiated, for graphs that are kept although nobody asked."""
        for loss in self.means:
            setattr(loss, _MARK, loss.grad_fn)


def given_losses(
    names: Sequence[str],
    losses: PerTask,
    counts: PerTask | None = None,
    features: Tensor | PerTask | None = None,
    *,
    scaler: torch.amp.GradScaler | None = None,
    detached: bool = False,
) -> GivenLosses:
    """Return the losses of the tasks that are there: those whose loss is not None and whose count is not 0.

    Args:
        losses: A loss per task, the mean of its terms.
        counts: The numbers of terms; ones by default.
        features: What the heads read.
        scaler: The gradient scaler, which is not to have scaled the losses.
        detached: Whether the losses need no graph.

    Raises:
        UserError: If a loss is no number with a graph, if it was scaled or differentiated before, or if an entry is
            missing.
    """
    by_task = _by_task(names, "losses", losses)
    terms = None if counts is None else _counts(names, counts, by_task)
    present = list(by_task) if terms is None else [task for task in by_task if terms[task]]
    numbers = [1.0] * len(present) if terms is None else [terms[task] for task in present]

    means, sums = [by_task[task] for task in present], []
    for task, loss, number in zip(present, means, numbers, strict=True):
        _check(loss, names[task], detached=detached)
        if scaler is not None and not detached and _is_scaled(loss, scaler):
            raise UserError(
                f"the loss of task {names[task]} was scaled by the GradScaler: hand over the loss itself; the balancer "
                "leaves scaled gradients"
            )
        mean = loss.detach() if detached else loss
        mean = mean.reshape(()) if mean.ndim else mean
        sums.append(mean if number == 1 else mean * number)

    empty = [task for task in by_task if terms is not None and not terms[task]]
    at_heads = _features(names, features, present)
    return GivenLosses(present, means, sums, numbers, at_heads, isinstance(features, Tensor), empty)


def _check(loss: Any, name: str, *, detached: bool) -> None:
    """Raise `UserError` where a loss is not one number, or has no graph to differentiate."""
    if not isinstance(loss, Tensor):
        raise UserError(f"the loss of task {name} is a {type(loss).__name__}; it should be one number: take the mean")
    if loss.numel() != 1:
        raise UserError(
            f"the loss of task {name} has the shape {list(loss.shape)}; it should be one number: take the mean"
        )
    if not loss.is_floating_point():
        kind = str(loss.dtype).removeprefix("torch.")
        raise UserError(f"the loss of task {name} is of the type {kind}; it should be a real number")
    if detached:
        return
    if not loss.requires_grad:
        raise UserError(f"the loss of task {name} is detached from its graph: compute it without no_grad and detach")
    if getattr(loss, _MARK, None) is loss.grad_fn and loss.grad_fn is not None:
        raise UserError(DIFFERENTIATED)


DIFFERENTIATED = (
    "a loss's graph was differentiated before: compute all losses of a step in one forward pass, and call backward "
    "once, or earlier calls with retain_graph=True"
)


def check_no_scaler(names: Sequence[str], given: GivenLosses) -> None:
    """Raise `UserError` where a loss was multiplied by the scale of a gradient scaler that the balancer was not given.

    It is recognised by its memory, or by its value on the CPU, among all scalers of the process.
    """
    if not any(True for loss in given.means for _ in _factors(loss)):
        return
    known = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.amp.GradScaler)]
    scalers = [scaler for scaler in known if scaler.is_enabled()]
    for task, loss in zip(given.tasks, given.means, strict=True):
        if any(_is_scaled(loss, scaler) for scaler in scalers):
            raise UserError(
                f"the loss of task {names[task]} was scaled by a GradScaler that the balancer was not given: make the "
                "balancer with scaler=, and hand over the losses themselves"
            )


def _is_scaled(loss: Tensor, scaler: torch.amp.GradScaler) -> bool:
    """Return whether a loss was multiplied by the scaler's scale, perhaps before a mean or a division."""
    scale = scaler._scale
    return scale is not None and any(_is_same_number(factor, scale) for factor in _factors(loss))


def _factors(loss: Tensor) -> Iterator[Tensor]:
    """Yield the single numbers that a loss was multiplied by, from the loss to where its graph forks."""
    node: Any = loss.grad_fn
    for _ in range(_LONGEST_CHAIN):
        if node is None:
            return
        if node.name() == "MulBackward0":
            saved = (node._saved_self, node._saved_other)
            yield from (factor for factor in saved if isinstance(factor, Tensor) and factor.numel() == 1)
        following = [entry for entry, _ in node.next_functions if entry is not None]
        node = following[0] if len(following) == 1 else None


def _is_same_number(factor: Tensor, scale: Tensor) -> bool:
    if factor.data_ptr() == scale.data_ptr():
        return True
    # Values on a device would have to be copied to be compared.
    return factor.device.type == "cpu" and scale.device.type == "cpu" and factor.item() == scale.item()


def _features(names: Sequence[str], features: Tensor | PerTask | None, present: Sequence[int]) -> list[Tensor | None]:
    if features is None:
        return [None] * len(present)
    if isinstance(features, Tensor):
        by_task: Mapping[int, Any] = dict.fromkeys(present, features)
    else:
        by_task = _by_task(names, "features", features)

    for task in present:
        feature = by_task.get(task)
        if isinstance(feature, Tensor) and not feature.requires_grad:
            raise UserError(
                f"the features of task {names[task]} have no graph: hand over the output of the shared part; where "
                "that is frozen or runs in no_grad, leave features out"
            )
        if not (isinstance(feature, Tensor) and feature.grad_fn is not None):
            raise UserError(f"the features of task {names[task]} are no tensor with a graph; hand over the output")
        if feature.is_complex():
            raise UserError(f"the features of task {names[task]} are complex; leave features out")
    return [by_task[task] for task in present]


def _counts(names: Sequence[str], counts: PerTask, losses: Mapping[int, Any]) -> dict[int, float]:
    """Return the numbers of terms of the losses on the host, in one copy from each device."""
    by_task = _by_task(names, "counts", counts)
    missing = [names[task] for task in losses if task not in by_task]
    if missing:
        raise UserError(f"counts have no entry for task {missing[0]}, which has a loss")

    tensors = {task: value for task, value in by_task.items() if isinstance(value, Tensor) and value.numel() == 1}
    if tensors:
        copied = torch.stack([value.detach().reshape(()).to(torch.float64) for value in tensors.values()]).tolist()
        by_task |= dict(zip(tensors, copied, strict=True))

    result = {}
    for task in losses:
        try:
            result[task] = float(by_task[task])
        except (TypeError, ValueError, RuntimeError):
            result[task] = math.nan
        if not 0 <= result[task] < math.inf:
            raise UserError(
                f"the count of task {names[task]} is {by_task[task]!r}; it should be the number of terms of its loss"
            )
    return result


def _by_task(names: Sequence[str], what: str, values: PerTask) -> dict[int, Any]:
    if isinstance(values, Mapping):
        unknown = [name for name in values if name not in names]
        if unknown:
            raise UserError(f"{what} name a task {unknown[0]!r}; the tasks are {', '.join(names)}")
        pairs = [(task, values.get(name)) for task, name in enumerate(names)]
    else:
        try:
            entries = list(values)
        except TypeError:
            raise UserError(
                f"{what} are a {type(values).__name__}; give a list with one entry per task, or a mapping from names"
            ) from None
        if len(entries) != len(names):
            raise UserError(f"{what} have {len(entries)} entries, but there are {len(names)} tasks; None is a gap")
        pairs = list(enumerate(entries))
    return {task: value for task, value in pairs if value is not None}
