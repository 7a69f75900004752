"""Soft actor-critic: its formulas, its replay, and runs that learn on what they collect."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from two_workers import two_workers

from mtlscale.architectures import EpochView
from mtlscale.config import Experiment, Run, UserError, build
from mtlscale.config.settings.models import MethodSpec
from mtlscale.data import PreparedData, Workers, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.rl.architectures.soft_modules import SoftModularNetwork, SoftModules
from mtlscale.rl.environments import OBSERVATIONS, Episode
from mtlscale.rl.ray_workers import RayRolloutWorkers
from mtlscale.rl.sac import losses as sac
from mtlscale.rl.sac.branching import BranchedNetwork
from mtlscale.rl.sac.module import SACModule
from mtlscale.rl.sac.networks import SharedNetwork, WithHeads, layers_of
from mtlscale.rl.sac.replay_buffer import ReplayBuffer, Transitions
from mtlscale.training import Trainer, finish

OPTIONS = {"tasks": ["reach", "drawer-close"], "horizon": 12, "demonstrations": 10, "episodes": 1, "val_episodes": 1}
SMALL = {"first_episodes": 2, "replay_batch": 7, "replay": 40}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    pytest.importorskip("metaworld")
    return load_prepared(prepare("metaworld", OPTIONS, None, tmp_path_factory.mktemp("home"), engine="local"))


def run_on(data: PreparedData, method: dict[str, Any] | None = None, encoder: Any = None, **training: Any) -> Run:
    spec = MethodSpec.model_validate({"name": "sac", **SMALL, **(method or {})})
    settings = {"epochs": 3, "steps_per_epoch": 3, "lr": 1e-2, "dtype": "float64", "evaluate_every": 3, **training}
    model = {"encoder": encoder or {"name": "mlp", "hidden": [8, 8]}}
    experiment = Experiment.model_validate(
        {
            "name": "acting",
            "datasets": [{"name": "metaworld", "options": OPTIONS}],
            "methods": [spec.model_dump()],
            "floors": [],
            "seeds": [3],
            "model": model,
            "training": settings,
        }
    )
    return next(experiment.runs({"metaworld": data.manifest.fingerprint}))


def ended(run: Run, data: PreparedData, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Any]:
    trainer = Trainer(run, data, workers=workers, folder=folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    model = trainer.model
    assert isinstance(model, SACModule)
    losses = [list(epoch.train_loss.values()) for epoch in record.epochs]
    weights = [list(epoch.weights.values()) for epoch in record.epochs]
    told = [epoch.traces["temperature"] + epoch.traces["collected_return"] for epoch in record.epochs]
    return {
        **model.state_dict(),
        **{f"replay.{name}": value for name, value in model.replay.state().items() if name != "added"},
        "added": torch.tensor(model.replay.added),
        "losses": torch.tensor(losses, dtype=torch.float64),
        "weights": torch.tensor(weights, dtype=torch.float64),
        "told": torch.tensor(told, dtype=torch.float64),
    }


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor], **within: float) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        torch.testing.assert_close(value, right[key], msg=lambda text, key=key: f"{key}: {text}", **within)


# -- formulas ------------------------------------------------------------------------------------------------------


def test_the_density_of_squashed_actions_integrates_to_one() -> None:
    given_ = torch.tensor([0.3, -0.4], dtype=torch.float64)  # μ, log σ
    u = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    noise = ((u - given_[0]) / given_[1].exp()).unsqueeze(-1)
    actions, log = sac.squashed(given_.expand(len(u), 2), noise)
    assert torch.trapezoid(log.exp(), actions[:, 0]).item() == pytest.approx(1.0, abs=1e-6)
    there = actions[:, 0].abs() < 0.99
    plain = -0.5 * noise[:, 0] ** 2 - given_[1] - 0.5 * math.log(2 * math.pi) - (1 - actions[:, 0] ** 2).log()
    torch.testing.assert_close(log[there], plain[there])


def test_a_worked_example() -> None:
    """Two tasks, two critics, one transition each."""
    rewards, next_log = torch.tensor([[2.0], [1.0]]), torch.tensor([[-1.0], [0.5]])
    next_q = torch.tensor([[[10.0], [4.0]], [[8.0], [6.0]]])
    alpha = torch.tensor([0.5, 0.2])
    wanted = sac.target_values(rewards, next_q, next_log, alpha, 0.9)
    # 2 + .9 (8 + .5), 1 + .9 (4 - .1)
    torch.testing.assert_close(wanted, torch.tensor([[9.65], [4.51]]))
    q = torch.tensor([[[9.65], [4.0]], [[9.0], [5.0]]])
    torch.testing.assert_close(sac.critic_loss(q, wanted), torch.tensor([[0.65**2], [0.51**2 + 0.49**2]]))
    torch.testing.assert_close(
        sac.actor_loss(q, next_log, alpha), torch.tensor([[-0.5 - 9.0], [0.1 - 4.0]]), rtol=1e-6, atol=1e-6
    )
    log_alpha = alpha.log().requires_grad_()
    sac.temperature_loss(log_alpha, next_log, -4.0).sum().backward()
    # -(log π + H): the policy of task 0 is that much too even, so its temperature falls
    torch.testing.assert_close(log_alpha.grad, torch.tensor([5.0, 3.5]))
    target, source = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -2.0])
    sac.polyak_update([target], [source], 0.25)
    torch.testing.assert_close(target, torch.tensor([1.5, 1.0]))


@pytest.mark.parametrize("which", ["critics", "actor"])
def test_gradients_are_those_of_finite_differences(which: str) -> None:
    torch.manual_seed(0)
    count, tasks, size, actions = 5, 2, 3, 2
    make = {"dtype": torch.float64}
    actor = WithHeads(layers_of(size, (6,), nn.Tanh), 6, 2 * actions, tasks).double()
    critics = nn.ModuleList(WithHeads(layers_of(size + actions, (6,), nn.Tanh), 6, 1, tasks).double() for _ in range(2))
    inputs, after = torch.randn(2, tasks, count, size, **make)
    done, noise = torch.rand(tasks, count, actions, **make), torch.randn(tasks, count, actions, **make)
    rewards, alpha = torch.randn(tasks, count, **make), torch.tensor([0.3, 0.7], **make)
    network = critics if which == "critics" else actor
    names = [name for name, _ in network.named_parameters()]

    def valued(of: dict[str, Tensor], x: Tensor, a: Tensor) -> Tensor:
        rows = torch.cat([x, a], -1)
        each = [
            functional_call(critic, {k[2:]: v for k, v in of.items() if k[0] == str(n)}, (rows, [0, 1]))
            for n, critic in enumerate(critics)
        ]
        return torch.stack(each).squeeze(-1)

    def loss(*parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        fixed = {k: v.detach() for k, v in critics.named_parameters()}
        if which == "critics":
            a, log = sac.squashed(actor(after, [0, 1]).detach(), noise)
            wanted = sac.target_values(rewards, valued(fixed, after, a), log, alpha, 0.9)
            return sac.critic_loss(valued(given, inputs, done), wanted).mean()
        a, log = sac.squashed(functional_call(actor, given, (inputs, [0, 1])), noise)
        return sac.actor_loss(valued(fixed, inputs, a), log, alpha).mean()

    assert torch.autograd.gradcheck(loss, [p.detach().clone().requires_grad_() for p in network.parameters()])


# -- replay --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_replay_has_the_newest_transitions(room: int, counts: list[int]) -> None:
    replay, seen = ReplayBuffer(2, room, 1, 1), []
    for count in counts:
        new = torch.arange(len(seen), len(seen) + count, dtype=torch.float32)
        seen += new.tolist()
        both = torch.stack([new, -new])
        replay.add(Transitions(both.unsqueeze(-1), both.unsqueeze(-1), both, both.unsqueeze(-1) + 0.5))
    assert len(replay) == min(room, len(seen))
    taken = replay.at(torch.arange(len(replay)).expand(2, -1))
    assert sorted(taken.rewards[0].tolist()) == seen[-room:]
    assert torch.equal(taken.rewards[1], -taken.rewards[0])
    assert torch.equal(taken.after[..., 0], taken.inputs[..., 0] + 0.5)
    again = ReplayBuffer(2, room, 1, 1)
    again.load(replay.state())
    more = torch.full((2, 3), 7.0)
    for each in (replay, again):
        each.add(Transitions(more.unsqueeze(-1), more.unsqueeze(-1), more, more.unsqueeze(-1)))
    places = torch.arange(len(replay)).expand(2, -1)
    assert torch.equal(replay.at(places).rewards, again.at(places).rewards)


# -- runs ----------------------------------------------------------------------------------------------------------


def _of(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Any]:
    return ended(*job, workers=workers)


METHODS = [
    {"balancer": "mgda"},
    {"balancer": "cagrad"},
    {"balancer": "conflict_noticed"},
    {"sharing": "none"},
    {"balancer": "uncertainty"},
    {"name": "soft_modules", "width": 6, "balancer": "pcgrad"},
    {"name": "sac_conal", "search_epochs": 2, "arch_lr": 0.5},
    {"name": "sac_conal", "points": [1, 3], "balancer": "mgda"},
]
# In two epochs the second searches and then does not.
FEW = [METHODS[0], {**METHODS[-2], "search_epochs": 1}]


@pytest.mark.parametrize(
    ("methods", "epochs"), [pytest.param(FEW, 2, id="few"), pytest.param(METHODS, 3, id="all", marks=pytest.mark.slow)]
)
def test_two_learners_are_one(data: PreparedData, methods: list[dict[str, Any]], epochs: int) -> None:
    """Collecting, replay, every balancer's Gramian of actor and critics, temperatures, targets."""
    jobs = [(run_on(data, method, epochs=epochs, evaluate_every=epochs), data) for method in methods]
    one = [ended(*job) for job in jobs]
    both = two_workers(_of, jobs)
    for place, alone in enumerate(one):
        for rank in (0, 1):
            assert_same(alone, both[rank][place], rtol=1e-6, atol=1e-8)
    assert not torch.equal(one[0]["losses"], one[1]["losses"])


