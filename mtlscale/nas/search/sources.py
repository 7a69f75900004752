"""The losses of a search for cells: those of the architecture parameters, on validation, and those of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures.hooks import StepView
from mtlscale.architectures.phases import NetworkSource, Supervised
from mtlscale.architectures.structure_search import WEIGHTS
from mtlscale.config import MISSING_CLASS, UserError
from mtlscale.data import Batch, Losses, Samples, Workers
from mtlscale.nas.cells import expected
from mtlscale.nas.search.supernet import CellSupernet
from mtlscale.nas.search.unrolled import hessian_product, look_ahead, steps_of, unmoved

STREAM = "ood"
PIXELS = 255.0
OVERSTEP = 1.25  # length of FGSM's step from its random start, in units of ε


def from_uniform(logits: Tensor) -> Tensor:
    """Return KL(uniform ‖ softmax) of logits [B, k] -> [B], which is -log k - (1/k) Σ_c log p_c."""
    return -math.log(logits.shape[1]) - logits.log_softmax(1).mean(1)


def attacked(pixels: Tensor, gradient: Tensor, start: Tensor, epsilon: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Attack images by FGSM from a random start.

    Args:
        pixels: Images [B, C, H, W].
        gradient: Gradient of the loss by the pixels, [B, C, H, W].
        start: Random start [B, C, H, W] in ±1, in units of epsilon.
        epsilon: Largest change of a pixel, [C, 1, 1].
        low: Smallest pixel, [C, 1, 1].
        high: Largest pixel, [C, 1, 1].

    Returns:
        Images [B, C, H, W] no further than epsilon away and within low and high.
    """
    perturbation = epsilon * start + OVERSTEP * epsilon * gradient.sign()
    bounded = torch.maximum(torch.minimum(perturbation, epsilon), -epsilon)
    return torch.maximum(torch.minimum(pixels + bounded, high), low)


def under_attack(model: CellSupernet, batch: Batch, pixels: Tensor, gradient: Tensor, epsilon: float) -> Tensor:
    """Attack a batch's normalised images [B, C, H, W], with the gradient of its loss by them; epsilon as `epsilon`."""
    draws = model.draws
    draws.begin(batch)
    start = 2 * draws(pixels[0].numel() if len(pixels) else 0, pixels).T.reshape(pixels.shape) - 1
    bound = epsilon * PIXELS / model.std
    low, high = -model.mean / model.std, (PIXELS - model.mean) / model.std
    return attacked(pixels.detach(), gradient, start.to(pixels.dtype), bound, low, high)


