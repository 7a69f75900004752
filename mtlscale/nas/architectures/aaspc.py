"""AASPC: a controller searches for a classifier's head, and for the place in it where two domains are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, of_vectors
from mtlscale.architectures.hooks import EpochView
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.nas.search.controller import Controller, adam_step
from mtlscale.nas.search.domain_predictions import DomainPredictions, no_target
from mtlscale.nas.search.head_cells import (
    Head,
    HeadSupernet,
    all_heads,
    decisions,
    decoded,
    head_count,
    number_of,
    numbered,
)


class AASPC(Architecture):
    """AASPC: a head of up to three cells on an encoder, drawn every epoch by a controller that learns by REINFORCE.

    Heads share weights by cell and sizes; nothing is trained again at the end. The reward of an epoch, as printed, is
    minus its training loss. `reward: loss` takes all of it, with the objective's terms, which change with the place
    they look at; `reward: source` takes the task's own part. Two rewards of ours look at the same place for every head,
    the class probabilities of training samples, without labels of the target: `reward: prediction` is the population
    correlation of both domains, `reward: information` the mutual information of the target. `search: random` draws
    without learning, `search: fixed` has the head of number `head`. Without an objective it is the search alone (AAS).
    """

    name: ClassVar[str] = "aaspc"
    source: ClassVar[str] = "AASPC (Yue's thesis), chapter 4, algorithm 2; controller as in Pham et al., ICML 2018"

    cells: int = knob(3, low=1, high=3, help="N; 6, 288 or 7,776 heads")
    search: str = knob("controller", choices=("controller", "random", "fixed"), help="how heads are chosen")
    reward: str = knob(
        "loss",
        choices=("loss", "source", "prediction", "information"),
        help="minus the whole loss of an epoch, or the task's alone; or what predictions of both domains say",
    )
    head: int = knob(0, low=0, high=7775, help="number of the head, of `search: fixed`")
    lr: float = knob(3.5e-4, low=0.0, open_low=True, search=(1e-4, 1e-1, "log"), help="of the controller, by Adam")
    entropy: float = knob(1e-4, low=0.0, help="bonus on the decisions' entropy")
    decay: float = knob(0.95, low=0.0, high=1.0, help="of the moving mean of rewards")
    dropout: float = knob(0.5, low=0.0, high=1.0, open_high=True, help="in every cell")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search == "fixed" and self.head >= head_count(self.cells):
            raise UserError(
                f"aaspc: head = {self.head}, but {self.cells} cells have {head_count(self.cells)} heads, from 0"
            )

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if len(suite.tasks) > 1:
            raise UserError(
                f"aaspc looks for the head of one task, {suite.name} has {len(suite.tasks)}; name one in `tasks`"
            )
        return AASPCModule(self, suite, of_vectors(encoder(), self.name))


class AASPCModule(MultiTaskModule):
    """The supernet on the encoder with the head of this epoch; the controller's parameters are buffers."""

    chosen: Tensor  # [decisions]: the choices of the head in use
    theta: Tensor  # [P]: the controller's parameters
    moments: Tensor  # [2, P]: Adam's moments
    rewards: Tensor  # [2]: moving mean and number of rewards

    def __init__(self, recipe: AASPC, suite: TaskSuite, encoder: EncoderModule) -> None:
        super().__init__()
        self.recipe, self.task, self.encoder = recipe, suite.tasks[0].name, encoder
        sizes = decisions(recipe.cells)
        heads = [decoded(numbered(recipe.head, recipe.cells))] if recipe.search == "fixed" else all_heads(recipe.cells)

        self.supernet = HeadSupernet(encoder.features, recipe.cells, suite.tasks[0].outputs, recipe.dropout, heads)
        self.controller = Controller(sizes)
        self.seed = int(torch.randint(1 << 31, (), device="cpu"))

        theta = self.controller.begin(torch.Generator().manual_seed(self.seed))
        self.register_buffer("theta", theta)
        self.register_buffer("moments", torch.zeros(2, len(theta), dtype=torch.float64))
        self.register_buffer("rewards", torch.zeros(2, dtype=torch.float64))
        first = recipe.head if recipe.search == "fixed" else 0
        self.register_buffer("chosen", torch.tensor(numbered(first, recipe.cells)))

        self.reward = 0.0
        self.predictions = DomainPredictions() if recipe.reward in ("prediction", "information") else None
        self.needs_target = "" if self.predictions is None else f"aaspc: {no_target(recipe.reward)}"
        self.found: dict[str, Any] = {}
        self._known: list[int] | None = None  # `chosen` on the host, so that no step waits for the device
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]
        self._draw(0)

    @property
    def choices(self) -> list[int]:
        """The choices of the head in use, `chosen` as numbers."""
        if self._known is None:
            self._known = self.chosen.tolist()
        return self._known

    @property
    def head(self) -> Head:
        """The head in use."""
        return decoded(self.choices)

    def forward(self, batch: Batch) -> Outputs:
        head = self.head
        watched, classifier_input = self.supernet(self.encoder(batch.inputs), head)
        if self.predictions is not None and self.training and torch.is_grad_enabled():
            with torch.no_grad():
                self.predictions.add(self.supernet.classify(classifier_input, head), batch.labelled)
        return Outputs({task: self.supernet.classify(classifier_input, head) for task in batch.tasks}, watched)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.supernet.cells.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.supernet.classifiers.parameters())

    def representation_sizes(self) -> list[int]:
        return sorted(self.supernet.watched)

    def on_epoch_end(self, epoch: EpochView) -> None:
        """Take a step of the controller, with the reward of the head that was trained in this epoch."""
        recipe = self.recipe
        if self.predictions is None:
            reward = -(epoch.losses[self.task] + (epoch.added if recipe.reward == "loss" else 0.0))
        else:
            reward = self.predictions.score(recipe.reward)

        reward_count = int(self.rewards[1])
        mean_reward = float(self.rewards[0]) if reward_count else reward

        if recipe.search == "controller":
            theta, moments = self.theta.cpu(), self.moments.cpu()  # the host is faster at many small steps
            gradient = self.controller.gradient(theta, self.choices, reward - mean_reward, recipe.entropy)
            adam_step(theta, moments, gradient, reward_count + 1, recipe.lr)
            self.theta.copy_(theta)
            self.moments.copy_(moments)

        self.rewards[0] = recipe.decay * mean_reward + (1 - recipe.decay) * reward
        self.rewards[1] += 1
        self.reward = reward

    def on_epoch_begin(self, epoch: EpochView) -> None:
        self._draw(epoch.number)

    def traces(self) -> dict[str, Any]:
        if self.recipe.search == "fixed":
            return {"reward": self.reward}
        with torch.no_grad():
            _, log_probability, entropy = self.controller.decide(self.theta.cpu(), chosen=self.choices)
        return {
            "head": number_of(self.choices),
            "reward": self.reward,
            "entropy": float(entropy),
            "head_probability": float(log_probability.exp()),
        }

    def structure(self) -> dict[str, Any]:
        return self.found

    def after_training(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        """Describe the selected epoch's head for `structure`.

        The description has the head in words and as a number, and how many of the supernet's parameters it has.
        """
        head = self.head
        parameters = [p.numel() for module in self.supernet.modules_of(head) for p in module.parameters()]
        total, number = int(np.sum(parameters)), number_of(self.choices)
        self.found = {"head": head.describe(), "head_number": number, "head_parameters": total}

    def extra_parameter_count(self) -> int:
        return len(self.theta) if self.recipe.search == "controller" else 0

    def _draw(self, epoch: int) -> None:
        """Draw the head of an epoch, the same on every worker and after a resume."""
        if self.recipe.search == "fixed":
            return
        generator = torch.Generator().manual_seed(self.seed + 1 + epoch)
        if self.recipe.search == "random":
            number = int(torch.randint(head_count(self.recipe.cells), (), generator=generator))
            self._known = numbered(number, self.recipe.cells)
        else:
            with torch.no_grad():
                self._known = self.controller.decide(self.theta.cpu(), generator)[0]
        self.chosen.copy_(torch.tensor(self._known))


def _forget(module: nn.Module, _: Any) -> None:
    """Forget the host's copy of the head, since loading a state has replaced the head."""
    assert isinstance(module, AASPCModule)
    module._known = None
