"""The common parts of objectives that align a labelled source stream with an unlabelled target stream.

A discrepancy is a value of the whole step's batch: with several workers, each gathers the rows of all and
differentiates its own. A discriminator reads its worker's rows alone; its terms add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures import Architecture, MultiTaskModule
from mtlscale.config import TaskSuite, UserError, knob, nearest
from mtlscale.data import Batch, Outputs, Samples, Workers
from mtlscale.objectives.contract import Objective, ObjectiveModule

if TYPE_CHECKING:
    from mtlscale.config import TrainingSpec

_AT = "where features are taken: representation, prediction, or any module of the network, such as encoder.layers.1"


@dataclass(frozen=True)
class DomainBatch:
    """The rows of one domain in a step.

    Holds features [N, q], probabilities of the classes [N, k] if they are needed, and the number of rows of all workers
    together.
    """

    features: Tensor
    classes: Tensor | None
    total: int


class Alignment(Objective):
    """Base class of objectives that align source and target domain at one point of the network, with strength λ."""

    strength: float = knob(1.0, low=0.0, search=(0.1, 1.0, 10.0), help="λ; 0: measured only")
    at: str = knob("representation", help=_AT)

    def require(self, architecture: Architecture, training: TrainingSpec) -> None:
        if training.batch_size < 2:
            raise UserError(
                f"{self.name} compares the samples of a batch: of one sample there is nothing to compare; set "
                "training.batch_size to 2 or more, 128 is usual"
            )

    def check(self, suite: TaskSuite) -> None:
        """Raise `UserError` if the suite has no target domain."""
        if not suite.unlabelled:
            raise UserError(
                f"{self.name} draws a target domain without labels to its source, and {suite.name} has none; choose "
                "office_caltech10, office31, office_home or visda"
            )


class AlignmentModule(ObjectiveModule):
    """Objective that watches one point of the network in every training step.

    `measured` is the last epoch's mean of the quantity that is minimised there.
    """

    whole_step = True
    probabilities = False  # whether it reads the probabilities of the classes

    def __init__(self, recipe: Alignment, model: MultiTaskModule) -> None:
        super().__init__()
        self.strength, self.at, self.label = recipe.strength, recipe.at, recipe.name
        self.predicts = self.probabilities or self.at == "prediction"
        self.measured = 0.0
        self._seen: list[Tensor] = []  # outputs of the watched module
        self._value: Tensor | None = None  # value of this step
        self._values: list[Tensor] = []  # values of the epoch's steps, on the device until it ends
        if self.at not in ("representation", "prediction"):
            _module(model, self.at, self.label).register_forward_hook(self._watch)

    def of_step(self, source: DomainBatch, target: DomainBatch, workers: Workers) -> tuple[Tensor | None, Tensor]:
        """Return this worker's term, and its part of the value whose mean is `measured`."""
        raise NotImplementedError

    def step_term(self, seen: Sequence[tuple[Batch, Outputs]], workers: Workers) -> Tensor | None:
        features = [self._features(index, outputs, len(seen)) for index, (_, outputs) in enumerate(seen)]
        self._seen.clear()

        def side(labelled: bool) -> DomainBatch:
            indices = [index for index, (batch, _) in enumerate(seen) if batch.labelled is labelled]
            classes = [_probabilities(seen[index][1]) for index in indices] if self.probabilities else []
            total = sum(seen[index][0].total for index in indices)
            joined = torch.cat([features[index] for index in indices])
            return DomainBatch(joined, torch.cat(classes) if classes else None, total)

        source, target = side(True), side(False)
        if not source.total or not target.total:
            return None
        term, value = self.of_step(source, target, workers)

        self._value = value.detach().to(torch.float64)
        return term

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
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
        """Return the mean of the value over the epoch's steps."""
        return {f"measured.{self.label}": self.measured}

    def _watch(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if module.training and torch.is_grad_enabled():
            self._seen.append(output)

    def _features(self, place: int, outputs: Outputs, count: int) -> Tensor:
        """Return the features [B, q] of a stream's batch."""
        value = features_of(self.at, outputs)
        if value is None and self.at == "representation":
            raise UserError(f"{self.label}: this architecture has no shared representation; set `at` to a module")
        if value is None:
            if len(self._seen) < count or not isinstance(self._seen[0], Tensor):
                raise UserError(f"{self.label}: at {self.at} no tensor passes once a batch; name another module")
            value = self._seen[place - count]  # the last ones belong to this step; earlier ones come from other passes
        return value.flatten(1).to(torch.float32 if value.dtype.itemsize < 4 else value.dtype)


class Discrepancy(Alignment):
    """Base class of objectives that add λ times a distance of the whole step's batch to the losses."""

    reads_classes: ClassVar[bool] = False  # whether the distance reads the probabilities of the classes

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        """Return the distance of all workers' rows, a scalar that training minimises."""
        raise NotImplementedError

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return DiscrepancyModule(self, model)


class DiscrepancyModule(AlignmentModule):
    """Objective that minimises the distance of a recipe."""

    def __init__(self, recipe: Discrepancy, model: MultiTaskModule) -> None:
        self.probabilities = recipe.reads_classes
        super().__init__(recipe, model)
        self._distance = recipe.distance

    def of_step(self, source: DomainBatch, target: DomainBatch, workers: Workers) -> tuple[Tensor | None, Tensor]:
        value = self._distance(*(_of_all(side, workers) for side in (source, target)))
        return value * self.strength if self.strength else None, value / workers.size


def _of_all(side: DomainBatch, workers: Workers) -> DomainBatch:
    classes = None if side.classes is None else gathered(side.classes, workers)
    return DomainBatch(gathered(side.features, workers), classes, side.total)


def gathered(values: Tensor, workers: Workers) -> Tensor:
    """Return the rows of all workers, in their order; the gradient reaches this worker's own rows."""
    if workers.size == 1:
        return values
    counts = workers.gather(torch.tensor([len(values)], device=values.device)).flatten().tolist()
    start = sum(counts[: workers.rank])
    before, after = (values.new_zeros(n, *values.shape[1:]) for n in (start, sum(counts) - start - len(values)))
    return workers.share(torch.cat([before, values, after]))


def features_of(at: str, outputs: Outputs) -> Tensor | None:
    """Return the features [B, q] of a batch's outputs; None if `at` names a module.

    Args:
        at: "representation", "prediction" (predictions in the order of the tasks' names), or a module's name.
    """
    if at == "prediction":
        return torch.cat([prediction for _, prediction in sorted(outputs.predictions.items())], 1)
    return outputs.representation if at == "representation" else None


def sizes_of(recipe: Alignment, suite: TaskSuite, model: MultiTaskModule) -> Sequence[int]:
    """Return the number of features at the watched point, measured with one blank sample.

    There are several numbers if it changes from epoch to epoch.
    """
    if recipe.at == "representation" and (several := model.representation_sizes()):
        return several

    captured: list[Any] = []
    hook = None
    if recipe.at not in ("representation", "prediction"):
        hook = _module(model, recipe.at, recipe.name).register_forward_hook(lambda _, __, out: captured.append(out))

    dtype = torch.int64 if suite.input_kind == "tokens" else torch.get_default_dtype()
    task, training = suite.tasks[0].name, model.training
    stream = task if suite.inputs == "per_task" else "all"
    blank = Batch(stream, Samples(torch.zeros(1, *suite.input_shape, dtype=dtype), {task: torch.zeros(1)}), 1)

    with torch.no_grad():
        outputs = model.eval()(blank)
    model.train(training)
    if hook is not None:
        hook.remove()

    value = features_of(recipe.at, outputs)
    with suppress(IndexError):
        value = captured[0] if value is None else value
    if not isinstance(value, Tensor):
        raise UserError(f"{recipe.name}: at {recipe.at} there are no features; set `at` to another module")
    return [value.flatten(1).shape[1]]


def _probabilities(outputs: Outputs) -> Tensor:
    """Return the probabilities [B, classes of all tasks], in the order of the tasks' names."""
    return torch.cat([prediction.softmax(1) for _, prediction in sorted(outputs.predictions.items())], 1)


def _module(model: nn.Module, name: str, label: str) -> nn.Module:
    modules: dict[str, nn.Module] = {module: child for module, child in model.named_modules() if module}
    if name not in modules:
        raise UserError(f"{label}: the network has no module {name!r}: {nearest(name, list(modules))}")
    return modules[name]