class _Cut(Exception):
    pass


def test_killed_and_resumed_is_undisturbed(data: PreparedData, tmp_path: Path) -> None:
    run = run_on(data, {"balancer": "mgda"}, checkpoint_seconds=0)
    undisturbed = ended(run, data)
    trainer = Trainer(run, data, folder=tmp_path)
    steps = trainer.train()
    next(steps)
    steps.close()
    resumed = Trainer(run, data, folder=tmp_path).train()
    assert next(resumed).epoch == 2
    resumed.close()
    assert_same(ended(run, data, folder=tmp_path), undisturbed, rtol=0, atol=0)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_collectors_play_the_same_episodes(data: PreparedData, local_ray: None, count: int) -> None:
    run, found = run_on(data, epochs=2, evaluate_every=2), []
    for collectors in (None, RayRolloutWorkers(count)):
        trainer = Trainer(run, data)
        if collectors is not None:
            trainer.evaluator.use(collectors)
        finish(trainer)
        found.append(trainer.model.state_dict())
        if collectors is not None:
            assert collectors.replaced == 0
            collectors.close()
    alone, collected = found
    assert_same(alone, collected, rtol=0, atol=0)


def test_a_round_is_collected_by_the_policy_as_it_is(data: PreparedData) -> None:
    asked: list[list[Episode]] = []
    trainer = Trainer(run_on(data), data)
    play = trainer.evaluator.collectors

    class Heard:
        replaced = 0

        def __call__(self, *given: Any) -> list[Episode]:
            asked.append(play(*given))
            return asked[-1]

    trainer.model.collect_with(Heard())
    finish(trainer)
    model = trainer.model
    assert isinstance(model, SACModule)
    assert [len(episodes) for episodes in asked] == [4, 2, 2]
    assert model.replay.added == 12 * 4 and len(model.replay) == 40
    places = [(model.replay.added - 1) % 40]
    last = model.replay.at(torch.tensor([places, places]))
    for place, task in enumerate(("reach", "drawer-close")):
        episode = next(e for e in asked[-1] if e.task == task)
        assert torch.equal(last.actions[place, 0], torch.from_numpy(episode.actions[-1]))
        assert torch.equal(last.after[place, 0], torch.from_numpy(episode.inputs[-1, :OBSERVATIONS]))
        assert last.rewards[place, 0] == pytest.approx(float(episode.rewards[-1]))
    goals = {tuple(e.inputs[0, 36:39].tolist()) for episodes in asked for e in episodes if e.task == "reach"}
    assert len(goals) == 4  # each episode has places of its own


