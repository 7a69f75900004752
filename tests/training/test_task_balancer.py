"""Balancers in a loop of one's own: what the engine leaves, and what every loop may do with it."""

from __future__ import annotations

import io
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from two_workers import two_workers

import mtlscale
from mtlscale import TaskBalancer, UserError
from mtlscale.balancing import Balancer, State, ValidationBalancer
from mtlscale.config import Experiment, Run, component, names
from mtlscale.data import Workers
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.torchvision_ops import declare
from mtlscale.training import Diverged, Trainer
from mtlscale.training.gradients import layerwise_gramian

LOOPS = Path(__file__).parents[2] / "docs" / "examples" / "loops"
REFUSED = {
    name
    for name in names("balancers", plugins=False)
    if issubclass(component("balancers", name), ValidationBalancer)
    or name in ("svd_reweighting", "noise_oracle", "look_ahead")
}
USABLE = sorted({*names("balancers", plugins=False)} - REFUSED)
NEEDED: dict[str, dict[str, Any]] = {"static": {"weights": (0.5, 0.3, 0.2)}}


class Net(nn.Module):
    """Three tasks on one input."""

    def __init__(self, width: int = 6, tasks: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(tasks))
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.trunk(inputs)
        return features

    def losses(self, inputs: Tensor, targets: Tensor) -> tuple[list[Tensor], Tensor]:
        features: Tensor = self.trunk(inputs)
        return [
            (head(features)[:, 0] - targets[:, task]).square().mean() for task, head in enumerate(self.heads)
        ], features

    def balancer(self, method: Any = "getmtl", **settings: Any) -> TaskBalancer:
        return TaskBalancer(method, shared=self.trunk, heads=self.heads, **settings)

    def gradients(self) -> dict[str, Tensor]:
        return {name: p.grad for name, p in self.named_parameters() if p.grad is not None}


def samples(count: int = 12, tasks: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(count, tasks, generator=generator, dtype=torch.float64)


def close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float((found[name] - value).norm()) <= tolerance * max(float(value.norm()), 1e-9), name


# -- what the engine leaves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_features", [False, True])
@pytest.mark.parametrize("name", USABLE)
def test_leaves_what_the_engine_leaves(
    name: str,
    with_features: bool,
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[..., Run],
) -> None:
    """Three steps of one network and optimiser, so that state counts; some samples lack a label."""
    at_features = component("balancers", name).at == "representation" or component("balancers", name).aligns_heads
    if at_features and not with_features:
        pytest.skip("it works at the features")
    data = uneven(shared=True)
    experiment = small(
        methods=json.dumps([{"name": name, **NEEDED.get(name, {})}]),
        datasets="[{name: uneven, options: {shared: true}}]",
        model="{encoder: {name: mlp, hidden: [8, 7]}}",
        training="{epochs: 1, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9}",
    )
    trainer = Trainer(run_of(experiment, data), data)
    model, updater = trainer.model, trainer.session.main
    modules = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.in_features != 7]
    assert {id(p) for module in modules for p in module.parameters()} == {id(p) for p in model.shared_parameters()}
    balancer = TaskBalancer(
        name,
        shared=modules if component("balancers", name).needs == "modules" else model.shared_parameters(),
        heads={task: model.task_parameters(task) for task in "abc"},
        **NEEDED.get(name, {}),
    )
    balancer.update.state = dict(updater.update.state)  # the seed of a run is derived in its own way

    steps = iter(updater.sampler.epoch(1))
    for _ in range(3):
        micros = trainer.batches.micros(next(steps), 1)
        (losses,) = updater.source(micros[0])
        count = {"abc"[task]: count for task, count in zip(losses.tasks, losses.counts, strict=True)}
        means = {t: total / count[t] for t, total in zip("abc", losses.sums, strict=True) if count[t]}
        trainer.model.zero_grad()
        result = balancer.backward(means, losses.representation if with_features else None, count)
        found = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
        assert found

        expected = trainer.session.step(updater, micros)
        close(found, {key: p.grad for key, p in model.named_parameters() if p.grad is not None})
        torch.testing.assert_close(result.weights, expected.weights, rtol=1e-9, atol=1e-12, equal_nan=True)
        with torch.no_grad():
            (after,) = updater.source(micros[0])
        balancer.after_step([total / count for total, count in zip(after.sums, after.counts, strict=True)])
    for key, value in updater.update.state.items():
        torch.testing.assert_close(balancer.update.state[key], value, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_used_is_refused_by_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} [^.\n]+$"):
        Net().balancer(name)


