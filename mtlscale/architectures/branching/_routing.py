"""Supernets with as many candidate nodes in a stage as tasks, between which Gumbel-softmax samples choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures.branching._pretraining import SearchModule
from mtlscale.architectures.contract import encoder_head, staged
from mtlscale.architectures.hooks import EpochView
from mtlscale.architectures.phases import PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS
from mtlscale.architectures.trees import Tree
from mtlscale.config import TaskSuite, UserError
from mtlscale.encoders import EncoderModule, Memory, StagedModule
from mtlscale.solvers import first_largest

Cooling = Callable[[int], float]  # finished epochs of the search -> temperature of the next epoch


class RoutedModule(SearchModule):
    """The supernet: L stages of T candidate nodes each, and L x T choices among T nodes.

    All candidates of a stage have the same initial weights. A choice has logits [T]; the subclass defines what it
    chooses for. In training each choice is a sample, softmax of (logits + Gumbel noise) / temperature, one for a whole
    step: the noise depends only on the seed and the number of steps taken, so micro-batches, streams and workers all
    have the same. In evaluation there is no noise. `warming` marks the phase before the choices are trained: it hands
    over the network, the search hands over a tree.
    """

    noise: Tensor  # [L, T, T]
    temperature: Tensor  # []

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        name: str,
        cooling: Cooling,
        warming: bool,
    ) -> None:
        super().__init__()
        self.names, self.cooling, self.warming = tuple(task.name for task in suite.tasks), cooling, warming

        first = staged(encoder(), name)
        self.nodes = nn.ModuleList([first, *(deepcopy(first) for _ in self.names[1:])])
        self.size, self.depth = len(self.names), len(first.stages)
        self.heads = nn.ModuleList(encoder_head(first, task, dropout) for task in suite.tasks)

        self.logits = nn.ParameterList(nn.Parameter(torch.zeros(self.size)) for _ in range(self.depth * self.size))

        self.seed = int(torch.randint(1 << 31, (), device="cpu"))
        self.steps = self.epochs = 0
        self.register_buffer("noise", torch.zeros(self.depth, self.size, self.size))
        self.register_buffer("temperature", torch.tensor(cooling(0)))
        self._draw()

    # -- choices ---------------------------------------------------------------------------------------------------

    def table(self) -> Tensor:
        """Return the logits of all choices, [L, T, T]."""
        return torch.stack(list(self.logits)).reshape(self.depth, self.size, self.size)

    def choices(self) -> Tensor:
        """Return the weight of each node in each choice, [L, T, T], which sum to one along the last dimension."""
        logits = self.table()
        return ((logits + self.noise if self.training else logits) / self.temperature).softmax(-1)

    def of_choice(self, stage: int, place: int) -> nn.Parameter:
        """Return the logits [T] of a choice."""
        choice_logits: nn.Parameter = self.logits[stage * self.size + place]
        return choice_logits

    def tree(self) -> Tree:
        """Return the tree that the logits choose now."""
        raise NotImplementedError

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        self.steps += 1
        self._draw()

    def on_epoch_end(self, epoch: EpochView) -> None:
        self.epochs += 1
        self.temperature.fill_(self.cooling(self.epochs))

    @torch.no_grad()
    def _draw(self) -> None:
        generator = torch.Generator().manual_seed(self.seed + self.steps)
        waiting_times = torch.empty(self.noise.shape, dtype=torch.float64, device="cpu").exponential_(
            generator=generator
        )
        self.noise.copy_(-waiting_times.log(), non_blocking=True)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def node(self, stage: int, place: int, features: Tensor, memory: Memory) -> Tensor:
        """Return the features after a candidate of a stage; `memory` belongs to this path alone."""
        return self.encoders()[place].stage(stage, features, memory)

    def encoders(self) -> list[StagedModule]:
        """Return the encoders; node j of a stage is that stage of the j-th."""
        return list(self.nodes)  # type: ignore[arg-type]

    def start_encoders(self) -> list[nn.Module]:
        return list(self.nodes)

    def predict(self, task: str, features: Tensor) -> Tensor:
        """Return the task's prediction for features after the last stage."""
        prediction: Tensor = self.heads[self.names.index(task)](self.encoders()[0].finish(features))
        return prediction

    # -- the contract ----------------------------------------------------------------------------------------------

    def shared_parameters(self) -> list[nn.Parameter]:
        task_parameter_ids = {id(p) for task in self.names for p in self.task_parameters(task)}
        return [p for p in self.parameters() if id(p) not in task_parameter_ids]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [
            [p for encoder in self.encoders() for p in encoder.stages[stage].parameters()]
            for stage in range(self.depth)
        ]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [*self.own_choices(task), *self.heads[self.names.index(task)].parameters()]

    def own_choices(self, task: str) -> list[nn.Parameter]:
        """Return the logits that this task's loss alone moves."""
        raise NotImplementedError

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {WEIGHTS: [*self.nodes.parameters(), *self.heads.parameters()], CHOICE: list(self.logits)}

    def phase_output(self) -> PhaseOutput:
        return {"network": dict(self.state_dict())} if self.warming else {"tree": self.tree()}

    def traces(self) -> dict[str, Any]:
        """Return the temperature of the next epoch, and the probabilities [L][T][T] of all choices."""
        return {
            "temperature": float(self.temperature),
            "routing": self.table().detach().softmax(-1).tolist(),
        }

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.steps, self.epochs])

    def set_extra_state(self, state: Tensor) -> None:
        self.steps, self.epochs = state.tolist()


def warm_epochs(share: float, epochs: int) -> int:
    """Return the number of warm-up epochs of a search: at least one for a share above 0, but not all."""
    return min(math.ceil(round(share * epochs, 9)), epochs - 1)


def tree_in(found: PhaseOutput, name: str) -> Tree:
    """Return the tree that a search handed over; raise `UserError` if it is a warm-up's network."""
    if "tree" not in found:
        raise UserError(f"{name}: found is the result of a warm-up; name the file of the search that followed it")
    tree: Tree = found["tree"]
    return tree


def mixed(weights: Tensor, features: Sequence[Tensor]) -> Tensor:
    """Return sums of T features [B, ...] with weights [..., T] -> [..., B, ...]."""
    stacked = torch.stack(list(features))
    sums: Tensor = torch.tensordot(weights.to(stacked.dtype), stacked, 1)
    return sums


def likeliest(weights: Tensor, memories: Sequence[Memory]) -> Memory:
    """Return a copy of the memory, kept for later stages, of the node with the largest weight [T].

    Memories cannot be mixed as features are.
    """
    return Memory(memories[int(first_largest(weights))]) if any(memories) else Memory()
