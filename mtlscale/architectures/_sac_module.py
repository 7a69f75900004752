"""The networks of soft actor-critic, the replay they learn from, and the rounds of collecting that fill it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from mtlscale.architectures._base import MultiTaskModule
from mtlscale.architectures._phases import Found, Source
from mtlscale.architectures._replay import Replay, Transitions
from mtlscale.architectures._sac_losses import follow, squashed
from mtlscale.architectures._sac_networks import NetworkMaker, TaskNetwork
from mtlscale.architectures._sac_sources import (
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
from mtlscale.data import Batch, Outputs, Workers
from mtlscale.environments import (
    ACTIONS,
    OBSERVATIONS,
    Act,
    Collectors,
    Episode,
    Here,
    Order,
    Simulated,
    check_package,
    episode_seed,
)
from mtlscale.environments import chances as normal
from mtlscale.spec import TaskSuite


class GaussianActing:
    """The policy as it travels to collectors: a copy of the actor, drawing from what it says; or even draws, before it
    has learned anything.

    One row at a time, so that its actions do not depend on which episodes are played together.
    """

    def __init__(self, actor: TaskNetwork, tasks: Sequence[str], horizon: int, even: bool) -> None:
        self.actor = deepcopy(actor).cpu().eval()
        self.tasks, self.horizon, self.even = tuple(tasks), horizon, even

    def policy(self, orders: Sequence[Order]) -> Act:
        if self.even:
            drawn = [np.random.default_rng(o.chance).uniform(-1, 1, (self.horizon, ACTIONS)) for o in orders]
            return lambda tasks, numbers, steps, inputs: np.stack(
                [drawn[number][step] for number, step in zip(numbers, steps, strict=True)]
            )
        noise = torch.from_numpy(normal(orders, self.horizon, ACTIONS))
        dtype = next(self.actor.parameters()).dtype

        @torch.no_grad()
        def act(tasks: Sequence[str], numbers: Sequence[int], steps: Sequence[int], inputs: np.ndarray) -> np.ndarray:
            rows = torch.from_numpy(inputs).to(dtype)
            found = []
            for task, number, step, row in zip(tasks, numbers, steps, rows, strict=True):
                said = self.actor(row.reshape(1, 1, -1), [self.tasks.index(task)])
                found.append(squashed(said, noise[number, step].to(dtype))[0].reshape(-1))
            return torch.stack(found).float().numpy()

        return act


class SACModule(MultiTaskModule):
    """An actor, two critics, what follows these, and a temperature for each task. A prediction is the action in the
    middle of the policy, tanh μ."""

    def __init__(self, suite: TaskSuite, told: Simulated, settings: Settings, make: NetworkMaker) -> None:
        super().__init__()
        self.told, self.settings = told, settings
        self.tasks = tuple(task.name for task in suite.tasks)
        self.actions = ACTIONS
        self.actor = make("actor", told.inputs, 2 * ACTIONS)
        self.critics = nn.ModuleList(make("critics", told.inputs + ACTIONS, 1) for _ in range(2))
        start = float(np.log(settings.temperature))
        self.log_alphas = nn.ParameterList(nn.Parameter(torch.full((), start)) for _ in self.tasks)
        self.independent = not self.actor.shared()
        for name, value in self.critics.named_parameters():
            self.register_buffer(_target(name), value.detach().clone())
        # From the stream that initialised the networks: another run seed, other chances.
        self.seed = int(torch.randint(1 << 31, ()))
        self.steps = dict.fromkeys(self.sources(), 0)
        self.critics_moved = False
        self.replay = Replay(len(self.tasks), settings.replay, OBSERVATIONS, ACTIONS)
        self._collectors: Collectors = Here()
        self._told: dict[str, Any] = {}
        self._seconds = {"simulation_seconds": 0.0, "learning_seconds": 0.0}
        self._since = 0.0

    # -- networks --------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Outputs:
        found = {}
        for name in batch.tasks:
            said = self.actor(batch.inputs.unsqueeze(0), [self.tasks.index(name)])[0]
            found[name] = said.chunk(2, -1)[0].tanh()
        return Outputs(found)

    def log_alpha(self) -> Tensor:
        """[T]."""
        return torch.stack(list(self.log_alphas))

    def acted(self, inputs: Tensor) -> Tensor:
        """What the actor says [T, B, 2 actions] of inputs [T, B, inputs] of all tasks."""
        found: Tensor = self.actor(inputs, range(len(self.tasks)))
        return found

    def valued(self, inputs: Tensor, actions: Tensor, of_targets: bool = False) -> Tensor:
        """[critics, T, B] of actions [T, B, actions]."""
        rows, places = torch.cat([inputs, actions], -1), range(len(self.tasks))
        if not of_targets:
            return torch.stack([critic(rows, places).squeeze(-1) for critic in self.critics])
        found = []
        for number, critic in enumerate(self.critics):
            held = {name: self.get_buffer(_target(f"{number}.{name}")) for name, _ in critic.named_parameters()}
            found.append(functional_call(critic, held, (rows, places)).squeeze(-1))
        return torch.stack(found)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.shared_modules() for parameter in module]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [module for network in (self.actor, *self.critics) for module in network.shared()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.tasks.index(task)
        networks = (self.actor, *self.critics)
        own = [p for network in networks for p in (*network.own(place), *network.choices(place))]
        return [*own, self.log_alphas[place]]

    def groups(self) -> Mapping[str, list[nn.Parameter]]:
        chosen = {CHOOSE_CRITICS: _choices(self.critics, self.tasks), CHOOSE_ACTOR: _choices([self.actor], self.tasks)}
        apart = {id(p) for part in chosen.values() for p in part}
        parts = {CRITICS: self.critics, ACTOR: self.actor, TEMPERATURE: self.log_alphas}
        found = {name: [p for p in part.parameters() if id(p) not in apart] for name, part in parts.items()}
        return found | {name: part for name, part in chosen.items() if part}

    def sources(self) -> Mapping[str, Source]:
        found: dict[str, Source] = {
            CRITICS: CriticSource(self, CRITICS),
            ACTOR: ActorSource(self, ACTOR),
            TEMPERATURE: TemperatureSource(self, TEMPERATURE),
        }
        if _choices([self.actor], self.tasks):
            found |= {CHOOSE_CRITICS: CriticSource(self, CHOOSE_CRITICS), CHOOSE_ACTOR: ActorSource(self, CHOOSE_ACTOR)}
        return found

    def hand_over(self) -> Found:
        critic = self.critics[0]
        assert isinstance(critic, TaskNetwork)
        return {"points": {"actor": self.actor.points(), "critics": critic.points()}}

    def structure(self) -> dict[str, Any]:
        points = self.actor.points()
        return {"points": dict(zip(self.tasks, points, strict=True))} if points else {}

    def after_step(self, lr: float, sum: Any) -> None:
        if self.critics_moved:
            held = [self.get_buffer(_target(name)) for name, _ in self.critics.named_parameters()]
            follow(held, self.critics.parameters(), self.settings.follow)
        self.critics_moved = False

    def discard_step(self) -> None:
        self.critics_moved = False

    # -- replay ----------------------------------------------------------------------------------------------------

    def drawn(self, turn: str, number: int) -> tuple[Transitions, Tensor]:
        """This worker's part of the transitions of a turn's step, and of standard normal numbers [T, B, actions]."""
        shape = (len(self.tasks), self.settings.replay_batch)
        which = torch.Generator().manual_seed(episode_seed(self.seed, "replay", turn, number))
        places = torch.randint(len(self.replay), shape, generator=which)
        chance = torch.Generator().manual_seed(episode_seed(self.seed, turn, number))
        noise = torch.randn((*shape, ACTIONS), generator=chance, dtype=torch.float32)  # in any precision the same
        mine = part_of(self.settings.replay_batch)
        taken = self.replay.take(places[:, mine])
        parts = (self._inputs(taken.inputs), taken.actions, taken.rewards.unsqueeze(-1), self._inputs(taken.after))
        like = self.log_alphas[0]
        there = torch.cat([*parts, noise[:, mine]], -1).to(like.device, non_blocking=True).to(like.dtype)  # in one copy
        inputs, actions, rewards, after, noise = there.split(
            [self.told.inputs, ACTIONS, 1, self.told.inputs, ACTIONS], -1
        )
        return Transitions(inputs, actions, rewards.squeeze(-1), after), noise

    def _inputs(self, observations: Tensor) -> Tensor:
        """[T, B, 39] -> [T, B, inputs]: with each task's one-hot vector where inputs have it."""
        if not self.told.task_id:
            return observations
        places = torch.tensor([self.told.place(task) for task in self.tasks])
        ones = torch.eye(len(self.told.tasks), dtype=observations.dtype)[places]
        return torch.cat([observations, ones.unsqueeze(1).expand(-1, observations.shape[1], -1)], -1)

    def memory_state(self) -> dict[str, Any]:
        return {"replay": self.replay.state(), "steps": dict(self.steps), "seconds": dict(self._seconds)}

    def load_memory_state(self, content: Mapping[str, Any]) -> None:
        self.replay.load(content["replay"])
        self.steps, self._seconds = dict(content["steps"]), dict(content["seconds"])

    # -- rounds ----------------------------------------------------------------------------------------------------

    def collect_with(self, collectors: Collectors) -> None:
        check_package(self.told.version)
        self._collectors = collectors

    def on_epoch_begin(self, epoch: int) -> None:
        """Episodes of every task with the policy as it is, into the replay; the first round before any learning is
        longer."""
        started = time.perf_counter()
        even = epoch == 1
        count = self.settings.first_episodes if even else self.settings.round_episodes
        before = 0 if even else self.settings.first_episodes + (epoch - 2) * self.settings.round_episodes
        orders = [
            Order(task, self.told.goal("train", number), episode_seed(self.seed, "chance", number, task))
            for number in range(before, before + count)
            for task in self.tasks
        ]
        acting = GaussianActing(self.actor, self.tasks, self.told.horizon, even)
        workers = Workers.current()
        mine = orders[workers.rank :: workers.size]
        episodes = self._collectors(self.told, acting, mine) if mine else []
        inputs, actions, rewards, won = self._all(episodes, len(orders), workers)
        parts = (inputs[:, :-1], actions, rewards, inputs[:, 1:])
        self.replay.add(Transitions(*(_of_tasks(part, len(self.tasks)) for part in parts)))
        by_task = won.reshape(count, len(self.tasks)), rewards.sum(1).reshape(count, len(self.tasks))
        self._told = {
            "collected_success": (100.0 * by_task[0].mean(0)).tolist(),
            "collected_return": by_task[1].mean(0).tolist(),
            "environment_steps": float(self.replay.added * len(self.tasks)),
        }
        self._since = time.perf_counter()
        self._seconds["simulation_seconds"] += self._since - started

    def on_epoch_end(self, epoch: int) -> None:
        self._seconds["learning_seconds"] += time.perf_counter() - self._since

    def traces(self) -> dict[str, Any]:
        alphas = self.log_alpha().detach().exp().double().tolist()
        return {**self._told, **self._seconds, "temperature": alphas}

    def _all(self, episodes: Sequence[Episode], orders: int, workers: Workers) -> tuple[Tensor, ...]:
        """Of the episodes of all workers, in the order of their orders: observations [orders, horizon + 1, 39], actions
        [orders, horizon, 4], rewards [orders, horizon], successes [orders]."""
        horizon = self.told.horizon
        found = (
            torch.zeros(orders, horizon + 1, OBSERVATIONS, dtype=torch.float32),
            torch.zeros(orders, horizon, ACTIONS, dtype=torch.float32),
            torch.zeros(orders, horizon, dtype=torch.float32),
            torch.zeros(orders, dtype=torch.float32),
        )
        for place, episode in zip(range(workers.rank, orders, workers.size), episodes, strict=True):
            found[0][place] = torch.from_numpy(episode.inputs[:, :OBSERVATIONS])
            found[1][place] = torch.from_numpy(episode.actions)
            found[2][place] = torch.from_numpy(episode.rewards)
            found[3][place] = float(episode.success)
        if workers.size == 1:
            return found
        there = [part.to(self.log_alphas[0].device) for part in found]
        workers.sum_many(there)  # each place has the numbers of one worker, and zeros
        return tuple(part.cpu() for part in there)


def _choices(networks: Iterable[nn.Module], tasks: Sequence[str]) -> list[nn.Parameter]:
    """What chooses, in some networks."""
    return [
        p
        for network in networks
        if isinstance(network, TaskNetwork)
        for place in range(len(tasks))
        for p in network.choices(place)
    ]


def _target(name: str) -> str:
    """The buffer that follows a parameter of the critics."""
    return f"target_{name.replace('.', '_')}"


def _of_tasks(part: Tensor, tasks: int) -> Tensor:
    """[episodes x tasks, steps, ...] -> [tasks, episodes x steps, ...]."""
    found: Tensor = part.unflatten(0, (-1, tasks)).movedim(1, 0)
    return found.flatten(1, 2)