def test_module_by_module_needs_modules() -> None:
    with pytest.raises(UserError, match="conflict_noticed decides module by module: give shared as a list"):
        Net().balancer("conflict_noticed")


def test_features_make_it_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that pays; the gradients are the same."""
    inputs, targets = samples(tasks=12)
    net = Net(width=512, tasks=12)
    net.balancer("mgda").backward(net.losses(inputs, targets)[0])
    expected = net.gradients()
    net.zero_grad()
    seen: list[int] = []
    at_once = layerwise_gramian._at_once
    monkeypatch.setattr(layerwise_gramian, "_at_once", lambda *args: [seen.append(1), at_once(*args)][1])
    balancer = net.balancer("mgda")
    balancer.backward(*net.losses(inputs, targets))
    assert seen and balancer.update.partition.vectorised
    close(net.gradients(), expected)


# -- what loops do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equal", "getmtl", "graddrop", "uncertainty"])
def test_micro_batches_are_balanced_as_one_batch(name: str) -> None:
    inputs, targets = samples()
    net = Net()
    net.balancer(name).backward(net.losses(inputs, targets)[0])
    whole = net.gradients()
    net.zero_grad()
    balancer = net.balancer(name)
    for first, last, do in ((0, 3, balancer.accumulate), (3, 5, balancer.accumulate), (5, 12, balancer.backward)):
        assert not net.gradients()
        do(net.losses(inputs[first:last], targets[first:last])[0], counts=[last - first] * 3)
    close(net.gradients(), whole)
    net.zero_grad()
    balancer.backward(net.losses(inputs, targets)[0], counts=[12] * 3)  # nothing is left of the step before
    if name != "graddrop" and name != "uncertainty":
        close(net.gradients(), whole)


def test_modules_take_micro_batches_too() -> None:
    inputs, targets = samples()
    net = Net()
    found = []
    for cuts in ([12], [6, 6]):
        net.zero_grad()
        balancer = TaskBalancer("conflict_noticed", shared=[net.trunk[0], net.trunk[2]], heads=net.heads)
        *first, last = zip(inputs.split(cuts), targets.split(cuts), strict=True)
        for batch in first:
            balancer.accumulate(net.losses(*batch)[0])
        balancer.backward(net.losses(*last)[0])
        found.append(net.gradients())
    close(found[1], found[0])


@pytest.mark.parametrize("name", ["equal", "mgda"])
def test_gradients_are_added_as_backward_adds_them(name: str) -> None:
    net = Net()
    balancer = net.balancer(name)
    balancer.backward(net.losses(*samples())[0])
    once = {key: value.clone() for key, value in net.gradients().items()}
    balancer.backward(net.losses(*samples())[0])
    close(net.gradients(), {key: 2 * value for key, value in once.items()})


def test_a_task_without_labels_is_left_out() -> None:
    net = Net()
    losses, _ = net.losses(*samples())
    result = net.balancer("mgda").backward([losses[0], None, losses[2]])
    found = net.gradients()
    assert result.weights[1] == 0 and result.losses[1].isnan()
    assert not any(key.startswith("heads.1") for key in found)
    net.zero_grad()
    losses, _ = net.losses(*samples())
    pair = TaskBalancer("mgda", shared=net.trunk, heads=[net.heads[0], net.heads[2]])
    pair.backward([losses[0], losses[2]])
    trunk = {key: value for key, value in found.items() if "trunk" in key}
    close(trunk, {key: value for key, value in net.gradients().items() if "trunk" in key})


def test_tasks_with_inputs_of_their_own() -> None:
    """Features by task, for a balancer that works at them; others need none."""
    net = Net()
    inputs, targets = samples(30)
    parts = [(inputs[task::3], targets[task::3]) for task in range(3)]

    def losses() -> tuple[list[Tensor], list[Tensor]]:
        features = [net.trunk(x) for x, _ in parts]
        return [
            (head(z)[:, 0] - y[:, task]).square().mean()
            for task, (head, z, (_, y)) in enumerate(zip(net.heads, features, parts, strict=True))
        ], features

    found = []
    for with_features in (False, True):
        net.zero_grad()
        values, features = losses()
        net.balancer("cagrad").backward(values, features if with_features else None)
        found.append(net.gradients())
    close(found[1], found[0])
    values, features = losses()
    net.balancer("mgda_ub").backward(dict(zip("012", values, strict=True)), dict(zip("012", features, strict=True)))


@pytest.mark.parametrize("name", ["equal", "mgda", "graddrop", "mgda_ub"])
def test_a_scaler_finds_scaled_gradients(name: str) -> None:
    net = Net().float()
    batch = [tensor.float() for tensor in samples()]
    net.balancer(name).backward(*net.losses(*batch))
    expected = net.gradients()
    net.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    balancer = net.balancer(name, scaler=scaler)
    balancer.backward(*net.losses(*batch))
    close({key: value / 1024 for key, value in net.gradients().items()}, expected, 1e-5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler.unscale_(optimizer)
    close(net.gradients(), expected, 1e-5)
    scaler.step(optimizer)
    scaler.update()


def test_a_scaler_skips_steps_that_overflow() -> None:
    net = Net().float()
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**100)
    balancer = net.balancer("uncertainty", scaler=scaler)
    before, state = [p.clone() for p in net.parameters()], dict(balancer.update.state)
    losses, _ = net.losses(*(tensor.float() * 1e10 for tensor in samples()))
    assert balancer.backward(losses).skipped
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True))
    assert scaler.get_scale() == 2.0**99
    assert all(torch.equal(balancer.update.state[key], value) for key, value in state.items())


@pytest.mark.parametrize("name", ["dwa", "uncertainty", "moco", "famo", "gradnorm"])
def test_state_is_saved_and_restored(name: str) -> None:
    def steps(net: Net, balancer: TaskBalancer, count: int) -> dict[str, Tensor]:
        for _ in range(count):
            net.zero_grad()
            balancer.backward(net.losses(*samples())[0])
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.1 * parameter.grad
            balancer.after_step(net.losses(*samples())[0])
            balancer.end_epoch()
        return dict(net.named_parameters())

    undisturbed = Net()
    expected = steps(undisturbed, undisturbed.balancer(name), 4)
    net = Net()
    balancer = net.balancer(name)
    steps(net, balancer, 2)
    file = io.BytesIO()
    torch.save(balancer.state_dict(), file)
    file.seek(0)
    again = net.balancer(name)
    again.load_state_dict(torch.load(file))
    found = steps(net, again, 2)
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    with pytest.raises(UserError, match="the state is of"):
        net.balancer("equal").load_state_dict(balancer.state_dict())


def test_a_balancer_that_looks_again_says_so() -> None:
    net = Net()
    balancer = net.balancer("famo")
    balancer.backward(net.losses(*samples())[0])
    with pytest.raises(UserError, match=r"call after_step\(losses\)"):
        balancer.backward(net.losses(*samples())[0])


def test_a_balancer_of_ones_own() -> None:
    class Mine(Balancer):
        name = "mine"
        factor: float = mtlscale.config.knob(1.0, low=0)

        def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
            return self.factor * torch.ones_like(losses), state

    net = Net()
    for method, knobs in ((Mine, {"factor": 2.0}), (Mine(factor=2.0), {})):
        assert net.balancer(method, **knobs).backward(net.losses(*samples())[0]).weights.tolist() == [2.0] * 3
    with pytest.raises(UserError, match="built already"):
        net.balancer(Mine(), factor=2.0)


# -- several workers ---------------------------------------------------------------------------------------------------

WORKERS = ["equal", "getmtl", "graddrop", "mgda_ub", "uncertainty"]


def _worker(job: dict[str, Any], workers: Workers) -> dict[str, Tensor]:
    """The gradients of a step whose samples are cut unevenly; the second worker has no label of the last task."""
    inputs, targets = samples()
    mine = slice(0, 12) if workers.size == 1 else slice(0, 5) if workers.rank == 0 else slice(5, 12)
    net = Net()
    balancer = net.balancer(job["name"])
    if job["ddp"] and workers.size > 1:
        whole = DistributedDataParallel(net)
        with whole.no_sync():
            features = whole(inputs[mine])
    else:
        features = net(inputs[mine])
    losses: list[Tensor | None] = [
        (head(features)[:, 0] - targets[mine, task]).square().mean() for task, head in enumerate(net.heads)
    ]
    counts: list[int | None] = [mine.stop - mine.start] * 3
    known = min(mine.stop, 5) - mine.start  # the last task's labels end there
    losses[2] = None
    if known > 0:
        losses[2] = (net.heads[2](features)[:known, 0] - targets[mine][:known, 2]).square().mean()
        counts[2] = known
    balancer.backward(losses, features if job["features"] else None, counts)
    return net.gradients()


def test_two_workers_are_one() -> None:
    jobs = [
        {"name": name, "features": with_features, "ddp": False} for name in WORKERS for with_features in (False, True)
    ]
    jobs = [job for job in jobs if job["features"] or job["name"] != "mgda_ub"]
    jobs += [{"name": "equal", "features": False, "ddp": True}]
    first, second = two_workers(_worker, jobs)
    for job, one, two in zip(jobs, first, second, strict=True):
        expected = _worker(job, Workers())
        close(one, expected)
        close(two, expected)


# -- bad input ---------------------------------------------------------------------------------------------------------


def _nan(net: Net, losses: list[Any], features: Tensor) -> tuple[list[Any], Any]:
    return [losses[0], losses[1] * torch.nan, losses[2]], None


def _twice(net: Net, losses: list[Any], features: Tensor) -> tuple[list[Any], Any]:
    losses[0].backward()
    net.zero_grad(set_to_none=False)
    return losses, None


BAD: dict[str, tuple[str, Callable[[Net, list[Any], Tensor], tuple[list[Any], Any]]]] = {
    "detached": ("loss of task 1 is detached", lambda net, v, z: ([v[0], v[1].detach(), v[2]], None)),
    "NaN": ("loss of task 1 is nan", _nan),
    "not of the shared part": (
        "loss of task 1 does not depend on the shared parameters",
        lambda net, v, z: ([v[0], net.heads[1](torch.ones(3, 6).double()).sum(), v[2]], None),
    ),
    "of another forward pass": (
        "loss of task 0 does not depend on the features",
        lambda net, v, z: (v, net.trunk(samples()[0])),
    ),
    "of two graphs": (
        "loss of task 2 does not depend on the features",
        lambda net, v, z: ([v[0], v[1], net.losses(*samples())[0][2]], z),
    ),
    "beside the features": (
        "loss of task 0 depends on a shared parameter .* beside the features",
        lambda net, v, z: ([v[0] + net.trunk[0].weight.sum(), v[1], v[2]], z),
    ),
    "another's head": (
        "loss of task 0 depends on a parameter .* of the head of task 1",
        lambda net, v, z: ([v[0] + net.heads[1].weight.sum(), v[1], v[2]], None),
    ),
    "a parameter of nobody": (
        "loss of task 0 depends on a parameter .* neither in shared nor in heads",
        lambda net, v, z: ([v[0] + nn.Parameter(torch.ones(2).double()).sum(), v[1], v[2]], None),
    ),
    "features without a graph": ("features of task 0", lambda net, v, z: (v, z.detach())),
    "too few": ("losses have 2 entries, but there are 3 tasks", lambda net, v, z: (v[:2], None)),
    "not a scalar": ("loss of task 0 has the shape", lambda net, v, z: ([v[0].expand(3), v[1], v[2]], None)),
    "a number": ("loss of task 0 is a float", lambda net, v, z: ([1.0, v[1], v[2]], None)),
    "an unknown task": ("losses name a task 'depth'", lambda net, v, z: ({"depth": v[0]}, None)),  # type: ignore[dict-item]
    "differentiated before": ("graph was differentiated before", _twice),
}


@pytest.mark.parametrize("name", ["uncertainty", "getmtl"])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named_and_changes_nothing(what: str, name: str) -> None:
    message, spoil = BAD[what]
    net = Net()
    balancer = net.balancer(name)
    losses, features = spoil(net, *net.losses(*samples()))
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    before = [p.detach().clone() for p in net.parameters()]
    state = {key: value.clone() for key, value in balancer.update.state.items()}
    with pytest.raises((UserError, Diverged), match=message) as raised:
        balancer.backward(losses, features)
    assert "\n" not in str(raised.value)
    assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True))
    assert all(bool((p.grad == 0.5).all()) for p in net.parameters())
    assert all(torch.equal(balancer.update.state[key], value) for key, value in state.items())
    net.zero_grad()
    balancer.backward(net.losses(*samples())[0])  # it goes on as if nothing had been
    assert balancer.update.count == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shared": nn.Linear(2, 2), "heads": []}, "there are no tasks"),
        (
            {"shared": nn.Linear(2, 2), "heads": [nn.Linear(2, 1)], "tasks": ["a", "b"]},
            "one group of parameters per task",
        ),
        ({"shared": [], "tasks": 2}, "no parameter that requires gradients"),
        ({"shared": [], "heads": [nn.Linear(2, 1), nn.Linear(2, 1)]}, "give the trainable ones as shared"),
        ({"shared": ["weight"], "tasks": 2}, "parameters or modules, not a str"),
        ({"method": "getmlt", "shared": nn.Linear(2, 2), "tasks": 2}, "unknown balancer 'getmlt'.*getmtl"),
        ({"method": 3, "shared": nn.Linear(2, 2), "tasks": 2}, "method is a int"),
        ({"shared": 3, "tasks": 2}, "shared is a int; give a module, or its parameters"),
        ({"shared": nn.Linear(2, 2), "tasks": 2, "scaler": True}, "scaler is a bool; give the loop's torch.amp"),
        ({"shared": nn.Linear(2, 2), "tasks": 2, "amp": "float16"}, "amp is 'float16'; choose off, bf16, fp16"),
        ({"shared": nn.Linear(2, 2), "tasks": 2, "gramian_every": 0}, "gramian_every is 0; a number of steps, 1 or"),
        ({"shared": nn.Linear(2, 2), "tasks": 2, "epsilon": 1.0}, "unknown option 'epsilon'"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TaskBalancer(settings.pop("method", "getmtl"), **settings)


def test_a_parameter_in_two_groups_is_named() -> None:
    net = Net()
    with pytest.raises(UserError, match=r"in two groups: shared \(number 2, .*\) and the head of task 1 \(number 0"):
        TaskBalancer(shared=net.trunk, heads=[net.heads[0], [net.trunk[2].weight], net.heads[2]])


# -- imports and examples ----------------------------------------------------------------------------------------------


def test_balancers_need_torch_and_numpy_alone() -> None:
    """Nothing of the runner is imported with them."""
    code = (
        "import sys, numpy, torch\nbefore = set(sys.modules)\nimport mtlscale.balancing\n"
        "packages = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert packages <= {'mtlscale'} | set(sys.stdlib_module_names), packages\n"
        "import mtlscale\nmtlscale.TaskBalancer('mgda', shared=torch.nn.Linear(2, 2), tasks=2)\n"
        "heavy = {'ray', 'mlflow', 'pyarrow', 'pandas', 'pydantic', 'torchvision', 'sklearn'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plain", r"step 99: losses \[0\.0\d+, 0\.0\d+\]"),
        ("accumulate", r"epoch 3: weights \[(0\.9\d+, 1\.0|1\.0\d*, 0\.9)"),
        ("mixed_precision", r"step 49: losses \[0\.\d+, 0\.\d+\], scale \d+"),
    ],
)
def test_an_example_runs(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LOOPS / f"{name}.py"), run_name="example")
    said_by_it = capsys.readouterr().out
    assert re.search(said, said_by_it), said_by_it


def test_the_example_of_a_lightning_module_runs(capsys: pytest.CaptureFixture[str]) -> None:
    declare()  # Lightning imports torchvision
    pytest.importorskip("lightning", reason="lightning is not installed")
    runpy.run_path(str(LOOPS / "lightning_module.py"), run_name="example")
    said_by_it = capsys.readouterr().out
    assert re.search(r"step 100: losses \[0\.0\d+, 0\.0\d+\]", said_by_it), said_by_it


@pytest.mark.slow
def test_the_example_of_two_workers_runs() -> None:
    done = subprocess.run([sys.executable, LOOPS / "workers.py"], capture_output=True, text=True)
    assert done.returncode == 0 and "relative distance" in done.stdout, done.stderr
