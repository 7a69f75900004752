"""Task adversary: a discriminator guesses the task from the shared representation, and the encoder hides it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures import EpochView, MultiTaskModule
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs, Samples
from mtlscale.objectives.contract import Objective, ObjectiveModule
from mtlscale.objectives.relatedness import (
    FORMS,
    adversarial_from_sums,
    relatedness_from_sums,
    sums_by_task,
)


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, strength: Tensor) -> Tensor:
        ctx.save_for_backward(strength)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        (strength,) = ctx.saved_tensors
        return -strength.to(grads[0].dtype) * grads[0], None


def reverse_gradient(values: Tensor, strength: Tensor | float = 1.0) -> Tensor:
    """Return the values unchanged, with their gradient multiplied by -strength.

    With a strength of 0.0, as a float, the result is detached from the graph.
    """
    if isinstance(strength, float):
        if strength == 0.0:
            return values.detach()
        strength = values.new_full((), strength)
    result: Tensor = _Reversal.apply(values, strength)  # type: ignore[no-untyped-call]
    return result


class Adversarial(Objective):
    """Base class of `amtrl` and `aamtrl`: one linear discriminator behind a gradient reversal (docs/methods.md)."""

    form: str = knob("prob", choices=FORMS, help="the discriminator's aim: probability of the true task, or its log")

    def check(self, suite: TaskSuite, model: MultiTaskModule) -> int:
        """Return the size of the shared representation.

        Raises:
            UserError: If the tasks share their inputs, or the network has no shared representation.
        """
        if suite.inputs != "per_task":
            raise UserError(
                f"{self.name} tells tasks apart by their inputs, which the tasks of {suite.name} share; drop it there"
            )
        size = _representation_size(suite, model)
        if size is None:
            raise UserError(f"{self.name} needs an architecture with one shared representation, such as hps")
        return size


def _representation_size(suite: TaskSuite, model: MultiTaskModule) -> int | None:
    """Measure the representation with one blank sample, so that no architecture needs to declare its size."""
    task = suite.tasks[0].name
    dtype = torch.int64 if suite.input_kind == "tokens" else torch.get_default_dtype()
    blank = Samples(torch.zeros(1, *suite.input_shape, dtype=dtype), {task: torch.zeros(1)})
    training = model.training
    with torch.no_grad():
        outputs = model.eval()(Batch(task, blank, 1))
    model.train(training)
    return None if outputs.representation is None else outputs.representation.shape[1]


class AdversarialModule(ObjectiveModule):
    """Objective that trains the discriminator with unit weight, and the encoder against it with `strength()`.

    At the end of an epoch it measures A and R over the training set, into the buffers `adversary` and `relatedness`.
    """

    adversary: Tensor  # A, a scalar
    relatedness: Tensor  # R [T, T]

    def __init__(self, suite: TaskSuite, features: int, form: str) -> None:
        super().__init__()
        self.form = form
        self.places = {stream: index for index, stream in enumerate(suite.streams)}
        size = len(self.places)
        self.discriminator = nn.Linear(features, size)
        self.register_buffer("adversary", torch.zeros((), dtype=torch.float64))
        self.register_buffer("relatedness", torch.ones(size, size, dtype=torch.float64))

    def strength(self) -> Tensor | float:
        """Return the strength of the reversed gradient, a scalar that is constant within a step."""
        raise NotImplementedError

    def gather(self, value: Tensor) -> None:
        """Take one stream's part, on this worker, of this step's mean score of the true task."""

    def log_probs(self, representation: Tensor) -> Tensor:
        """Return the log-probabilities [B, T] of the tasks for representations [B, features]."""
        weight = self.discriminator.weight
        log_probabilities: Tensor = self.discriminator(representation.to(weight.dtype)).log_softmax(1)
        return log_probabilities

    def term(self, batch: Batch, outputs: Outputs) -> Tensor:
        assert outputs.representation is not None
        hidden = reverse_gradient(outputs.representation, self.strength())
        log_scores = self.log_probs(hidden)[:, self.places[batch.stream]]
        scores = log_scores.exp() if self.form == "prob" else log_scores
        score = scores.sum() / (batch.total * len(self.places))
        self.gather(score.detach())
        return -score

    def on_epoch_end(self, epoch: EpochView) -> None:
        size = len(self.places)
        sums, scores, counts = (self.relatedness.new_zeros(shape) for shape in ((size, size), (size, size), (size,)))

        for batch, outputs in epoch.outputs():
            assert outputs.representation is not None
            logs = self.log_probs(outputs.representation)
            tasks = torch.full((len(logs),), self.places[batch.stream], device=logs.device)
            probabilities, task_counts = sums_by_task(logs.exp(), tasks)
            sums += probabilities
            counts += task_counts
            scores += probabilities if self.form == "prob" else sums_by_task(logs, tasks)[0]

        for tensor in (sums, scores, counts):
            epoch.sum(tensor)

        self.adversary.copy_(adversarial_from_sums(scores.diagonal(), counts, self.form))
        self.relatedness.copy_(relatedness_from_sums(sums, counts))

    def traces(self) -> dict[str, Any]:
        mean = self.relatedness.mean(1)  # per task
        return {
            "A": float(self.adversary),
            "R_mean": float(mean.mean()),
            "R_var": float(mean.var(correction=0)),
        }

    def final_traces(self) -> dict[str, Any]:
        return {"R": self.relatedness.tolist()}
