"""CoNAL: every task learns at which stage to leave the shared encoder; stages in conflict are left out of updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.branching._paths import passed
from mtlscale.architectures.branching._pretraining import PretrainedSearch
from mtlscale.architectures.branching._supernet import SHARED, Supernet, mean, path_of
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS, Search, shares_of
from mtlscale.architectures.trees import BranchedModule, Tree, checked, stages_of, tree_of_points
from mtlscale.balancing.jacobian.conflict_noticed import ConflictNoticed
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule, StagedModule
from mtlscale.solvers import first_largest

_OWN = 1.0  # initial logit of a task's own encoder: with equal logits the encoders would never differ


class PartialSupernet(Supernet):
    """The supernet whose private encoders belong to no task yet: each task also has logits over them.

    All tasks move all of these encoders at first, each task its own a little more.
    """

    def __init__(
        self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float, name: str, points: Sequence[int]
    ) -> None:
        super().__init__(suite, encoder, dropout, name, points)
        starts = torch.eye(len(self.names), dtype=self.alpha[0].dtype) * _OWN
        self.candidate = nn.ParameterList(nn.Parameter(row.clone()) for row in starts)

    def features(self, inputs: Tensor, places: Sequence[int]) -> dict[int, Tensor]:
        stages, tasks = len(self.shared.stages), range(len(self.names))
        owners: dict[Any, StagedModule] = {SHARED: self.shared, **{owner: self.encoder_of(owner) for owner in tasks}}
        paths = {(point, owner): path_of(point, owner, stages) for point in self.points for owner in tasks}
        path_features = passed(owners, paths.values(), inputs)

        mixed = {}
        for task in places:
            candidate_weights = self.candidate[task].softmax(0)
            point_features = [
                mean(candidate_weights, [path_features[paths[point, owner]] for owner in tasks])
                for point in self.points
            ]
            mixed[task] = mean(self.probabilities(task), point_features)
        return mixed

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.shared.parameters(), *self.private.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [self.alpha[index], self.candidate[index], *self.heads[index].parameters()]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        weights = [*self.shared.parameters(), *self.private.parameters(), *self.heads.parameters()]
        return {WEIGHTS: weights, CHOICE: [*self.alpha, *self.candidate]}

    def found_tree(self) -> Tree:
        """Return the tree in which tasks with the same branch point and preferred encoder stay together."""
        points = list(self.found_points().values())
        last = len(self.names) - 1
        preferred = [last - int(first_largest(row.detach().flip(0))) for row in self.candidate]
        return checked(
            [
                [(0 if stage + 1 < p else 1 + p * (last + 1) + o) for p, o in zip(points, preferred, strict=True)]
                for stage in range(len(self.shared.stages))
            ]
        )

    def phase_output(self) -> PhaseOutput:
        return {**super().phase_output(), "tree": self.found_tree()}

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        task_candidates = zip(self.names, self.candidate, strict=True)
        return {**super().traces(), "candidates": {name: row.softmax(0).tolist() for name, row in task_candidates}}


class CoNAL(PretrainedSearch, Search):
    """CoNAL: a search over branch points that notices conflicts, then training of the tree that it found.

    In the search, logits over branch points learn on one half of the training data. The weights of the shared encoder,
    of a private encoder per task and of the heads learn on the other half, with the balancer `conflict_noticed`. Then
    the tree of each task's likeliest branch point is trained from scratch on everything with the run's balancer, by
    default random weights (`rlw`). The knobs from `conflict` to `levels` are the paper's ablations; all losses are
    summed.
    """

    name: ClassVar[str] = "conal"
    source: ClassVar[str] = "Yue et al., AAAI 2023"
    balancer: ClassVar[str] = "rlw"

    conflict: str = knob(
        "prefix",
        choices=("prefix", "module", "none"),
        help="what conflicts leave out: all from the first such stage on, each by itself, or nothing",
    )
    private: str = knob("pure", choices=("pure", "partial"), help="whether private encoders are one task's alone")
    splitting: str = knob("stages", choices=("stages", "whole"), help="branch anywhere, or share everything or nothing")
    levels: str = knob("bi", choices=("bi", "single"), help="a half of the training data for each turn, or all of it")

    def phases(self) -> tuple[Phase, ...]:
        shares = shares_of(self.levels)
        balancer = ConflictNoticed(conflict=self.conflict)
        return self.and_retrain(
            self.search_phase((self.choice_turn(shares[0]), self.weights_turn(balancer, shares[1])))
        )

    def build_search(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> Supernet:
        points = (1, stages_of(encoder, self.name) + 1) if self.splitting == "whole" else ()
        kind = Supernet if self.private == "pure" else PartialSupernet
        return kind(suite, encoder, dropout, self.name, points)

    def build_found(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        tree: Tree | None = found.get("tree")
        if tree is None:
            points = [found["points"][task.name] for task in suite.tasks]
            tree = tree_of_points(points, stages_of(encoder, self.name))
        return BranchedModule(suite, encoder, tree, dropout, self.name)
