"""What is differentiated in a search for cells: the losses of what chooses, on validation, and those of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures._cell_supernet import CellSupernet
from mtlscale.architectures._phases import NetworkSource, Supervised
from mtlscale.architectures._unrolled import hessian_product, look_ahead, steps_of, unmoved
from mtlscale.data import Batch, Losses, Samples, Workers
from mtlscale.encoders import expected
from mtlscale.spec import MISSING_CLASS, UserError

STREAM = "ood"
PIXELS = 255.0
OVERSTEP = 1.25  # of ε that the step of FGSM has from its random start


def from_uniform(logits: Tensor) -> Tensor:
    """[B, k] -> [B]: KL(uniform ‖ softmax), -log k - (1/k) Σ_c log p_c."""
    return -math.log(logits.shape[1]) - logits.log_softmax(1).mean(1)


def attacked(pixels: Tensor, gradient: Tensor, start: Tensor, epsilon: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """FGSM from a random start: pixels and start [B, C, H, W] in ±1, epsilon, low and high [C, 1, 1] -> images no
    further than epsilon away and within low and high."""
    moved = epsilon * start + OVERSTEP * epsilon * gradient.sign()
    bounded = torch.maximum(torch.minimum(moved, epsilon), -epsilon)
    return torch.maximum(torch.minimum(pixels + bounded, high), low)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The losses of what chooses. targets: name -> (costs [2, 14, 8], the target, what one of its units is); ood: the
    factor of the loss on images from elsewhere, None: none; epsilon: of attacks, in pixels' range 1, None: none;
    over_classes: the divergence over the number of classes."""

    second: bool = False
    ood: float | None = None
    epsilon: float | None = None
    targets: Mapping[str, tuple[Tensor, float, float]] = field(default_factory=dict)
    over_classes: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        found = ["validation"]
        found += [] if self.ood is None else [STREAM]
        found += [] if self.epsilon is None else ["adversarial"]
        return (*found, *self.targets)


@dataclass
class Measured:
    """A loss on this worker's samples: their sum, how many, and gradients of the sum by the choices and, where it is
    asked for, by the weights."""

    total: Tensor
    count: Tensor
    choices: list[Tensor]
    weights: list[Tensor] | None = None


