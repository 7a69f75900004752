"""CoNAL-Pro: branching is decided stage by stage, from the last to the first; tasks that agree stay together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.branching._paths import Path, passed
from mtlscale.architectures.branching._pretraining import PRETRAINED, PretrainedSearch, SearchModule
from mtlscale.architectures.branching._supernet import mean
from mtlscale.architectures.contract import MultiTaskModule, encoder_head, staged
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS, Search, shares_of
from mtlscale.architectures.trees import BranchedModule, Tree, checked
from mtlscale.balancing.jacobian.conflict_noticed import ConflictNoticed
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, StagedModule

TRUNK = "trunk"
_PHASE = "stage "


def group(round: int) -> str:
    """Return the key of the encoder for what a round's active tasks share after the stage in question."""
    return f"group{round}"


def own(place: int) -> str:
    """Return the key of the encoder of one task alone."""
    return f"own{place}"


class RoundModule(SearchModule):
    """The network of one round: each task that is still active learns whether to share the stage in question.

    Round s = 1, 2, … decides on stage q = S - s (from 0) of S. An active task mixes two paths by two logits: the trunk
    up to and with q, followed by what its group shares from there on; and the trunk up to before q, followed by stages
    of its own. Tasks that left in a round read the trunk up to and with that round's stage, then their group's stages;
    they go on training if `left` is "train", and move nothing if it is "rest".
    """

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        name: str,
        round: int = 1,
        found: PhaseOutput | None = None,
        left: str = "rest",
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.round = round
        self.left: dict[str, int] = dict((found or {}).get("left", {}))  # task -> the round in which it left
        trunk = staged(encoder(), name)
        self.stages = len(trunk.stages)

        self.asked = self.stages - round
        self.active = [index for index, task in enumerate(self.names) if task not in self.left]
        self.moving = self.active if left == "rest" else list(range(len(self.names)))  # whose losses move anything
        self.heads = nn.ModuleList(encoder_head(trunk, task, dropout) for task in suite.tasks)
        self.alpha = nn.ParameterList(nn.Parameter(torch.zeros(2)) for _ in self.active)  # logits [share, do not share]

        self.paths: list[list[Path]] = [self._paths(index) for index in range(len(self.names))]
        owner_stages: dict[str, list[int]] = {}
        for path in (path for task_paths in self.paths for path in task_paths):
            for stage, owner in enumerate(path):
                owner_stages.setdefault(str(owner), []).append(stage)

        self.encoders = nn.ModuleDict({TRUNK: trunk, **{o: copy.deepcopy(trunk) for o in owner_stages if o != TRUNK}})
        if found is not None:
            self._go_on(owner_stages, found["weights"])
        for owner, stages in owner_stages.items():
            self.encoder_of(owner).keep(min(stages), max(stages) + 1)
        self.users = self._users()

    def encoder_of(self, owner: str) -> StagedModule:
        encoder = self.encoders[owner]
        assert isinstance(encoder, StagedModule)
        return encoder

    def start_encoders(self) -> list[nn.Module]:
        return list(self.encoders.values())

    def _paths(self, place: int) -> list[Path]:
        """Return a task's paths: the one it left on, or the shared and the private one."""
        left_round = self.left.get(self.names[place])
        if left_round is not None:
            return [_branched(self.stages - left_round + 1, group(left_round), self.stages)]
        shared = _branched(self.asked + 1, group(self.round), self.stages)
        return [shared, _branched(self.asked, own(place), self.stages)]

    def _go_on(self, kept: Mapping[str, Iterable[int]], weights: Mapping[str, Any]) -> None:
        """Load the weights of the round before; new stages start as copies of those that they replace."""
        encoder_states: Mapping[str, Mapping[str, Any]] = weights["encoders"]
        for owner, stages in kept.items():
            for stage in stages:
                source = owner
                if str(stage) not in encoder_states.get(owner, {}):
                    previous_group = group(self.round - 1)
                    in_group = owner == group(self.round) and str(stage) in encoder_states.get(previous_group, {})
                    # A group's stage starts as that of the group before where there is one; others as the trunk's.
                    source = previous_group if in_group else TRUNK
                self.encoder_of(owner).stages[stage].load_state_dict(encoder_states[source][str(stage)])

        for head, state in zip(self.heads, weights["heads"], strict=True):
            head.load_state_dict(state)

    def _users(self) -> dict[tuple[str, int], set[int]]:
        """Return the tasks that pass each stage of each encoder, by encoder and stage."""
        users: dict[tuple[str, int], set[int]] = {}
        for task, task_paths in enumerate(self.paths):
            for path in task_paths:
                for stage, owner in enumerate(path):
                    users.setdefault((str(owner), stage), set()).add(task)
        return users

    def forward(self, batch: Batch) -> Outputs:
        indices = {task: self.names.index(task) for task in batch.tasks}
        encoders = {owner: self.encoder_of(owner) for owner in self.encoders}
        paths = [path for index in indices.values() for path in self.paths[index]]
        features = passed(encoders, paths, batch.inputs)
        return Outputs({task: self.heads[index](self._mixed(index, features)) for task, index in indices.items()})

    def _mixed(self, place: int, features: Mapping[Path, Tensor]) -> Tensor:
        path_features = [features[path] for path in self.paths[place]]
        if len(path_features) > 1:
            return mean(self.logits(place).softmax(0), path_features)
        return path_features[0] if place in self.moving else path_features[0].detach()

    def logits(self, place: int) -> Tensor:
        """Return the logits [share, do not share] of an active task."""
        logits: Tensor = self.alpha[self.active.index(place)]
        return logits

    def of_stage(self, owner: str, stage: int) -> list[nn.Parameter]:
        return list(self.encoder_of(owner).stages[stage].parameters())

    def shared_parameters(self) -> list[nn.Parameter]:
        return [
            p for (owner, stage), users in self.users.items() if len(users) > 1 for p in self.of_stage(owner, stage)
        ]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        """Return the parameters of the stage in question alone."""
        return [self.of_stage(TRUNK, self.asked)]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        own_stages = [p for key, users in self.users.items() if users == {index} for p in self.of_stage(*key)]
        own_logits = [self.alpha[self.active.index(index)]] if index in self.active else []
        return [*own_logits, *own_stages, *self.heads[index].parameters()]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        moving = set(self.moving)
        stages = [p for key, users in self.users.items() if users & moving for p in self.of_stage(*key)]
        heads = [p for index in self.moving for p in self.heads[index].parameters()]
        return {WEIGHTS: [*stages, *heads], CHOICE: list(self.alpha)}

    @torch.no_grad()
    def phase_output(self) -> PhaseOutput:
        """Return the decisions of the rounds so far, and the weights if another round follows.

        `left` maps a task to the round it left in; a task leaves if its shared option is at least as likely. `tree` is
        the tree as if the remaining tasks had networks of their own. `weights` are there only if there is another
        round.
        """
        leaving = {self.names[p]: self.round for p in self.active if bool(self.logits(p)[0] >= self.logits(p)[1])}
        left_rounds = {**self.left, **leaving}
        output: PhaseOutput = {
            "left": left_rounds,
            "tree": tree_of_rounds([left_rounds.get(name) for name in self.names], self.stages),
        }

        if self.asked and len(left_rounds) < len(self.names):
            stage_states: dict[str, dict[str, Any]] = {}
            for owner, stage in self.users:
                stage_states.setdefault(owner, {})[str(stage)] = _state(self.encoder_of(owner).stages[stage])
            output["weights"] = {"encoders": stage_states, "heads": [_state(head) for head in self.heads]}

        return output

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        """Return `sharing`: active task -> the probability of the shared option."""
        return {"sharing": {self.names[index]: float(self.logits(index).softmax(0)[0]) for index in self.active}}


