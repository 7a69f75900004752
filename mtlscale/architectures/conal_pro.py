"""CoNAL-Pro: branching asked for one stage at a time, from the last to the first; tasks that agree stay together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import MultiTaskModule, encoder_head, staged
from mtlscale.architectures._paths import Path, passed
from mtlscale.architectures._phases import Found, Phase
from mtlscale.architectures._search import CHOICE, WEIGHTS, Search
from mtlscale.architectures._supernet import mean
from mtlscale.architectures._tree import BranchedModule, Tree, checked
from mtlscale.balancing.conflict_noticed import ConflictNoticed
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, StagedModule
from mtlscale.spec import TaskSuite, UserError, knob

TRUNK = "trunk"
_PHASE = "stage "


def group(round: int) -> str:
    """The encoder of what the tasks active in a round share after the stage in question."""
    return f"group{round}"


def own(place: int) -> str:
    """The encoder of one task alone."""
    return f"own{place}"


class RoundModule(MultiTaskModule):
    """The network of one round: for the tasks that are still active, whether to share the stage in question.

    Round s = 1, 2, … asks for stage q = S - s (from 0) of S. An active task mixes, by two logits, the trunk up to and
    with q, followed by what its group shares from there on, with the trunk up to before q, followed by stages of its
    own. Tasks that left in a round go on as they were: the trunk up to and with that round's stage, then their group's.
    """

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        name: str,
        round: int = 1,
        found: Found | None = None,
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.round = round
        self.left: dict[str, int] = dict((found or {}).get("left", {}))  # task -> the round it left in
        trunk = staged(encoder(), name)
        self.stages = len(trunk.stages)
        self.asked = self.stages - round
        self.active = [place for place, task in enumerate(self.names) if task not in self.left]
        self.heads = nn.ModuleList(encoder_head(trunk, task, dropout) for task in suite.tasks)
        self.alpha = nn.ParameterList(nn.Parameter(torch.zeros(2)) for _ in self.active)  # share, or not
        self.paths: list[list[Path]] = [self._paths(place) for place in range(len(self.names))]
        kept: dict[str, list[int]] = {}
        for path in (path for ways in self.paths for path in ways):
            for stage, owner in enumerate(path):
                kept.setdefault(str(owner), []).append(stage)
        self.encoders = nn.ModuleDict({TRUNK: trunk, **{o: copy.deepcopy(trunk) for o in kept if o != TRUNK}})
        if found is not None:
            self._go_on(kept, found["weights"])
        for owner, stages in kept.items():
            self.encoder_of(owner).keep(min(stages), max(stages) + 1)
        self.users = self._users()

    def encoder_of(self, owner: str) -> StagedModule:
        found = self.encoders[owner]
        assert isinstance(found, StagedModule)
        return found

    def _paths(self, place: int) -> list[Path]:
        """A task's ways: the one it left on, or the shared and the private one."""
        last = self.left.get(self.names[place])
        if last is not None:
            return [_branched(self.stages - last + 1, group(last), self.stages)]
        shared = _branched(self.asked + 1, group(self.round), self.stages)
        return [shared, _branched(self.asked, own(place), self.stages)]

    def _go_on(self, kept: Mapping[str, Iterable[int]], weights: Mapping[str, Any]) -> None:
        """With the weights of the round before. New stages start as what they replace: a task's own as the trunk's, the
        group's as the trunk's and those of the group before."""
        known: Mapping[str, Mapping[str, Any]] = weights["encoders"]
        for owner, stages in kept.items():
            for stage in stages:
                other = owner
                if str(stage) not in known.get(owner, {}):
                    before = group(self.round - 1)
                    in_group = owner == group(self.round) and str(stage) in known.get(before, {})
                    other = before if in_group else TRUNK
                self.encoder_of(owner).stages[stage].load_state_dict(known[other][str(stage)])
        for head, state in zip(self.heads, weights["heads"], strict=True):
            head.load_state_dict(state)

    def _users(self) -> dict[tuple[str, int], set[int]]:
        """Encoder and stage -> the tasks that pass it."""
        found: dict[tuple[str, int], set[int]] = {}
        for place, ways in enumerate(self.paths):
            for path in ways:
                for stage, owner in enumerate(path):
                    found.setdefault((str(owner), stage), set()).add(place)
        return found

    def forward(self, batch: Batch) -> Outputs:
        places = {task: self.names.index(task) for task in batch.tasks}
        encoders = {owner: self.encoder_of(owner) for owner in self.encoders}
        ways = [path for place in places.values() for path in self.paths[place]]
        features = passed(encoders, ways, batch.inputs)
        return Outputs({task: self.heads[place](self._mixed(place, features)) for task, place in places.items()})

    def _mixed(self, place: int, features: Mapping[Path, Tensor]) -> Tensor:
        found = [features[path] for path in self.paths[place]]
        return found[0] if len(found) == 1 else mean(self.logits(place).softmax(0), found)

    def logits(self, place: int) -> Tensor:
        """[share, do not] of an active task."""
        found: Tensor = self.alpha[self.active.index(place)]
        return found

    def of_stage(self, owner: str, stage: int) -> list[nn.Parameter]:
        return list(self.encoder_of(owner).stages[stage].parameters())

    def shared_parameters(self) -> list[nn.Parameter]:
        return [
            p for (owner, stage), users in self.users.items() if len(users) > 1 for p in self.of_stage(owner, stage)
        ]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        """The stage in question alone."""
        return [self.of_stage(TRUNK, self.asked)]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.names.index(task)
        alone = [p for key, users in self.users.items() if users == {place} for p in self.of_stage(*key)]
        chosen = [self.alpha[self.active.index(place)]] if place in self.active else []
        return [*chosen, *alone, *self.heads[place].parameters()]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {WEIGHTS: [*self.encoders.parameters(), *self.heads.parameters()], CHOICE: list(self.alpha)}

    @torch.no_grad()
    def hand_over(self) -> Found:
        """left: task -> the round it left in, of those whose shared option is at least as likely. tree: as if the
        others had networks of their own. weights: where there is another round."""
        leaving = {self.names[p]: self.round for p in self.active if bool(self.logits(p)[0] >= self.logits(p)[1])}
        left = {**self.left, **leaving}
        found: Found = {"left": left, "tree": tree_of_rounds([left.get(name) for name in self.names], self.stages)}
        if self.asked and len(left) < len(self.names):
            kept: dict[str, dict[str, Any]] = {}
            for owner, stage in self.users:
                kept.setdefault(owner, {})[str(stage)] = _state(self.encoder_of(owner).stages[stage])
            found["weights"] = {"encoders": kept, "heads": [_state(head) for head in self.heads]}
        return found

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        """`sharing`: active task -> the probability of the shared option."""
        return {"sharing": {self.names[place]: float(self.logits(place).softmax(0)[0]) for place in self.active}}