@pytest.fixture(scope="module")
def collected(data: PreparedData) -> SACModule:
    """Have a model collect its first episodes, which tests leave as they are."""
    model = Trainer(run_on(data), data).model
    assert isinstance(model, SACModule)
    model.on_epoch_begin(EpochView(1))
    return model


@pytest.mark.parametrize("method", [{}, {"name": "sac_conal", "balancer": "equal"}])
def test_what_each_turn_moves(data: PreparedData, method: dict[str, Any]) -> None:
    trainer = Trainer(run_on(data, method), data)
    model = trainer.model
    assert isinstance(model, SACModule)
    model.on_epoch_begin(EpochView(1))
    groups = model.groups()
    targets = [name for name, _ in model.named_buffers() if name.startswith("target_")]
    assert sum(map(len, groups.values())) == len(list(model.parameters()))
    for updater in trainer.session.updaters:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        indices, query = next(updater.steps(1))
        trainer.session.step(updater, trainer.batches.micros(indices, 1), query)
        moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        of = {name for name, p in model.named_parameters() if any(p is q for q in groups[updater.turn.name])}
        assert moved == of | (set(targets) if updater.turn.name == "critics" else set())


def test_each_turn_of_each_step_has_a_draw_of_its_own(collected: SACModule) -> None:
    drawn = [collected.sampled_batch(*which) for which in (("critics", 1), ("critics", 2), ("actor", 1))]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(drawn[one][0].inputs, drawn[other][0].inputs)
        assert not torch.equal(drawn[one][1], drawn[other][1])
    assert torch.equal(collected.sampled_batch("critics", 1)[0].inputs, drawn[0][0].inputs)