def _branched(first: int, owner: str, stages: int) -> Path:
    """Return the path through the trunk before stage `first`, and through another encoder from there on."""
    return (TRUNK,) * first + (owner,) * (stages - first)


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def tree_of_rounds(rounds: list[int | None], stages: int) -> Tree:
    """Return the tree of tasks that left in these rounds, or never.

    Tasks that left in round s share the trunk up to and with stage S - s (from 0) with all that left later or with
    them, and what follows among themselves.
    """
    nodes = []
    for stage in range(stages):
        task_nodes = []
        for index, left_round in enumerate(rounds):
            own_node = stages + 1 + index
            task_nodes.append(own_node if left_round is None else 0 if stage <= stages - left_round else left_round)
        nodes.append(task_nodes)
    return checked(nodes)


class CoNALPro(PretrainedSearch, Search):
    """CoNAL-Pro: CoNAL's search cut into a round per stage, last stage first, whose result is a nested tree.

    In each round the tasks still in question learn by two logits whether to share the stage, together with what they
    share after it, or to have everything from there on to themselves. Those that share leave the search as a subgroup;
    a round follows for the others, one stage nearer the input. With `left: train` the subgroups go on learning, and
    count in later conflicts. Conflicts are noticed at the stage in question alone. The source
    does not say how weights pass from round to round: here they continue, new stages start as copies of what they
    replace, and logits start anew. `search_epochs` are those of all rounds together, at least one each. Then the tree
    is trained from scratch with the run's balancer, by default `rlw`.
    """

    name: ClassVar[str] = "conal_pro"
    source: ClassVar[str] = "Yue's thesis, ch. 5, after Yue et al., AAAI 2023"
    balancer: ClassVar[str] = "rlw"

    conflict: str = knob("module", choices=("module", "none"), help="whether a conflict leaves the stage as it is")
    left: str = knob(
        "rest", choices=("rest", "train"), help="what tasks that have left the search do in later rounds", later=True
    )
    levels: str = knob(
        "bi", choices=("bi", "single"), help="a half of the training data for each turn, or all of it", later=True
    )

    def phases(self) -> tuple[Phase, ...]:
        return self.phases_for(1)

    def phases_for(self, stages: int) -> tuple[Phase, ...]:
        shares = shares_of(self.levels)
        balancer = ConflictNoticed(conflict=self.conflict)
        turns = (self.choice_turn(shares[0]), self.weights_turn(balancer, shares[1]))
        rounds = max(1, stages)
        phases = [self.search_phase(turns, f"{_PHASE}{number + 1}", parts=rounds) for number in range(rounds)]
        return self.and_retrain(*phases)

    def wants(self, phase: str, found: PhaseOutput) -> bool:
        return not phase.startswith(_PHASE) or "weights" in found or PRETRAINED in found

    def build_search(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> RoundModule:
        return RoundModule(suite, encoder, dropout, self.name, left=self.left)

    def build_found(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if phase.startswith(_PHASE):
            number = int(phase.removeprefix(_PHASE))
            return RoundModule(suite, encoder, dropout, self.name, number, found, self.left)
        if self.found and "weights" in found:
            raise UserError(
                f"{self.name}: found is the result of a round with another after it; name the last one's file"
            )
        return BranchedModule(suite, encoder, found["tree"], dropout, self.name)
