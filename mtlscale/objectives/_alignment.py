"""What the objectives over a labelled source and an unlabelled target stream share: where they look, and how much.

A discrepancy is one of the whole step's batch: with several workers each has the rows of all, and differentiates its
own. A discriminator looks at its worker's rows alone; its terms add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mtlscale.architectures import Architecture, MultiTaskModule
from mtlscale.data import Batch, Outputs, Samples, Workers
from mtlscale.objectives._base import Objective, ObjectiveModule
from mtlscale.spec import TaskSuite, UserError, knob, nearest

if TYPE_CHECKING:
    from mtlscale.spec import TrainingSpec

_AT = "where features are taken: representation, prediction, or any module of the network, such as encoder.layers.1"


@dataclass(frozen=True)
class Side:
    """One domain's rows of a step: features [N, q], probabilities of the classes [N, k] where they are asked for, and
    how many rows all workers have together."""

    features: Tensor
    classes: Tensor | None
    total: int


class Alignment(Objective):
    """Source and target domain are drawn together at one place of the network, with strength λ."""

    strength: float = knob(1.0, low=0.0, search=(0.1, 1.0, 10.0), help="λ; 0: measured only")
    at: str = knob("representation", help=_AT)

    def require(self, architecture: Architecture, training: TrainingSpec) -> None:
        if training.batch_size < 2:
            raise UserError(
                f"{self.name} compares the samples of a batch: of one sample there is nothing to compare; set "
                "training.batch_size to 2 or more, 128 is usual"
            )

    def check(self, suite: TaskSuite) -> None:
        """`UserError` where there is no target domain."""
        if not suite.unlabelled:
            raise UserError(
                f"{self.name} draws a target domain without labels to its source, and {suite.name} has none; choose "
                "office_caltech10, office31, office_home or visda"
            )


class AlignmentModule(ObjectiveModule):
    """Watches one place of the network in every step of training; `measured` is the last epoch's mean of what is made
    small there."""

    whole_step = True
    probabilities = False  # whether it looks at the probabilities of the classes

    def __init__(self, recipe: Alignment, model: MultiTaskModule) -> None:
        super().__init__()
        self.strength, self.at, self.label = recipe.strength, recipe.at, recipe.name
        self.predicts = self.probabilities or self.at == "prediction"
        self.measured = 0.0
        self._seen: list[Tensor] = []  # what came out of the watched module
        self._value: Tensor | None = None  # of this step
        self._values: list[Tensor] = []  # of the epoch's steps, on the device until it ends
        if self.at not in ("representation", "prediction"):
            _module(model, self.at, self.label).register_forward_hook(self._watch)

    def of_step(self, source: Side, target: Side, workers: Workers) -> tuple[Tensor | None, Tensor]:
        """The term of this worker, and this worker's part of the value that `measured` is the mean of."""
        raise NotImplementedError

    def step_term(self, seen: Sequence[tuple[Batch, Outputs]], workers: Workers) -> Tensor | None:
        features = [self._features(place, outputs, len(seen)) for place, (_, outputs) in enumerate(seen)]
        self._seen.clear()

        def side(labelled: bool) -> Side:
            rows = [place for place, (batch, _) in enumerate(seen) if batch.labelled is labelled]
            classes = [_probabilities(seen[place][1]) for place in rows] if self.probabilities else []
            total = sum(seen[place][0].total for place in rows)
            joined = torch.cat([features[place] for place in rows])
            return Side(joined, torch.cat(classes) if classes else None, total)

        source, target = side(True), side(False)
        if not source.total or not target.total:
            return None
        term, value = self.of_step(source, target, workers)
        self._value = value.detach().to(torch.float64)
        return term

    def reduce(self, sum: Callable[[Tensor], Tensor]) -> None:
        if self._value is not None:
            self._values.append(sum(self._value))
            self._value = None

    def discard_step(self) -> None:
        self._value = None

    def added(self) -> float:
        if self._values:
            self.measured = float(torch.stack(self._values).mean())
            self._values.clear()
        return self.strength * self.measured

    def traces(self) -> dict[str, Any]:
        """The mean over the epoch's steps."""
        return {f"measured.{self.label}": self.measured}

    def _watch(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self._seen.append(output)

    def _features(self, place: int, outputs: Outputs, count: int) -> Tensor:
        """[B, q] of a stream's batch."""
        value = features_of(self.at, outputs)
        if value is None and self.at == "representation":
            raise UserError(f"{self.label}: this architecture has no shared representation; set `at` to a module")
        if value is None:
            if len(self._seen) < count or not isinstance(self._seen[0], Tensor):
                raise UserError(f"{self.label}: at {self.at} no tensor passes once a batch; name another module")
            value = self._seen[place - count]  # the last ones: others were of passes nobody asked about
        return value.flatten(1).to(torch.float32 if value.dtype.itemsize < 4 else value.dtype)


class DiscrepancyModule(AlignmentModule):
    """λ times a discrepancy of the whole step's batch is added to the losses."""

    def discrepancy(self, source: Side, target: Side) -> Tensor:
        """A scalar, of all workers' rows."""
        raise NotImplementedError

    def of_step(self, source: Side, target: Side, workers: Workers) -> tuple[Tensor | None, Tensor]:
        value = self.discrepancy(*(_of_all(side, workers) for side in (source, target)))
        return value * self.strength if self.strength else None, value / workers.size


def _of_all(side: Side, workers: Workers) -> Side:
    classes = None if side.classes is None else gathered(side.classes, workers)
    return Side(gathered(side.features, workers), classes, side.total)


def gathered(values: Tensor, workers: Workers) -> Tensor:
    """The rows of all workers, in their order; the gradient reaches this worker's own."""
    if workers.size == 1:
        return values
    counts = workers.gather(torch.tensor([len(values)], device=values.device)).flatten().tolist()
    start = sum(counts[: workers.rank])
    before, after = (values.new_zeros(n, *values.shape[1:]) for n in (start, sum(counts) - start - len(values)))
    return workers.share(torch.cat([before, values, after]))


def features_of(at: str, outputs: Outputs) -> Tensor | None:
    """[B, q] of a batch's outputs, predictions in the order of the tasks' names; None where it is a module's output."""
    if at == "prediction":
        return torch.cat([prediction for _, prediction in sorted(outputs.predictions.items())], 1)
    return outputs.representation if at == "representation" else None


def sizes_of(recipe: Alignment, suite: TaskSuite, model: MultiTaskModule) -> Sequence[int]:
    """How many features there are at the place, asked of the network itself with one blank sample; several where that
    changes from epoch to epoch."""
    if recipe.at == "representation" and (several := model.representation_sizes()):
        return several
    found: list[Any] = []
    hook = None
    if recipe.at not in ("representation", "prediction"):
        hook = _module(model, recipe.at, recipe.name).register_forward_hook(lambda _, __, out: found.append(out))
    kind = torch.int64 if suite.input_kind == "tokens" else torch.get_default_dtype()
    task, training = suite.tasks[0].name, model.training
    stream = task if suite.inputs == "per_task" else "all"
    blank = Batch(stream, Samples(torch.zeros(1, *suite.input_shape, dtype=kind), {task: torch.zeros(1)}), 1)
    with torch.no_grad():
        outputs = model.eval()(blank)
    model.train(training)
    if hook is not None:
        hook.remove()
    value = features_of(recipe.at, outputs)
    with suppress(IndexError):
        value = found[0] if value is None else value
    if not isinstance(value, Tensor):
        raise UserError(f"{recipe.name}: at {recipe.at} there are no features; set `at` to another module")
    return [value.flatten(1).shape[1]]


def _probabilities(outputs: Outputs) -> Tensor:
    """[B, classes of all tasks], in the order of their names."""
    return torch.cat([prediction.softmax(1) for _, prediction in sorted(outputs.predictions.items())], 1)


def _module(model: nn.Module, name: str, label: str) -> nn.Module:
    known: dict[str, nn.Module] = {module: child for module, child in model.named_modules() if module}
    if name not in known:
        raise UserError(f"{label}: the network has no module {name!r}: {nearest(name, list(known))}")
    return known[name]
