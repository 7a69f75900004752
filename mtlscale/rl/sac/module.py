"""The networks of soft actor-critic, their replay buffer, and the rounds of collecting that fill it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.hooks import EpochView
from mtlscale.architectures.phases import PhaseOutput, Source
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs, Workers
from mtlscale.rl.environments import (
    ACTIONS,
    OBSERVATIONS,
    Act,
    Episode,
    EpisodeRequest,
    LocalRollouts,
    RolloutWorkers,
    Simulated,
    check_package,
    episode_seed,
)
from mtlscale.rl.environments import chances as normal
from mtlscale.rl.sac.losses import polyak_update, squashed
from mtlscale.rl.sac.networks import NetworkMaker, TaskNetwork
from mtlscale.rl.sac.replay_buffer import ReplayBuffer, Transitions
from mtlscale.rl.sac.sources import (
    ACTOR,
    CHOOSE_ACTOR,
    CHOOSE_CRITICS,
    CRITICS,
    TEMPERATURE,
    ActorSource,
    CriticSource,
    Settings,
    TemperatureSource,
    part_of,
)


class GaussianPolicyFactory:
    """The policy that is sent to the collectors: a copy of the actor that draws actions from its Gaussian.

    With `uniform` it draws uniform actions instead, before anything has been learned. It computes one row at a time, so
    that its actions do not depend on which episodes are played together.
    """

    def __init__(self, actor: TaskNetwork, tasks: Sequence[str], horizon: int, uniform: bool) -> None:
        self.actor = deepcopy(actor).cpu().eval()
        self.tasks, self.horizon, self.uniform = tuple(tasks), horizon, uniform

    def policy(self, orders: Sequence[EpisodeRequest]) -> Act:
        if self.uniform:
            uniform_actions = [
                np.random.default_rng(o.noise_seed).uniform(-1, 1, (self.horizon, ACTIONS)) for o in orders
            ]
            return lambda tasks, numbers, steps, inputs: np.stack(
                [uniform_actions[number][step] for number, step in zip(numbers, steps, strict=True)]
            )

        noise = torch.from_numpy(normal(orders, self.horizon, ACTIONS))
        dtype = next(self.actor.parameters()).dtype

        @torch.no_grad()
        def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
            rows = torch.from_numpy(inputs).to(dtype)
            actions = []
            for task, number, step, row in zip(tasks, numbers, steps, rows, strict=True):
                output = self.actor(row.reshape(1, 1, -1), [self.tasks.index(task)])
                actions.append(squashed(output, noise[number, step].to(dtype))[0].reshape(-1))
            return torch.stack(actions).float().numpy()

        return act


class SACModule(MultiTaskModule):
    """The networks of soft actor-critic: an actor, two critics with target networks, and a temperature for each task.

    A prediction is the policy's central action, tanh μ.
    """

    def __init__(self, suite: TaskSuite, environments: Simulated, settings: Settings, make: NetworkMaker) -> None:
        super().__init__()
        self.environments, self.settings = environments, settings
        self.tasks = tuple(task.name for task in suite.tasks)
        self.actions = ACTIONS

        self.actor = make("actor", environments.inputs, 2 * ACTIONS)
        self.critics = nn.ModuleList(make("critics", environments.inputs + ACTIONS, 1) for _ in range(2))
        start = float(np.log(settings.temperature))
        self.log_alphas = nn.ParameterList(nn.Parameter(torch.full((), start)) for _ in self.tasks)

        self.independent = not self.actor.shared()
        for name, value in self.critics.named_parameters():
            self.register_buffer(_target(name), value.detach().clone())

        # Drawn after the networks' initial weights, so that another seed of the run gives other random numbers.
        self.seed = int(torch.randint(1 << 31, ()))
        self.steps = dict.fromkeys(self.sources(), 0)
        self.critics_moved = False

        self.replay = ReplayBuffer(len(self.tasks), settings.replay, OBSERVATIONS, ACTIONS)
        self._collectors: RolloutWorkers = LocalRollouts()
        self._environments: dict[str, Any] = {}
        self._seconds = {"simulation_seconds": 0.0, "learning_seconds": 0.0}
        self._since = 0.0

    # -- networks --------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Outputs:
        predictions = {}
        for name in batch.tasks:
            output = self.actor(batch.inputs.unsqueeze(0), [self.tasks.index(name)])[0]
            predictions[name] = output.chunk(2, -1)[0].tanh()
        return Outputs(predictions)

    def log_alpha(self) -> Tensor:
        """Return the logarithms of the temperatures, [T]."""
        return torch.stack(list(self.log_alphas))

    def sample_actions(self, inputs: Tensor) -> Tensor:
        """Return the actor's outputs [T, B, 2 actions] for inputs [T, B, inputs] of all tasks."""
        outputs: Tensor = self.actor(inputs, range(len(self.tasks)))
        return outputs

    def q_values(self, inputs: Tensor, actions: Tensor, of_targets: bool = False) -> Tensor:
        """Return the critics' values [critics, T, B] of actions [T, B, actions]."""
        rows, tasks = torch.cat([inputs, actions], -1), range(len(self.tasks))
        if not of_targets:
            return torch.stack([critic(rows, tasks).squeeze(-1) for critic in self.critics])
        values = []
        for number, critic in enumerate(self.critics):
            target_parameters = {
                name: self.get_buffer(_target(f"{number}.{name}")) for name, _ in critic.named_parameters()
            }
            values.append(functional_call(critic, target_parameters, (rows, tasks)).squeeze(-1))
        return torch.stack(values)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.shared_modules() for parameter in module]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [module for network in (self.actor, *self.critics) for module in network.shared()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.tasks.index(task)
        networks = (self.actor, *self.critics)
        parameters = [p for network in networks for p in (*network.parameters_of(index), *network.choices(index))]
        return [*parameters, self.log_alphas[index]]

    def groups(self) -> Mapping[str, list[nn.Parameter]]:
        choices = {CHOOSE_CRITICS: _choices(self.critics, self.tasks), CHOOSE_ACTOR: _choices([self.actor], self.tasks)}
        choice_ids = {id(p) for part in choices.values() for p in part}
        parts = {CRITICS: self.critics, ACTOR: self.actor, TEMPERATURE: self.log_alphas}
        groups = {name: [p for p in part.parameters() if id(p) not in choice_ids] for name, part in parts.items()}
        return groups | {name: part for name, part in choices.items() if part}

    def sources(self) -> Mapping[str, Source]:
        sources: dict[str, Source] = {
            CRITICS: CriticSource(self, CRITICS),
            ACTOR: ActorSource(self, ACTOR),
            TEMPERATURE: TemperatureSource(self, TEMPERATURE),
        }
        if _choices([self.actor], self.tasks):
            sources |= {
                CHOOSE_CRITICS: CriticSource(self, CHOOSE_CRITICS),
                CHOOSE_ACTOR: ActorSource(self, CHOOSE_ACTOR),
            }
        return sources

    def phase_output(self) -> PhaseOutput:
        critic = self.critics[0]
        assert isinstance(critic, TaskNetwork)
        return {"points": {"actor": self.actor.points(), "critics": critic.points()}}

    def structure(self) -> dict[str, Any]:
        points = self.actor.points()
        return {"points": dict(zip(self.tasks, points, strict=True))} if points else {}

    def after_step(self, lr: float, sum: Any) -> None:
        if self.critics_moved:
            targets = [self.get_buffer(_target(name)) for name, _ in self.critics.named_parameters()]
            polyak_update(targets, self.critics.parameters(), self.settings.follow)
        self.critics_moved = False

    def discard_step(self) -> None:
        self.critics_moved = False

    # -- replay ----------------------------------------------------------------------------------------------------

    def sampled_batch(self, turn: str, number: int) -> tuple[Transitions, Tensor]:
        """Return this worker's part of a step's transitions, and of its standard normal noise [T, B, actions]."""
        shape = (len(self.tasks), self.settings.replay_batch)
        index_generator = torch.Generator().manual_seed(episode_seed(self.seed, "replay", turn, number))
        indices = torch.randint(len(self.replay), shape, generator=index_generator)
        noise_generator = torch.Generator().manual_seed(episode_seed(self.seed, turn, number))
        # float32 in any precision, so that the numbers are the same.
        noise = torch.randn((*shape, ACTIONS), generator=noise_generator, dtype=torch.float32)

        own_part = part_of(self.settings.replay_batch)
        transitions = self.replay.at(indices[:, own_part])
        parts = (
            self._inputs(transitions.inputs),
            transitions.actions,
            transitions.rewards.unsqueeze(-1),
            self._inputs(transitions.after),
        )

        reference = self.log_alphas[0]
        # The device receives all columns in one copy.
        columns = (
            torch.cat([*parts, noise[:, own_part]], -1).to(reference.device, non_blocking=True).to(reference.dtype)
        )

        inputs, actions, rewards, next_inputs, noise = columns.split(
            [self.environments.inputs, ACTIONS, 1, self.environments.inputs, ACTIONS], -1
        )
        return Transitions(inputs, actions, rewards.squeeze(-1), next_inputs), noise

    def _inputs(self, observations: Tensor) -> Tensor:
        """Return inputs [T, B, inputs] of observations [T, B, 39]: with task one-hot vectors if inputs have them."""
        if not self.environments.task_id:
            return observations
        indices = torch.tensor([self.environments.task_index(task) for task in self.tasks])
        one_hot = torch.eye(len(self.environments.tasks), dtype=observations.dtype)[indices]
        return torch.cat([observations, one_hot.unsqueeze(1).expand(-1, observations.shape[1], -1)], -1)

    def memory_state(self) -> dict[str, Any]:
        return {"replay": self.replay.state(), "steps": dict(self.steps), "seconds": dict(self._seconds)}

    def load_memory_state(self, content: Mapping[str, Any]) -> None:
        self.replay.load(content["replay"])
        self.steps, self._seconds = dict(content["steps"]), dict(content["seconds"])

    # -- rounds ----------------------------------------------------------------------------------------------------

    def collect_with(self, collectors: RolloutWorkers) -> None:
        check_package(self.environments.version)
        self._collectors = collectors

    def on_epoch_begin(self, epoch: EpochView) -> None:
        """Collect episodes of every task with the current policy, and add them to the replay buffer.

        The first round, before any learning, is longer.
        """
        started = time.perf_counter()
        is_first, first, each = epoch.number == 1, self.settings.first_episodes, self.settings.round_episodes
        count = first if is_first else each
        first_number = 0 if is_first else first + (epoch.number - 2) * each

        orders = [
            EpisodeRequest(
                task, self.environments.goal("train", number), episode_seed(self.seed, "chance", number, task)
            )
            for number in range(first_number, first_number + count)
            for task in self.tasks
        ]

        acting = GaussianPolicyFactory(self.actor, self.tasks, self.environments.horizon, is_first)
        workers = Workers.current()
        own_orders = orders[workers.rank :: workers.size]
        episodes = self._collectors(self.environments, acting, own_orders) if own_orders else []

        inputs, actions, rewards, successes = self._gather_episodes(episodes, len(orders), workers)
        parts = (inputs[:, :-1], actions, rewards, inputs[:, 1:])
        self.replay.add(Transitions(*(_of_tasks(part, len(self.tasks)) for part in parts)))

        task_results = successes.reshape(count, len(self.tasks)), rewards.sum(1).reshape(count, len(self.tasks))
        self._environments = {
            "collected_success": (100.0 * task_results[0].mean(0)).tolist(),
            "collected_return": task_results[1].mean(0).tolist(),
            "environment_steps": float(self.replay.added * len(self.tasks)),
        }

        self._since = time.perf_counter()
        self._seconds["simulation_seconds"] += self._since - started

    def on_epoch_end(self, epoch: EpochView) -> None:
        self._seconds["learning_seconds"] += time.perf_counter() - self._since

    def traces(self) -> dict[str, Any]:
        alphas = self.log_alpha().detach().exp().double().tolist()
        return {**self._environments, **self._seconds, "temperature": alphas}

    def _gather_episodes(self, episodes: Sequence[Episode], orders: int, workers: Workers) -> tuple[Tensor, ...]:
        """Return all workers' observations, actions, rewards and successes, in the order of their requests."""
        horizon = self.environments.horizon
        arrays = (
            torch.zeros(orders, horizon + 1, OBSERVATIONS, dtype=torch.float32),
            torch.zeros(orders, horizon, ACTIONS, dtype=torch.float32),
            torch.zeros(orders, horizon, dtype=torch.float32),
            torch.zeros(orders, dtype=torch.float32),
        )

        for index, episode in zip(range(workers.rank, orders, workers.size), episodes, strict=True):
            arrays[0][index] = torch.from_numpy(episode.inputs[:, :OBSERVATIONS])
            arrays[1][index] = torch.from_numpy(episode.actions)
            arrays[2][index] = torch.from_numpy(episode.rewards)
            arrays[3][index] = float(episode.success)

        if workers.size == 1:
            return arrays
        device_arrays = [part.to(self.log_alphas[0].device) for part in arrays]
        workers.sum_many(device_arrays)  # each entry is nonzero on one worker only
        return tuple(part.cpu() for part in device_arrays)


def _choices(networks: Iterable[nn.Module], tasks: Sequence[str]) -> list[nn.Parameter]:
    return [
        p
        for network in networks
        if isinstance(network, TaskNetwork)
        for index in range(len(tasks))
        for p in network.choices(index)
    ]


def _target(name: str) -> str:
    """Return the name of the buffer that is the target of a critic's parameter."""
    return f"target_{name.replace('.', '_')}"


def _of_tasks(part: Tensor, tasks: int) -> Tensor:
    """Reorder [episodes x tasks, steps, ...] -> [tasks, episodes x steps, ...]."""
    by_task: Tensor = part.unflatten(0, (-1, tasks)).movedim(1, 0)
    return by_task.flatten(1, 2)
