"""SAC with CoNAL: actor and critics whose branch points are searched, with conflicts noticed layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.phases import OptimizerSpec, Phase, PhaseOutput, Turn
from mtlscale.balancing.losses.equal import Equal
from mtlscale.balancing.losses.rlw import RLW
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule
from mtlscale.rl.architectures.sac import SAC
from mtlscale.rl.environments import Simulated
from mtlscale.rl.sac.branching import BranchedNetwork, SearchedNetwork
from mtlscale.rl.sac.module import SACModule
from mtlscale.rl.sac.networks import Role, TaskNetwork, hidden_of, layers_of
from mtlscale.rl.sac.requirements import environments_of
from mtlscale.rl.sac.sources import CHOOSE_ACTOR, CHOOSE_CRITICS


class SACConal(SAC):
    """CoNAL on soft actor-critic: a search for branch points, then rounds anew with the network found.

    In the search each task's branch points in actor and critics learn on draws of their own from the replay buffer.
    With `points` given, the rounds use these and there is no search.

    By default shared layers leave out what tasks conflict in (`conflict_noticed`), in both phases; heads and private
    layers are always updated. The thesis notices conflicts in the search alone: `retrain_balancer: equal`.
    """

    name: ClassVar[str] = "sac_conal"
    source: ClassVar[str] = "Yue, Zhang, Liang (AAAI 2023), on SAC as in Yue's thesis, 5.4"
    balancer: ClassVar[str] = "conflict_noticed"

    sharing: str = knob("heads", choices=("heads",), help="branch points say what is shared")
    points: tuple[int, ...] = knob((), low=1, help="branch point of each task, 1..layers + 1; none: they are searched")
    search_epochs: int | None = knob(None, low=1, help="rounds of the search; none: the run's")
    arch_lr: float | None = knob(None, low=0.0, open_low=True, help="of the Adam that chooses; none: the run's")

    retrain_balancer: str = knob(
        "same",
        choices=("same", "equal", "rlw"),
        help="of the rounds with the network found: the search's, plain sums, or random weights",
        later=True,
    )

    def phases(self) -> tuple[Phase, ...]:
        if self.points:
            return (self._retraining(self.phase()),)
        choosing = tuple(self._choosing(name) for name in (CHOOSE_CRITICS, CHOOSE_ACTOR))
        return self.phase("search", self.search_epochs, choosing), self._retraining(self.phase("retrain"))

    def _retraining(self, phase: Phase) -> Phase:
        """Return the phase with the balancer of the retraining where the run's would combine the tasks."""
        if self.retrain_balancer == "same":
            return phase
        balancer = Equal(reduction="sum") if self.retrain_balancer == "equal" else RLW(distribution="uniform")
        turns = (replace(turn, balancer=turn.balancer or balancer) for turn in phase.turns)
        return replace(phase, turns=tuple(turns))

    def _choosing(self, name: str) -> Turn:
        training = {"optimizer": "adam", **({} if self.arch_lr is None else {"lr": self.arch_lr})}
        adding = Equal(reduction="sum")
        optimizer = OptimizerSpec(training=training)
        return Turn(name=name, groups=(name,), source=name, balancer=adding, objective=False, optimizer=optimizer)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        def make(role: Role, inputs: int, outputs: int) -> TaskNetwork:
            return self._branched(encoder(), inputs, outputs, found["points"][role])

        return SACModule(suite, environments_of(suite, self.name), self, make)

    def network(
        self, suite: TaskSuite, told: Simulated, encoder: EncoderModule, role: Role, inputs: int, outputs: int
    ) -> TaskNetwork:
        hidden, activation = hidden_of(encoder, self.name)
        if not self.points:
            tasks = len(suite.tasks)
            return SearchedNetwork(lambda: layers_of(inputs, hidden, activation), hidden[-1], outputs, tasks)
        if len(self.points) != len(suite.tasks) or max(self.points) > len(hidden) + 1:
            raise UserError(
                f"{self.name}: points are {len(self.points)} numbers, at most {max(self.points)}; write one of "
                f"1..{len(hidden) + 1} for each of the {len(suite.tasks)} tasks"
            )
        return self._branched(encoder, inputs, outputs, self.points)

    def _branched(self, encoder: EncoderModule, inputs: int, outputs: int, points: Sequence[int]) -> BranchedNetwork:
        hidden, activation = hidden_of(encoder, self.name)
        return BranchedNetwork(lambda: layers_of(inputs, hidden, activation), hidden[-1], outputs, points)
