"""Layout of the parameters of many trials: slots, each one tensor with an entry for every trial."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mtlscale.architectures import MultiTaskModule
from mtlscale.batched.eligibility import planning
from mtlscale.batched.eligibility.lengths import by_length
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Samples


@dataclass(frozen=True)
class Slot:
    """Slot of one parameter of all trials [B, ...], or of all trials and tasks [B, T, ...]."""

    names: tuple[str, ...]  # names in the network; one per task where the tasks are side by side
    task: int | None = None  # the task that it belongs to
    side_by_side: bool = False

    @property
    def shared(self) -> bool:
        return self.task is None and not self.side_by_side

    def of_task(self, numbers: Tensor) -> Tensor:
        """Return those of the numbers [B, T] that concern this slot.

        They are [B, T] for all tasks, or [B] for the slot's task; for the first task if the slot is shared.
        """
        return numbers if self.side_by_side else numbers[:, self.task or 0]


class Layout:
    """Layout of a network's slots: what its tasks share, then what is a task's own.

    `groups` are the positions of the tasks whose streams go through one pass side by side; none where streams go one by
    one.
    """

    def __init__(self, model: MultiTaskModule, names: Sequence[str], groups: Sequence[Sequence[int]] = ()) -> None:
        self.names, self.groups = tuple(names), [list(group) for group in groups]
        self.independent = model.independent
        self._reads_other_tasks = model.reads_other_tasks
        self._name_of = {id(p): name for name, p in model.named_parameters()}
        self.slots = self._slots(model)
        self.shared = [index for index, slot in enumerate(self.slots) if slot.shared]
        self._order = torch.tensor(
            [task for group in self.groups for task in group]
        )  # order of the tasks, group by group
        self._back = self._order.argsort()

    @property
    def joined(self) -> bool:
        """True where tasks are side by side."""
        return bool(self.groups)

    def _slots(self, model: MultiTaskModule) -> list[Slot]:
        slots = [Slot((self._name_of[id(p)],)) for p in model.shared_parameters()]
        own_names = [[self._name_of[id(p)] for p in model.task_parameters(task)] for task in self.names]
        if self.joined:
            return slots + [Slot(names, side_by_side=True) for names in zip(*own_names, strict=True)]
        return slots + [Slot((name,), task) for task, names in enumerate(own_names) for name in names]

    def values(self, models: Sequence[MultiTaskModule], device: torch.device) -> list[Tensor]:
        """Return the values of the slots where each trial starts with one of these networks."""
        states = [{name: p.detach().to(device) for name, p in model.named_parameters()} for model in models]

        def of_trial(slot: Slot, state: Mapping[str, Tensor]) -> Tensor:
            return torch.stack([state[name] for name in slot.names]) if slot.side_by_side else state[slot.names[0]]

        return [torch.stack([of_trial(slot, state) for state in states]) for slot in self.slots]

    def state_dict(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return one trial's values of the slots by the parameters' names."""
        result: dict[str, Tensor] = {}
        for slot, value in zip(self.slots, values, strict=True):
            parts = value.unbind() if slot.side_by_side else [value]
            result |= {name: part.clone() for name, part in zip(slot.names, parts, strict=True)}
        return result

    def places(self, parameters: Sequence[nn.Parameter]) -> list[int]:
        """Return the slots of these parameters of the network."""
        slot_of = {name: index for index, slot in enumerate(self.slots) for name in slot.names}
        return [slot_of[self._name_of[id(p)]] for p in parameters]

    def of_tasks(self, tasks: Sequence[str]) -> list[int]:
        """Return the slots that a pass for these tasks reads."""
        everything = self._reads_other_tasks
        return [
            i for i, slot in enumerate(self.slots) if everything or slot.task is None or self.names[slot.task] in tasks
        ]

    def of_groups(self, values: Sequence[Tensor], separate: Sequence[bool]) -> list[list[Tensor]]:
        """Return, for each group, the values of the slots, cut to its tasks where a slot is `separate`: [B, T, ...]."""
        sizes = [len(group) for group in self.groups]
        if len(sizes) == 1:
            return [list(values)]
        self._order = self._order.to(values[0].device)
        columns = [
            value.index_select(1, self._order).split(sizes, dim=1) if cut else [value] * len(sizes)
            for value, cut in zip(values, separate, strict=True)
        ]
        return [list(group) for group in zip(*columns, strict=True)]

    def by_task(self, columns: Tensor) -> Tensor:
        """Return columns [B, T], whose tasks are group by group, in the order of the tasks."""
        if len(self.groups) == 1:
            return columns
        self._back = self._back.to(columns.device)
        return columns.index_select(1, self._back)


def lay_out(
    model: MultiTaskModule, suite: TaskSuite, train: Mapping[str, Samples], lengths: Mapping[str, int], trials: int
) -> Layout:
    """Return the layout of `trials` trials of a network, with its tasks side by side where they are alike.

    `lengths` are the samples of each stream in a step.
    """
    names = [task.name for task in suite.tasks]
    if not tasks_are_alike(model, suite, train):
        return Layout(model, names)
    work = planning.multiplications(model, names[:1])
    return Layout(model, names, by_length([lengths[n] for n in names], planning.pass_in_samples(work, trials)))


def tasks_are_alike(model: MultiTaskModule, suite: TaskSuite, train: Mapping[str, Samples]) -> bool:
    """Return whether the tasks' networks differ in nothing but their parameters.

    Every task then has its own inputs, and its network is that of the first task with its own parameters in place of
    the first one's. This is found by trying, on random parameters.
    """
    first = suite.tasks[0]
    if suite.inputs != "per_task" or len(suite.tasks) == 1:
        return False

    kinds = {(t.loss, t.outputs, t.metrics, train[t.name].targets[t.name].shape[1:]) for t in suite.tasks}
    shapes_of_tasks = [[p.shape for p in model.task_parameters(task.name)] for task in suite.tasks]
    weighted = any(samples.weights is not None for samples in train.values())
    if len(kinds) > 1 or weighted or any(shapes != shapes_of_tasks[0] for shapes in shapes_of_tasks):
        return False

    trial = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(0)
    names = {id(p): name for name, p in trial.named_parameters()}

    with torch.no_grad():
        for parameter in trial.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        for task in {suite.tasks[i] for i in (1, len(suite.tasks) // 2, -1)}:
            inputs = train[task.name].inputs[:2].double()
            target = train[task.name].targets[task.name][:2]
            pairs = zip(trial.task_parameters(first.name), trial.task_parameters(task.name), strict=True)

            expected = trial(Batch(task.name, Samples(inputs, {task.name: target}), 2)).predictions[task.name]
            batch = Batch(first.name, Samples(inputs, {first.name: target}), 2)
            replaced: dict[str, Tensor] = {
                names[id(first_parameter)]: task_parameter for first_parameter, task_parameter in pairs
            }
            actual = functional_call(trial, replaced, (batch,), tie_weights=False).predictions[first.name]
            if not torch.allclose(actual, expected, rtol=1e-9, atol=1e-9):
                return False

    return True