def _branched(first: int, owner: str, stages: int) -> Path:
    """The trunk before stage `first`, from there on another encoder."""
    return (TRUNK,) * first + (owner,) * (stages - first)


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def tree_of_rounds(rounds: list[int | None], stages: int) -> Tree:
    """The tree of tasks that left in these rounds, or never: those that left in round s share the trunk up to and with
    stage S - s (from 0) with all that left later or with them, and what follows among themselves."""
    nodes = []
    for stage in range(stages):
        of_task = []
        for place, last in enumerate(rounds):
            alone = stages + 1 + place
            of_task.append(alone if last is None else 0 if stage <= stages - last else last)
        nodes.append(of_task)
    return checked(nodes)


class CoNALPro(Search):
    """CoNAL-Pro: CoNAL's search cut into a round per stage, last stage first, whose result is a nested tree.

    In each round the tasks still in question learn by two logits whether to share the stage, together with what they
    share after it, or to have all from there on to themselves. Those that share leave as a subgroup; a round follows
    for the others, one stage nearer the input. Conflicts are noticed at the stage in question alone. The source does
    not say how weights pass from round to round: here they continue, new stages start as copies of what they replace,
    logits start anew. `search_epochs` are those of all rounds together, at least one each. Then the tree is trained
    from scratch with the run's balancer, by default `rlw`.
    """

    name: ClassVar[str] = "conal_pro"
    source: ClassVar[str] = "Yue's thesis, ch. 5, after Yue et al., AAAI 2023"
    balancer: ClassVar[str] = "rlw"

    conflict: str = knob("module", choices=("module", "none"), help="whether a conflict leaves the stage as it is")

    def phases(self) -> tuple[Phase, ...]:
        return self.phases_for(1)

    def phases_for(self, stages: int) -> tuple[Phase, ...]:
        turns = (self.choice_turn(), self.weights_turn(ConflictNoticed(conflict=self.conflict)))
        rounds = max(1, stages)
        phases = [self.search_phase(turns, f"{_PHASE}{number + 1}", parts=rounds) for number in range(rounds)]
        return self.and_retrain(*phases)

    def wants(self, phase: str, found: Found) -> bool:
        return not phase.startswith(_PHASE) or "weights" in found

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return RoundModule(suite, encoder, dropout, self.name)

    def build_next(
        self, phase: str, found: Found, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if phase.startswith(_PHASE):
            number = int(phase.removeprefix(_PHASE))
            return RoundModule(suite, encoder, dropout, self.name, number, found)
        if self.found and "weights" in found:
            raise UserError(
                f"{self.name}: found is the result of a round with another after it; name the last one's file"
            )
        return BranchedModule(suite, encoder, found["tree"], dropout, self.name)
