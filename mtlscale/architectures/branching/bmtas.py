"""BMTAS: every task chooses a node in every stage, and the expected cost of the choices is part of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.branching._costs import expected_groups, shares, stage_flops
from mtlscale.architectures.branching._pretraining import PretrainedSearch
from mtlscale.architectures.branching._routing import RoutedModule, likeliest, mixed, tree_in, warm_epochs
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.hooks import LabelledData
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import Search, shares_of
from mtlscale.architectures.trees import BranchedModule, Tree, checked
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, Memory
from mtlscale.solvers import first_largest

_MOST_TASKS = 16  # expected costs are sums over all sets of tasks


class BMTASModule(RoutedModule):
    """The supernet of BMTAS, in which choice (l, t) is task t's among the nodes of stage l.

    In the warm-up task t passes node t alone. `costs` [L] are the costs of the stages over their sum. `weight` is the
    weight in the loss of the tree's expected cost, over that of hard sharing.
    """

    costs: Tensor

    def __init__(self, *network: Any, weight: float, flops: bool, stream: str) -> None:
        super().__init__(*network)
        self.weight, self.flops, self.stream = weight, flops, stream
        self.independent = self.warming
        parameter_counts = [sum(p.numel() for p in stage.parameters()) for stage in self.encoders()[0].stages]
        self.register_buffer("costs", shares(parameter_counts))

    def from_data(self, data: LabelledData) -> None:
        """Count the operations of every stage for one sample."""
        if self.flops:
            sample = next(iter(data.samples("train", self.stream, most=1)))
            self.costs.copy_(shares(stage_flops(self.encoders()[0], sample.inputs)))

    def choices(self) -> Tensor:
        if not self.warming:
            return super().choices()
        return torch.eye(self.size, dtype=self.noise.dtype, device=self.noise.device).expand(self.depth, -1, -1)

    def forward(self, batch: Batch) -> Outputs:
        choices, start = self.choices(), self.encoders()[0].prepare(batch.inputs)
        indices = {task: self.names.index(task) for task in batch.tasks}
        first_nodes = range(self.size) if not self.warming else sorted(indices.values())
        memories = {j: Memory() for j in first_nodes}  # of the first stage, whose input all tasks share
        features = {j: self.node(0, j, start, memories[j]) for j in first_nodes}

        predictions = {}
        for task, t in indices.items():
            nodes = range(t, t + 1) if self.warming else range(self.size)
            weights = choices[:, t, nodes.start : nodes.stop]
            node_features, node_memories = [features[j] for j in nodes], [memories[j] for j in nodes]
            for stage in range(1, self.depth):
                node_input, memory = (
                    mixed(weights[stage - 1], node_features),
                    likeliest(weights[stage - 1], node_memories),
                )
                node_memories = [Memory(memory) for _ in nodes]
                node_features = [
                    self.node(stage, j, node_input, node_memory)
                    for j, node_memory in zip(nodes, node_memories, strict=True)
                ]
            predictions[task] = self.predict(task, mixed(weights[-1], node_features))

        return Outputs(predictions)

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        node = self.encoders()[self.names.index(task)]
        return [*super().task_parameters(task), *(node.parameters() if self.warming else ())]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [[] for _ in range(self.depth)] if self.warming else super().shared_modules()

    def own_choices(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [self.of_choice(stage, index) for stage in range(self.depth)]

    def tree(self) -> Tree:
        """Return the tree: from the input side, groups of tasks split by their likeliest nodes, and stay split."""
        groups: list[tuple[int, ...]] = [()] * self.size
        levels = []
        for nodes in first_largest(self.table()).tolist():
            groups = [(*group, node) for group, node in zip(groups, nodes, strict=True)]
            levels.append([groups.index(group) for group in groups])
        return checked(levels)

    def expected_cost(self) -> Tensor:
        """Return the expected cost of the tree that the choices' probabilities give.

        It is in units of the cost of hard sharing, hence in 1..T.
        """
        return (self.costs.to(torch.float64) * expected_groups(self.table().softmax(-1))).sum()

    def penalty(self) -> Tensor | None:
        return None if self.warming or not self.weight else self.weight * self.expected_cost()

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        return {**super().traces(), "expected_cost": float(self.expected_cost())}


class BMTAS(PretrainedSearch, Search):
    """Branched multi-task architecture search: tasks choose nodes by Gumbel-softmax under a loss on expected cost.

    The search begins with a warm-up in which every task has a network of its own. Then each step trains the weights on
    one half of the training data and the logits, by an Adam of their own, on the other half. The temperature falls
    linearly with the epochs after the warm-up. The tree that the logits arrive at is trained from scratch.
    """

    name: ClassVar[str] = "bmtas"
    source: ClassVar[str] = "Bruggemann et al., BMVC 2020"

    search_epochs: int = knob(20, low=1, help="epochs of the search, warm-up included")
    arch_lr: float | None = knob(
        1e-2, low=0, open_low=True, help="learning rate of the Adam that chooses; none: half of the weights'"
    )
    warmup: float = knob(0.05, low=0.0, high=1.0, open_high=True, help="share of the search in which logits rest")
    temperature: float = knob(5.0, low=0.0, open_low=True, help="of the samples, at first")
    temperature_end: float = knob(0.1, low=0.0, open_low=True, help="of the samples, in the last epoch of the search")
    resource: float = knob(0.05, low=0.0, help="weight of the expected cost, over that of hard sharing, in the loss")
    levels: str = knob(
        "bi", choices=("bi", "single"), help="a half of the training data for each turn, or all of it", later=True
    )
    cost: str = knob("flops", choices=("flops", "parameters"), help="of a stage")

    def phases(self) -> tuple[Phase, ...]:
        choice_share, weights_share = shares_of(self.levels)
        weights, warm = self.weights_turn(Equal(reduction="sum"), weights_share), self._warm
        warming = (self.search_phase([weights], "warm-up", warm),) if warm else ()
        search = self.search_phase([weights, self.choice_turn(choice_share)], epochs=self.search_epochs - warm)
        return self.and_retrain(*warming, search)

    def build_search(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> BMTASModule:
        return self._search(suite, encoder, dropout, warming=self._warm > 0)

    def build_found(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if phase == "search":
            searched = self._search(suite, encoder, dropout, warming=False)
            searched.load_state_dict(found["network"])
            return searched
        return BranchedModule(suite, encoder, tree_in(found, self.name), dropout, self.name)

    def _search(
        self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float, warming: bool
    ) -> BMTASModule:
        if len(suite.tasks) > _MOST_TASKS:
            raise UserError(
                f"{self.name} expects costs over all sets of tasks; {suite.name} has {len(suite.tasks)}, more than "
                f"{_MOST_TASKS}: choose ltb"
            )
        stream = next(name for name, tasks in suite.streams.items() if tasks)
        network = (suite, encoder, dropout, self.name, self._temperature, warming)
        return BMTASModule(*network, weight=self.resource, flops=self.cost == "flops", stream=stream)

    @property
    def _warm(self) -> int:
        return warm_epochs(self.warmup, self.search_epochs)

    def _temperature(self, epoch: int) -> float:
        progress = max(0, epoch - self._warm) / max(1, self.search_epochs - self._warm - 1)
        return self.temperature + (self.temperature_end - self.temperature) * min(1.0, progress)
