"""Policies measured by what they do: episodes of a suite's tasks in their environments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Batch, Samples, Workers
from mtlscale.environments import Act, Collectors, Episode, Fleet, Simulated, check_package
from mtlscale.metrics import simulated
from mtlscale.records import Metrics
from mtlscale.spec import TaskSuite, UserError


class Simulation:
    """Episodes of a suite whose tasks are environments, shared out to workers. An episode of a split begins in the same
    places whoever plays it, and in none that training has seen."""

    def __init__(self, told: Simulated, suite: TaskSuite, workers: Workers, device: torch.device, dtype: torch.dtype):
        check_package(told.version)
        self.told, self.suite, self.workers, self.device, self.dtype = told, suite, workers, device, dtype
        self._fleet = Fleet(told)
        self._whole = any("return" in task.metrics for task in suite.tasks)

    @classmethod
    def of(cls, suite: TaskSuite, workers: Workers, device: torch.device, dtype: torch.dtype) -> Simulation | None:
        """None where no metric asks for episodes; `UserError` where one does and there are no environments."""
        told, asked = Simulated.of(suite), [task for task in suite.tasks if simulated(task)]
        if not asked:
            return None
        if told is None:
            raise UserError(
                f"metric {simulated(asked[0])[0]} of task {asked[0].name} is measured by episodes in its environment, "
                f"the tasks of {suite.name} are none; choose another"
            )
        return cls(told, suite, workers, device, dtype)

    @property
    def replaced(self) -> int:
        """Worlds that broke and were replaced."""
        return self._fleet.replaced

    @torch.no_grad()
    def measured(self, model: MultiTaskModule, split: str) -> Metrics:
        """Task -> metric -> value over a split's episodes; NaN of a split that has none. Leaves the network in
        evaluation mode. All workers have to call it."""
        count = self.told.episodes.get(split, 0)
        if self.told.positions == "fixed":
            count = min(count, 1)  # the others would be the same
        if not count:
            return {task.name: dict.fromkeys(simulated(task), math.nan) for task in self.suite.tasks}
        model.eval()
        names = [task.name for task in self.suite.tasks]
        # Each task once at a time, however many workers there are: a row's last digits depend on the rows beside it.
        numbers = range(self.workers.rank, count, self.workers.size)
        mine = [(name, self.told.goal(split, number)) for number in numbers for name in names]
        played = self._fleet.play(mine, self._acts(model), width=len(names), to_success=not self._whole)
        sums = torch.zeros(len(names), 2, dtype=torch.float64)
        for episode in played:
            sums[names.index(episode.task)] += torch.tensor([float(episode.success), float(episode.rewards.sum())])
        means = (self.workers.sum(sums.to(self.device)).cpu() / count).tolist()
        values = {
            name: {"success": 100.0 * won, "return": total} for name, (won, total) in zip(names, means, strict=True)
        }
        return {task.name: {m: values[task.name][m] for m in simulated(task)} for task in self.suite.tasks}

    @torch.no_grad()
    def first_episodes(self, model: MultiTaskModule, split: str = "test") -> list[Episode]:
        """Of each task the first episode of a split, up to its first success, by this worker alone. Leaves the network
        in evaluation mode."""
        model.eval()
        orders = [(task.name, self.told.goal(split, 0)) for task in self.suite.tasks]
        return self._fleet.play(orders, self._acts(model), width=len(orders), to_success=True)

    def _acts(self, model: MultiTaskModule) -> Act:
        def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
            found = np.zeros((len(tasks), self.suite.tasks[0].outputs), dtype=np.float32)
            given = torch.from_numpy(inputs).to(self.device, self.dtype)
            for name in dict.fromkeys(tasks):
                rows = [row for row, task in enumerate(tasks) if task == name]
                batch = Batch(name, Samples(given[rows], {}), len(rows), predict=(name,))
                found[rows] = model(batch).predictions[name].float().cpu().numpy()
            return found

        return act


def with_episodes(found: Metrics, simulation: Simulation | None, model: MultiTaskModule, split: str) -> Metrics:
    """What was measured on a split's samples, and by its episodes."""
    if simulation is None:
        return found
    played = simulation.measured(model, split)
    return {task: {**played[task], **values} for task, values in found.items()}


def replaced(simulation: Simulation | None, collectors: Collectors) -> dict[str, int]:
    """The counter of worlds that broke, of runs that play episodes."""
    return {} if simulation is None else {"environments_replaced": simulation.replaced + collectors.replaced}
