"""DSMTL, architecture learning: a search for where private encoders leave the public one, and for task weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.branching._dsmtl import DSMTLModule
from mtlscale.architectures.branching._pretraining import PretrainedSearch
from mtlscale.architectures.branching._supernet import Supernet
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS, Search, shares_of
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule


class WeighingSupernet(Supernet):
    """The supernet of branch points with task weights w = softmax(c), which learn as its branch points do."""

    def __init__(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float, name: str) -> None:
        super().__init__(suite, encoder, dropout, name)
        self.importance = nn.Parameter(torch.zeros(len(self.names)))  # c

    def task_weights(self) -> Tensor:
        return self.importance.softmax(0) * len(self.names)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*super().shared_parameters(), self.importance]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        groups = super().groups()
        weights = [p for p in groups[WEIGHTS] if p is not self.importance]
        return {WEIGHTS: weights, CHOICE: [*groups[CHOICE], self.importance]}

    def phase_output(self) -> PhaseOutput:
        return {**super().phase_output(), "weights": self.found_weights()}

    def found_weights(self) -> dict[str, float]:
        """Return the weight w of each task."""
        return dict(zip(self.names, self.importance.detach().softmax(0).tolist(), strict=True))

    def traces(self) -> dict[str, Any]:
        return {**super().traces(), "task_weights": self.found_weights()}


class WeighedModule(DSMTLModule):
    """The network of DSMTL whose task losses have the weights that the search found."""

    factors: Tensor

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        weights: Sequence[float],
        **options: Any,
    ) -> None:
        super().__init__(suite, encoder, dropout, **options)
        self.weights = tuple(weights)
        # The search learned these, not this phase: a checkpoint is loaded along with the search's result.
        self.register_buffer("factors", torch.tensor(self.weights) * len(self.weights), persistent=False)

    def task_weights(self) -> Tensor:
        return self.factors

    def found_weights(self) -> dict[str, float]:
        return dict(zip(self.names, self.weights, strict=True))

    def traces(self) -> dict[str, Any]:
        return {**super().traces(), "task_weights": self.found_weights()}

    def structure(self) -> dict[str, Any]:
        return {**super().structure(), "task_weights": self.found_weights()}


class DSMTLSearched(PretrainedSearch, Search):
    """Deep safe multi-task learning with a searched architecture: fewer private stages, weighted tasks.

    In the search, logits over each task's branch points, and over the tasks' weights, learn on one half of the training
    data, the encoders and heads on the other half. Then each task's private encoder is the stages from its likeliest
    branch point on, on the public features before, mixed with the public features by a gate. Everything is trained from
    scratch on all data with the task weights found, and with the run's balancer. The weights found favour tasks of
    small losses by construction; `task_weights: equal` does without them, `retrain` does so in the training alone.
    """

    name: ClassVar[str] = "dsmtl_al"
    source: ClassVar[str] = "Yue, Ye & Zhang, Deep Safe Multi-Task Learning, arXiv 2021: DSMTL-AL"

    task_weights: str = knob(
        "learned", choices=("learned", "retrain", "equal"), help="of the losses; retrain: equal in the retraining alone"
    )
    alpha: float | None = knob(None, low=0.0, high=1.0, help="share of the public features, fixed; learned by default")

    levels: str = knob(
        "bi", choices=("bi", "single"), help="a half of the training data for each turn, or all of it", later=True
    )

    def phases(self) -> tuple[Phase, ...]:
        mean = Equal(reduction="mean")  # Σ_t w_t ℓ_t of weights whose sum is 1
        choice_share, weights_share = shares_of(self.levels)
        turns = replace(self.choice_turn(choice_share), balancer=mean), self.weights_turn(mean, weights_share)
        return self.and_retrain(self.search_phase(turns))

    def build_search(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> Supernet:
        kind = Supernet if self.task_weights == "equal" else WeighingSupernet
        return kind(suite, encoder, dropout, self.name)

    def build_found(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        points = [found["points"][task.name] for task in suite.tasks]
        if self.task_weights != "learned":
            return DSMTLModule(suite, encoder, dropout, alpha=self.alpha, points=points)
        if "weights" not in found:
            raise UserError(f"{self.name}: the search that `found` names has no task weights; set task_weights: equal")
        weights = [found["weights"][task.name] for task in suite.tasks]
        return WeighedModule(suite, encoder, dropout, weights, alpha=self.alpha, points=points)
