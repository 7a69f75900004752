"""Evaluation of policies by what they do: episodes of a suite's tasks in their environments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, UserError
from mtlscale.data import Batch, Samples, Workers
from mtlscale.metrics import simulated
from mtlscale.records import Metrics
from mtlscale.rl.environments import Act, Episode, LocalRollouts, RolloutWorkers, Simulated, VectorEnv, check_package

if TYPE_CHECKING:
    from mtlscale.execution import Options
    from mtlscale.training import Trainer


@runtime_checkable
class CollectsEpisodes(Protocol):
    """Network that learns from episodes which it asks for."""

    def collect_with(self, collectors: RolloutWorkers) -> None:
        """Play with these rollout workers, set before the first epoch."""
        ...


class Simulation:
    """Episodes of a suite whose tasks are environments, shared out to workers.

    An episode of a split begins in the same state whoever plays it, and in none that training has seen.
    """

    def __init__(
        self, environments: Simulated, suite: TaskSuite, workers: Workers, device: torch.device, dtype: torch.dtype
    ):
        check_package(environments.version)
        self.environments, self.suite, self.workers, self.device, self.dtype = (
            environments,
            suite,
            workers,
            device,
            dtype,
        )
        self._vector_env = VectorEnv(environments)
        self._plays_to_end = any("return" in task.metrics for task in suite.tasks)

    @classmethod
    def of(cls, suite: TaskSuite, workers: Workers, device: torch.device, dtype: torch.dtype) -> Simulation | None:
        """Return the simulation of a suite; None where no metric asks for episodes.

        Raises:
            UserError: If a metric asks for episodes and there are no environments.
        """
        environments, tasks = Simulated.of(suite), [task for task in suite.tasks if simulated(task)]
        if not tasks:
            return None

        if environments is None:
            raise UserError(
                f"metric {simulated(tasks[0])[0]} of task {tasks[0].name} is measured by episodes in its environment, "
                f"the tasks of {suite.name} are none; choose another"
            )
        return cls(environments, suite, workers, device, dtype)

    @property
    def replaced(self) -> int:
        """The number of worlds that broke and were replaced."""
        return self._vector_env.replaced

    @torch.no_grad()
    def measured(self, model: MultiTaskModule, split: str) -> Metrics:
        """Return task -> metric -> value over a split's episodes; NaN for a split that has none.

        All workers have to call it. The network is left in evaluation mode.
        """
        count = self.environments.episodes.get(split, 0)
        if self.environments.positions == "fixed":
            count = min(count, 1)  # further episodes would be the same
        if not count:
            return {task.name: dict.fromkeys(simulated(task), math.nan) for task in self.suite.tasks}

        model.eval()
        names = [task.name for task in self.suite.tasks]

        # Each task once at a time, however many workers there are: a row's last digits depend on the rows beside it.
        numbers = range(self.workers.rank, count, self.workers.size)
        goals = [(name, self.environments.goal(split, number)) for number in numbers for name in names]
        played = self._vector_env.play(goals, self._acts(model), width=len(names), to_success=not self._plays_to_end)

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
        """Play the first episode of each task in a split, up to its first success, by this worker alone.

        The network is left in evaluation mode.
        """
        model.eval()
        orders = [(task.name, self.environments.goal(split, 0)) for task in self.suite.tasks]
        return self._vector_env.play(orders, self._acts(model), width=len(orders), to_success=True)

    def _acts(self, model: MultiTaskModule) -> Act:
        def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
            actions = np.zeros((len(tasks), self.suite.tasks[0].outputs), dtype=np.float32)
            observations = torch.from_numpy(inputs).to(self.device, self.dtype)
            for name in dict.fromkeys(tasks):
                rows = [row for row, task in enumerate(tasks) if task == name]
                batch = Batch(name, Samples(observations[rows], {}), len(rows), predict=(name,))
                actions[rows] = model(batch).predictions[name].float().cpu().numpy()
            return actions

        return act


class EpisodeEvaluator:
    """Evaluator of suites whose tasks are environments: it plays episodes where a metric asks for them.

    Attributes:
        simulation: The episodes that are measured; None where no metric asks for any.
        collectors: The rollout workers of networks that learn from episodes; by default this process.
    """

    def __init__(self, simulation: Simulation | None) -> None:
        self.simulation = simulation
        self.collectors: RolloutWorkers = LocalRollouts()
        self._model: MultiTaskModule | None = None

    def attach(self, model: MultiTaskModule) -> None:
        self._model = model
        if isinstance(model, CollectsEpisodes):
            model.collect_with(self.collectors)

    def use(self, collectors: RolloutWorkers) -> None:
        """Let these rollout workers play from now on."""
        self.collectors = collectors
        if self._model is not None:
            self.attach(self._model)

    def with_measured(self, metrics: Metrics, model: MultiTaskModule, split: str) -> Metrics:
        if self.simulation is None:
            return metrics
        played = self.simulation.measured(model, split)
        return {task: {**played[task], **values} for task, values in metrics.items()}

    def counters(self) -> dict[str, int]:
        """Return the number of worlds that broke, for runs that measure episodes."""
        if self.simulation is None:
            return {}
        return {"environments_replaced": self.simulation.replaced + self.collectors.replaced}


def episode_evaluator(
    suite: TaskSuite, workers: Workers, device: torch.device, dtype: torch.dtype
) -> EpisodeEvaluator | None:
    """Return the evaluator of a suite; None if its tasks are no environments and no metric asks for episodes.

    Raises:
        UserError: If a metric asks for episodes and there are no environments.
    """
    simulation = Simulation.of(suite, workers, device, dtype)
    return None if simulation is None and Simulated.of(suite) is None else EpisodeEvaluator(simulation)


def use_ray_workers(trainer: Trainer, options: Options) -> None:
    """Let Ray actors play the episodes of a trainer, as many as the run's resources say."""
    if isinstance(trainer.evaluator, EpisodeEvaluator):
        from mtlscale.rl.ray_workers import collectors_of

        trainer.evaluator.use(collectors_of(options.resources.collectors))
