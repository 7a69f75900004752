"""Policies that nobody trains, for tasks that are environments: the floor and the mark of cloning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples
from mtlscale.rl.environments import ACTIONS, EXTRA, OBSERVATIONS, MetaWorld, Simulated, expert_of

pytest.importorskip("metaworld")

TASKS = ("reach", "drawer-close")
NAMES = ("random_actions", "scripted_expert")

Build = Callable[..., MultiTaskModule]


@pytest.fixture
def simulated() -> Simulated:
    rng = np.random.default_rng(4)
    return Simulated(
        version="3.1.1",
        reward_version="v2",
        positions="random",
        horizon=100,
        tasks=TASKS,
        task_id=True,
        mean=tuple(rng.normal(size=OBSERVATIONS).tolist()),
        std=tuple(rng.uniform(0.1, 2.0, size=OBSERVATIONS).tolist()),
        episodes={"val": 1, "test": 1},
        seed=0,
    )


@pytest.fixture
def arms(simulated: Simulated) -> TaskSuite:
    tasks = tuple(Task(name=name, loss="mse", outputs=ACTIONS, metrics=("success", "mse")) for name in TASKS)
    return TaskSuite(
        name="arms", tasks=tasks, inputs="per_task", input_kind="vector", input_shape=(simulated.inputs,),
        extras={EXTRA: simulated.as_extra()},
    )  # fmt: skip


@pytest.fixture
def policy(arms: TaskSuite) -> Build:
    def make(name: str, seed: int = 0, suite: TaskSuite = arms) -> MultiTaskModule:
        torch.manual_seed(seed)
        encoder = components.build("encoders", "mlp", {"hidden": [5]})
        built: MultiTaskModule = components.build("architectures", name).build(suite, lambda: encoder.build(suite), 0.0)
        return built

    return make


def observed(task: str, steps: int = 40) -> np.ndarray:
    """What an expert sees on its way [steps, 39]."""
    world, expert = MetaWorld(task), expert_of(task)
    found = [world.reset(3)]
    for _ in range(steps - 1):
        found.append(world.step(expert(found[-1]))[0])
    return np.stack(found)


def shown(simulated: Simulated, task: str, observations: np.ndarray) -> Batch:
    inputs = torch.from_numpy(simulated.input([task] * len(observations), observations))
    return Batch(task, Samples(inputs.double(), {task: torch.zeros(len(inputs), ACTIONS)}), len(inputs))


def acted(model: MultiTaskModule, batch: Batch) -> Tensor:
    found: Tensor = model(batch).predictions[batch.stream]
    return found


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_reads_observations_as_they_were_before_they_were_normalised(
    task: str, simulated: Simulated, policy: Build
) -> None:
    observations, expert = observed(task), expert_of(task)
    found = acted(policy("scripted_expert"), shown(simulated, task, observations))
    wanted = np.stack([expert(row) for row in observations])
    assert found.shape == (40, ACTIONS)
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-4)  # inputs are float32
    assert np.ptp(wanted, axis=0).max() > 0.1


def test_each_task_has_its_expert(simulated: Simulated, policy: Build) -> None:
    model, observations = policy("scripted_expert"), observed("reach")
    reach, drawer = (acted(model, shown(simulated, task, observations)) for task in TASKS)
    assert not torch.allclose(reach, drawer, atol=0.1)


def test_random_actions_are_even_and_each_steps_is_another(simulated: Simulated, policy: Build) -> None:
    rows = simulated.input(["reach"] * 5000, np.random.default_rng(0).normal(size=(5000, OBSERVATIONS)))
    found = acted(policy("random_actions"), Batch("reach", Samples(torch.from_numpy(rows).double(), {}), 5000,
                                                  predict=("reach",)))  # fmt: skip
    assert bool((found.abs() <= 1).all())
    for place in range(ACTIONS):
        counts = torch.histc(found[:, place].detach(), bins=10, min=-1, max=1)
        assert float(((counts - 500) ** 2 / 500).sum()) < 35  # of nine degrees of freedom: one in 20 000 is larger
    correlations = np.corrcoef(found.detach().numpy().T)
    assert np.abs(correlations - np.eye(ACTIONS)).max() < 0.06
    close = observed("reach")  # steps that follow each other
    ahead = acted(policy("random_actions"), shown(simulated, "reach", close)).detach().numpy()
    assert np.abs(np.corrcoef(ahead[:-1].flatten(), ahead[1:].flatten())[0, 1]) < 0.3


def test_random_actions_are_a_function_of_the_input_and_the_seed(simulated: Simulated, policy: Build) -> None:
    batch = shown(simulated, "reach", observed("reach"))
    model = policy("random_actions")
    found = acted(model, batch)
    assert torch.equal(acted(policy("random_actions"), batch), found)
    assert not torch.isclose(acted(policy("random_actions", seed=1), batch), found).any()
    for row in range(3):
        alone = Batch("reach", Samples(batch.inputs[row : row + 1], {}), 1, predict=("reach",))
        torch.testing.assert_close(acted(model, alone)[0], found[row], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_them_is_trained_and_all_of_them_travels(name: str, simulated: Simulated, policy: Build) -> None:
    batch = shown(simulated, "reach", observed("reach"))
    model, other = policy(name), policy(name, seed=5)
    found = acted(model, batch)
    assert model.shared_parameters() == []
    for task in TASKS:
        gradients = torch.autograd.grad(found.square().sum(), list(model.parameters()), allow_unused=True,
                                        retain_graph=True)  # fmt: skip
        assert all(gradient is None or not gradient.any() for gradient in gradients)
        assert len(model.task_parameters(task)) == 1
    other.load_state_dict(model.state_dict())
    assert torch.equal(acted(other, batch), found)
    empty = Batch("reach", Samples(batch.inputs[:0], {}), 0, predict=("reach",))
    assert acted(model, empty).shape == (0, ACTIONS)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_that_are_no_environments_are_refused(name: str, suite: Any, policy: Build) -> None:
    message = f"{name} acts in environments, the tasks of three are none; choose metaworld, or hps"
    with pytest.raises(UserError, match=message):
        policy(name, suite=suite)