def cross_entropy(supervised: Supervised, task: str, batch: Batch, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of the task's cross entropy for these images in place of the batch's, and its number of labels."""
    target = batch.samples.targets[task]
    outputs = supervised.forward(replace(batch, samples=Samples(pixels, batch.samples.targets)))
    total = functional.cross_entropy(
        outputs.predictions[task], target.long(), ignore_index=MISSING_CLASS, reduction="sum"
    )
    return total, (target != MISSING_CLASS).sum().to(torch.float64)


@dataclass(frozen=True, kw_only=True)
class ArchitectureLosses:
    """The losses that the architecture parameters learn from.

    Attributes:
        second: Whether gradients are of second order, which looks one step of the weights ahead.
        ood: Factor of the loss on out-of-distribution images; None: there is no such loss.
        epsilon: Bound of attacks, for pixels in a range of 1; None: there are no attacks.
        targets: Name -> (costs [2, 14, 8], the target in units, the size of a unit).
        over_classes: Whether the divergence is divided by the number of classes.
    """

    second: bool = False
    ood: float | None = None
    epsilon: float | None = None
    targets: Mapping[str, tuple[Tensor, float, float]] = field(default_factory=dict)
    over_classes: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        loss_names = ["validation"]
        loss_names += [] if self.ood is None else [STREAM]
        loss_names += [] if self.epsilon is None else ["adversarial"]
        return (*loss_names, *self.targets)


@dataclass
class Measured:
    """The value of a loss on this worker's samples, with its gradients.

    Attributes:
        total: Sum of the loss over the samples.
        count: Number of samples.
        choices: Gradients of the sum by the architecture parameters.
        weights: Gradients of the sum by the weights, if they were asked for.
    """

    total: Tensor
    count: Tensor
    choices: list[Tensor]
    weights: list[Tensor] | None = None


class ChoiceSource(NetworkSource):
    """The source of the architecture parameters' losses.

    Their gradients are computed here: one backward pass also gives the attack's direction, and the second order adds
    its correction. The losses that are yielded have these gradients and no graph behind them.
    """

    of_tasks = False

    def __init__(self, model: CellSupernet, losses: ArchitectureLosses) -> None:
        self.model, self.losses, self.names = model, losses, losses.names
        self.unlabelled = losses.ood is not None
        self._train: Sequence[Sequence[Batch]] = ()
        self._optimizer: torch.optim.Optimizer | None = None

    def bind(self, supervised: Supervised, amp: str) -> None:
        super().bind(supervised, amp)
        if amp == "fp16":
            raise UserError("a search for cells scales no gradients: set amp to bf16 or off")
        reference = self.model.choices()[0]
        self._costs = {name: costs.to(reference) for name, (costs, _, _) in self.losses.targets.items()}

    def before_step(self, step: StepView) -> None:
        """Take the micro-batches and the optimiser of the weights' turn, for the second order."""
        if self.losses.second:
            self._train, self._optimizer = step.turns[WEIGHTS]

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        with self.model.statistics_kept():
            losses = self._unrolled_losses(micro) if self.losses.second else self._measured(micro, weights=False)

        choices = self.model.choices()
        for index, name in enumerate(self.names):
            if name not in losses:
                continue
            measured = losses[name]
            total = measured.total
            for choice, gradient in zip(choices, measured.choices, strict=True):
                total = total + ((choice - choice.detach()) * gradient).sum()
            yield Losses([index], [total], [measured.count])

    # -- first order -----------------------------------------------------------------------------------------------

    def _measured(self, micro: Sequence[Batch], weights: bool) -> dict[str, Measured]:
        losses: dict[str, Measured] = {}
        for batch in micro:
            if batch.labelled:
                losses |= self._on_validation(batch, weights)
            elif batch.stream == STREAM and self.losses.ood is not None:
                losses[STREAM] = self._elsewhere(batch, weights)

        for name, (_, target, unit) in self.losses.targets.items():
            loss = (expected(self._costs[name], self.model.probabilities()) / unit - target).abs()
            weight_gradients = [torch.zeros_like(p) for p in self.model.weights()] if weights else None
            count = torch.ones((), dtype=torch.float64, device=loss.device)
            losses[name] = Measured(loss.detach(), count, self._by(loss, self.model.choices()), weight_gradients)

        return losses

    def _on_validation(self, batch: Batch, weights: bool) -> dict[str, Measured]:
        pixels, extra_inputs = self.model.pixels(batch.inputs).detach(), list[Tensor]()
        if self.losses.epsilon is not None:
            extra_inputs = [pixels.requires_grad_()]

        total, count = self._cross_entropy(batch, pixels)
        measured, (*extra_gradients,) = self._differentiated(total, count, weights, extra_inputs)
        losses = {"validation": measured}

        if self.losses.epsilon is not None:
            attacked_pixels = under_attack(self.model, batch, pixels, extra_gradients[0], self.losses.epsilon)
            losses["adversarial"] = self._differentiated(*self._cross_entropy(batch, attacked_pixels), weights)[0]

        return losses

    def _elsewhere(self, batch: Batch, weights: bool) -> Measured:
        outputs = self.supervised.forward(replace(batch, predict=(self.model.task,)))
        logits = outputs.predictions[self.model.task]
        assert self.losses.ood is not None
        factor = self.losses.ood / (logits.shape[1] if self.losses.over_classes else 1)
        count = torch.full((), float(len(logits)), dtype=torch.float64, device=logits.device)
        return self._differentiated(factor * from_uniform(logits).sum(), count, weights)[0]

    def _cross_entropy(self, batch: Batch, pixels: Tensor) -> tuple[Tensor, Tensor]:
        return cross_entropy(self.supervised, self.model.task, batch, pixels)

    def _differentiated(
        self, total: Tensor, count: Tensor, weights: bool, aside: Sequence[Tensor] = ()
    ) -> tuple[Measured, list[Tensor]]:
        choices, weight_parameters = self.model.choices(), self.model.weights() if weights else []
        gradients = self._by(total, [*choices, *weight_parameters, *aside])
        first, last = len(choices), len(choices) + len(weight_parameters)
        measured = Measured(total.detach(), count, gradients[:first], gradients[first:last] if weights else None)
        return measured, gradients[last:]

    def _by(self, total: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
        gradients = torch.autograd.grad(total, list(parameters), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]

    # -- second order ----------------------------------------------------------------------------------------------

    def _unrolled_losses(self, micro: Sequence[Batch]) -> dict[str, Measured]:
        """Return the losses at the weights' next step; gradients include how that step depends on the choices."""
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
            losses = self._measured(micro, weights=True)

        weight_index = {id(p): index for index, p in enumerate(self.model.weights())}
        for name, measured in losses.items():
            if name in self.losses.targets:
                continue
            assert measured.weights is not None
            direction = [measured.weights[weight_index[id(p)]] for p in parameters]
            count = measured.count.clone()
            Workers.current().sum_many([*direction, count])
            # Each parameter's term has its learning rate η as a factor.
            for v, step in zip(direction, steps, strict=True):
                v *= step.lr / count.clamp(min=1)
            products = hessian_product(self._trained, parameters, self.model.choices(), direction)
            for gradient, product in zip(measured.choices, products, strict=True):
                gradient -= product * (count / total)

        return losses

    def _trained(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the sum of this worker's training losses."""
        for batch in self._train[0]:
            if batch.labelled:
                total, _ = self._cross_entropy(batch, self.model.pixels(batch.inputs))
                return self._by(total, parameters)
        return [torch.zeros_like(p) for p in parameters]


class WeightsSource(NetworkSource):
    """The source of the weights' losses.

    These are the task's loss; times a factor, the divergence from uniform of predictions for out-of-distribution
    images; and, where it is asked for, the task's loss under attack.
    """

    of_tasks = True
    unlabelled = True

    def __init__(self, model: CellSupernet, factor: float, over_classes: bool, epsilon: float | None = None) -> None:
        """Take the network and the losses that are added to the task's.

        Args:
            factor: Of the divergence from uniform.
            over_classes: Whether that is divided by the number of classes.
            epsilon: Bound of attacks, for pixels in a range of 1; None: there are no attacks.
        """
        self.model, self.factor, self.over_classes, self.names = model, factor, over_classes, (model.task,)
        self.epsilon = epsilon

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        for batch in micro:
            if batch.labelled and self.epsilon is not None and terms:
                yield from self._with_attack(batch, self.epsilon)
            elif batch.labelled:
                yield self.supervised.losses(batch, self.supervised.forward(batch))
            elif batch.stream == STREAM and terms:
                outputs = self.supervised.forward(replace(batch, predict=self.names))
                logits = outputs.predictions[self.model.task]
                factor = self.factor / (logits.shape[1] if self.over_classes else 1)
                yield Losses(extra=factor * from_uniform(logits).sum() / batch.total)

    def _with_attack(self, batch: Batch, epsilon: float) -> Iterator[Losses]:
        """Yield the task's loss, then that of the same images under an attack on it."""
        pixels = self.model.pixels(batch.inputs).detach().requires_grad_()
        clean_batch = replace(batch, samples=Samples(pixels, batch.samples.targets))
        losses = self.supervised.losses(clean_batch, self.supervised.forward(clean_batch))
        (gradient,) = torch.autograd.grad(losses.sums[0], pixels, retain_graph=True)
        yield losses

        attacked_pixels = under_attack(self.model, batch, pixels, gradient, epsilon)
        total, _ = cross_entropy(self.supervised, self.model.task, batch, attacked_pixels)
        yield Losses(extra=total / batch.total)

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        return self.supervised.sizes(micros)