def test_critics_aim_at_the_targets_and_not_at_themselves(collected: SACModule) -> None:
    model = collected
    targets = {name: buffer for name, buffer in model.named_buffers() if name.startswith("target_")}
    before = {name: buffer.clone() for name, buffer in targets.items()}
    for buffer in targets.values():
        buffer.zero_()
    batch, noise = model.sampled_batch("critics", 1)
    with torch.no_grad():
        found = model.sources()["critics"].losses(batch, noise)
        _, log = sac.squashed(model.sample_actions(batch.after), noise)
        wanted = batch.rewards - 0.99 * model.log_alpha().exp().unsqueeze(-1) * log  # of targets that say 0
        expected = sac.critic_loss(model.q_values(batch.inputs, batch.actions), wanted)
    torch.testing.assert_close(found, expected)
    for name, buffer in targets.items():
        buffer.copy_(before[name])


def test_soft_modules_route_each_task_its_own_way() -> None:
    torch.manual_seed(0)
    settings_ = SoftModules(layers=3, modules=3, width=5)
    network = SoftModularNetwork(settings_, 2, 2, layers_of(OBSERVATIONS, (4,), nn.ReLU), 4)
    state = torch.randn(1, 6, OBSERVATIONS)
    rows = torch.cat([state.expand(2, -1, -1), torch.eye(2).unsqueeze(1).expand(-1, 6, -1)], -1)
    found = network(rows, [0, 1])
    assert found.shape == (2, 6, 2) and not torch.allclose(found[0], found[1])
    with torch.no_grad():
        network.of_task.weight.zero_()  # no task is told from another
    found = network(rows, [0, 1])
    torch.testing.assert_close(found[0], found[1])
    assert {id(p) for module in network.shared() for p in module} == {id(p) for p in network.parameters()}


def test_branch_points_are_handed_on(data: PreparedData) -> None:
    method = {"name": "sac_conal", "search_epochs": 1}
    trainer = Trainer(run_on(data, method, epochs=1, evaluate_every=1), data)
    model = trainer.model
    assert isinstance(model, SACModule)
    with torch.no_grad():
        for network, point in ((model.actor, 1), (model.critics[0], 2)):
            for place, logits in enumerate(network.logits):
                logits[point - place] = 50.0  # the second task branches a layer earlier
    record = finish(trainer)
    assert record.structure == {"points": {"reach": 2, "drawer-close": 1}}
    model = trainer.model
    assert isinstance(model, SACModule) and isinstance(model.critics[0], BranchedNetwork)
    assert model.critics[0].points() == [3, 2]
    assert [len(layers) for layers in (model.actor.shared(), model.critics[0].shared())] == [1, 2]


@pytest.mark.parametrize(("setting", "balancer"), [("same", None), ("equal", "equal"), ("rlw", "rlw")])
def test_retraining_may_have_a_balancer_of_its_own(setting: str, balancer: str | None) -> None:
    architecture = build("architectures", "sac_conal", {"retrain_balancer": setting})
    search, retrain = architecture.phases()
    both = [[(turn.balancer and turn.balancer.name) for turn in phase.turns] for phase in (search, retrain)]
    assert both == [["equal", "equal", None, None, "equal"], [balancer, balancer, "equal"]]


def test_points_that_do_not_fit_are_refused(data: PreparedData) -> None:
    with pytest.raises(UserError, match=r"points are 2 numbers, at most 4; write one of 1\.\.3 for each"):
        Trainer(run_on(data, {"name": "sac_conal", "points": [1, 4]}), data)


def test_sharing_whole_has_no_parameter_of_a_task(data: PreparedData) -> None:
    model = Trainer(run_on(data, {"sharing": "whole"}), data).model
    assert isinstance(model, SACModule) and isinstance(model.actor, SharedNetwork)
    assert [len(model.task_parameters(task)) for task in model.tasks] == [1, 1]  # the temperature


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder": {"name": "mlp", "hidden": []}}, "sac builds actor and critics like an encoder of fully connected"),
        ({"amp": "bf16"}, "set amp to off"),
    ],
)
def test_what_it_cannot_do(data: PreparedData, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Trainer(run_on(data, **changed), data)


def test_tasks_that_are_no_environments_are_refused(uneven: Callable[..., PreparedData], small: Any) -> None:
    others = uneven()
    experiment = small(methods="[sac]", floors="[]")
    run = next(experiment.runs({"uneven": others.manifest.fingerprint}))
    with pytest.raises(UserError, match="sac acts in environments, the tasks of uneven are none"):
        Trainer(run, others)