class ChoiceSource(NetworkSource):
    """The losses of what chooses. Their gradients are made here: one backward pass gives the attack's direction, too,
    and the second order adds its correction. What is handed on has these gradients and no graph behind it."""

    of_tasks = False

    def __init__(self, model: CellSupernet, wanted: Wanted) -> None:
        self.model, self.wanted, self.names = model, wanted, wanted.names
        self._train: Sequence[Sequence[Batch]] = ()
        self._optimizer: torch.optim.Optimizer | None = None

    def bind(self, supervised: Supervised, amp: str) -> None:
        super().bind(supervised, amp)
        if amp == "fp16":
            raise UserError("a search for cells scales no gradients: set amp to bf16 or off")
        there = self.model.choices()[0]
        self._costs = {name: costs.to(there) for name, (costs, _, _) in self.wanted.targets.items()}

    def look_at(self, micros: Sequence[Sequence[Batch]], optimizer: torch.optim.Optimizer) -> None:
        self._train, self._optimizer = micros, optimizer

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        with self.model.statistics_kept():
            found = self._ahead(micro) if self.wanted.second else self._measured(micro, weights=False)
        choices = self.model.choices()
        for place, name in enumerate(self.names):
            if name not in found:
                continue
            each = found[name]
            total = each.total
            for choice, gradient in zip(choices, each.choices, strict=True):
                total = total + ((choice - choice.detach()) * gradient).sum()
            yield Losses([place], [total], [each.count])

    # -- first order -----------------------------------------------------------------------------------------------

    def _measured(self, micro: Sequence[Batch], weights: bool) -> dict[str, Measured]:
        found: dict[str, Measured] = {}
        for batch in micro:
            if batch.labelled:
                found |= self._on_validation(batch, weights)
            elif batch.stream == STREAM and self.wanted.ood is not None:
                found[STREAM] = self._elsewhere(batch, weights)
        for name, (_, target, unit) in self.wanted.targets.items():
            loss = (expected(self._costs[name], self.model.probabilities()) / unit - target).abs()
            of_weights = [torch.zeros_like(p) for p in self.model.weights()] if weights else None
            one = torch.ones((), dtype=torch.float64, device=loss.device)
            found[name] = Measured(loss.detach(), one, self._by(loss, self.model.choices()), of_weights)
        return found

    def _on_validation(self, batch: Batch, weights: bool) -> dict[str, Measured]:
        pixels, aside = self.model.pixels(batch.inputs).detach(), list[Tensor]()
        if self.wanted.epsilon is not None:
            aside = [pixels.requires_grad_()]
        total, count = self._cross_entropy(batch, pixels)
        measured, (*given,) = self._differentiated(total, count, weights, aside)
        found = {"validation": measured}
        if self.wanted.epsilon is not None:
            model, draws = self.model, self.model.draws
            draws.begin(batch)
            start = 2 * draws(pixels[0].numel() if len(pixels) else 0, pixels).T.reshape(pixels.shape) - 1
            epsilon = self.wanted.epsilon * PIXELS / model.std
            low, high = -model.mean / model.std, (PIXELS - model.mean) / model.std
            there = attacked(pixels.detach(), given[0], start.to(pixels.dtype), epsilon, low, high)
            found["adversarial"] = self._differentiated(*self._cross_entropy(batch, there), weights)[0]
        return found

    def _elsewhere(self, batch: Batch, weights: bool) -> Measured:
        outputs = self.supervised.forward(replace(batch, predict=(self.model.task,)))
        logits = outputs.predictions[self.model.task]
        assert self.wanted.ood is not None
        factor = self.wanted.ood / (logits.shape[1] if self.wanted.over_classes else 1)
        count = torch.full((), float(len(logits)), dtype=torch.float64, device=logits.device)
        return self._differentiated(factor * from_uniform(logits).sum(), count, weights)[0]

    def _cross_entropy(self, batch: Batch, pixels: Tensor) -> tuple[Tensor, Tensor]:
        task = self.model.task
        target = batch.samples.targets[task]
        outputs = self.supervised.forward(replace(batch, samples=Samples(pixels, batch.samples.targets)))
        prediction = outputs.predictions[task]
        total = functional.cross_entropy(prediction, target.long(), ignore_index=MISSING_CLASS, reduction="sum")
        return total, (target != MISSING_CLASS).sum().to(torch.float64)

    def _differentiated(
        self, total: Tensor, count: Tensor, weights: bool, aside: Sequence[Tensor] = ()
    ) -> tuple[Measured, list[Tensor]]:
        choices, of_weights = self.model.choices(), self.model.weights() if weights else []
        gradients = self._by(total, [*choices, *of_weights, *aside])
        first, last = len(choices), len(choices) + len(of_weights)
        measured = Measured(total.detach(), count, gradients[:first], gradients[first:last] if weights else None)
        return measured, gradients[last:]

    def _by(self, total: Tensor, of: Sequence[Tensor]) -> list[Tensor]:
        found = torch.autograd.grad(total, list(of), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(of, found, strict=True)]

    # -- second order ----------------------------------------------------------------------------------------------

    def _ahead(self, micro: Sequence[Batch]) -> dict[str, Measured]:
        """At the weights after their next step, with what that step depends on the choices."""
        assert self._optimizer is not None
        if not isinstance(self._optimizer, torch.optim.SGD) or len(self._train) != 1:
            raise UserError("order: second looks one step of SGD ahead: set accumulate to 1")
        steps = steps_of(self._optimizer)
        parameters = [step.parameter for step in steps]
        trained = self._trained(parameters)
        total = sum(batch.total for batch in self._train[0] if batch.labelled)
        Workers.current().sum_many(trained)
        with unmoved(parameters):
            look_ahead(steps, [gradient / total for gradient in trained])
            found = self._measured(micro, weights=True)
        order = {id(p): place for place, p in enumerate(self.model.weights())}
        for name, each in found.items():
            if name in self.wanted.targets:
                continue
            assert each.weights is not None
            along = [each.weights[order[id(p)]] for p in parameters]
            count = each.count.clone()
            Workers.current().sum_many([*along, count])
            for v, step in zip(along, steps, strict=True):  # η of each parameter is a factor of what it adds
                v *= step.lr / count.clamp(min=1)
            products = hessian_product(self._trained, parameters, self.model.choices(), along)
            for gradient, product in zip(each.choices, products, strict=True):
                gradient -= product * (count / total)
        return found

    def _trained(self, of: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of the sum of this worker's training losses."""
        for batch in self._train[0]:
            if batch.labelled:
                total, _ = self._cross_entropy(batch, self.model.pixels(batch.inputs))
                return self._by(total, of)
        return [torch.zeros_like(p) for p in of]


class WeightsSource(NetworkSource):
    """The task's loss, and how far predictions for images from elsewhere are from uniform ones, times a factor."""

    of_tasks = True

    def __init__(self, model: CellSupernet, factor: float, over_classes: bool) -> None:
        self.model, self.factor, self.over_classes, self.names = model, factor, over_classes, (model.task,)

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        for batch in micro:
            if batch.labelled:
                yield self.supervised.losses(batch, self.supervised.forward(batch))
            elif batch.stream == STREAM and terms:
                outputs = self.supervised.forward(replace(batch, predict=self.names))
                logits = outputs.predictions[self.model.task]
                factor = self.factor / (logits.shape[1] if self.over_classes else 1)
                yield Losses(extra=factor * from_uniform(logits).sum() / batch.total)

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        return self.supervised.sizes(micros)
