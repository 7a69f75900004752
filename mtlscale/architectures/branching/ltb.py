"""LTB: every node of a stage chooses its parent in the stage before, and every task its node in the last stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import nn

from mtlscale.architectures.branching._pretraining import PretrainedSearch
from mtlscale.architectures.branching._routing import RoutedModule, likeliest, mixed, tree_in, warm_epochs
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS
from mtlscale.architectures.trees import BranchedModule, Tree, checked
from mtlscale.balancing.jacobian.conflict_noticed import ConflictNoticed
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, Memory
from mtlscale.solvers import first_largest


class LTBModule(RoutedModule):
    """The supernet of LTB, in which nodes choose their parents.

    Choice (l, j), l < L - 1, is node j's of stage l + 1 among the nodes of stage l; choice (L - 1, t) is task t's among
    those of the last stage.
    """

    def forward(self, batch: Batch) -> Outputs:
        choices, nodes = self.choices(), range(self.size)
        start, memories = self.encoders()[0].prepare(batch.inputs), [Memory() for _ in nodes]
        features = [self.node(0, j, start, memories[j]) for j in nodes]
        for stage in range(1, self.depth):
            parents = choices[stage - 1]
            memories = [likeliest(parents[j], memories) for j in nodes]
            node_inputs = mixed(parents, features)
            features = [self.node(stage, j, node_inputs[j], memories[j]) for j in nodes]
        indices = {task: self.names.index(task) for task in batch.tasks}
        return Outputs({task: self.predict(task, mixed(choices[-1, t], features)) for task, t in indices.items()})

    def own_choices(self, task: str) -> list[nn.Parameter]:
        return [self.of_choice(self.depth - 1, self.names.index(task))]

    def tree(self) -> Tree:
        parents = first_largest(self.table()).tolist()
        levels = [parents[-1]]
        for parent_of in parents[-2::-1]:
            levels.insert(0, [parent_of[node] for node in levels[0]])
        return checked(levels)


class LTB(PretrainedSearch):
    """Learning to branch: nodes choose their parents by Gumbel-softmax, then the tree is trained from scratch.

    The search begins with a warm-up of the weights alone. Then the run's optimiser trains weights and logits together
    on the sum of the losses. The temperature falls exponentially with the epochs of both.
    """

    name: ClassVar[str] = "ltb"
    source: ClassVar[str] = "Guo et al., ICML 2020"

    search_epochs: int = knob(20, low=1, help="epochs of the search, warm-up included")
    warmup: float = knob(0.1, low=0.0, high=1.0, open_high=True, help="share of the search in which logits rest")
    temperature: float = knob(2.0, low=0.0, open_low=True, help="of the samples, at first")
    temperature_end: float = knob(0.1, low=0.0, open_low=True, help="of the samples, in the last epoch of the search")

    count_conflicts: bool = knob(False, help="trace the share of tasks' pairs that conflict in each stage; slower")

    def phases(self) -> tuple[Phase, ...]:
        balancer = ConflictNoticed(conflict="none") if self.count_conflicts else Equal(reduction="sum")
        weights, joint = self.turn((WEIGHTS,), balancer), self.turn((WEIGHTS, CHOICE), balancer)
        warm = warm_epochs(self.warmup, self.search_epochs)
        warming = (self.search_phase([weights], "warm-up", warm),) if warm else ()
        return self.and_retrain(*warming, self.search_phase([joint], epochs=self.search_epochs - warm))

    def build_search(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> LTBModule:
        warming = warm_epochs(self.warmup, self.search_epochs) > 0
        return LTBModule(suite, encoder, dropout, self.name, self._temperature, warming)

    def build_found(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if phase == "search":
            searched = LTBModule(suite, encoder, dropout, self.name, self._temperature, False)
            searched.load_state_dict(found["network"])
            return searched
        return BranchedModule(suite, encoder, tree_in(found, self.name), dropout, self.name)

    def _temperature(self, epoch: int) -> float:
        progress = min(1.0, epoch / max(1, self.search_epochs - 1))
        temperature: float = self.temperature * (self.temperature_end / self.temperature) ** progress
        return temperature
