"""Balancers that decide module by module, against gradients made by hand; what is left out does not move at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from two_workers import PLUGINS, two_workers

from mtlscale.architectures import conflict_mask
from mtlscale.config import Experiment, Run, load_plugin
from mtlscale.data import PreparedData, Workers
from mtlscale.training import Trainer, finish

Jobs = Callable[..., tuple[Run, PreparedData]]
SGD = "{epochs: 2, batch_size: 8, lr: 3e-2, dtype: float64, optimizer: sgd, momentum: 0.9%s}"
ADAM = "{epochs: 2, batch_size: 8, lr: 1e-2, dtype: float64, weight_decay: 0.1%s}"


@pytest.fixture
def job(small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Any) -> Jobs:
    """The run of `layered` with conflict_noticed."""

    def make(shared: bool, training: str = SGD % "", conflict: str = "prefix", **network: Any) -> Any:
        for plugin in PLUGINS:
            load_plugin(plugin)
        data = uneven(shared=shared)
        architecture = ", ".join(["name: layered", *(f"{key}: {value}" for key, value in network.items())]).lower()
        balancer = f"{{name: conflict_noticed, conflict: {conflict}}}"
        experiment = small(
            plugins=f"[{', '.join(map(str, PLUGINS))}]",
            datasets=f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]",
            methods=f"[{{architecture: {{{architecture}}}, balancer: {balancer}}}]",
            training=training,
        )
        return run_of(experiment, data), data

    return make


def mean_losses(trainer: Trainer, indices: dict[str, Tensor]) -> Iterator[Tensor]:
    """Of the tasks that have a label, in their order."""
    losses = {"a": nn.CrossEntropyLoss(ignore_index=-1), "b": nn.CrossEntropyLoss(), "c": nn.MSELoss()}
    for task, loss in losses.items():
        stream = task if task in indices else "all"
        batches = [micro[0] for micro in trainer.batches.micros({stream: indices[stream]}, 1)]
        prediction = torch.cat([trainer.model(batch).predictions[task] for batch in batches])
        target = torch.cat([batch.samples.targets[task] for batch in batches])
        if task == "c":
            prediction, target = prediction[~target.isnan(), 0], target[~target.isnan()]
        yield loss(prediction, target)


def by_hand(trainer: Trainer, indices: dict[str, Tensor], conflict: str) -> tuple[list[bool], dict[str, Tensor | None]]:
    """Which modules are updated, and the gradient of every parameter by name."""
    model = trainer.model
    names = {id(p): name for name, p in model.named_parameters()}
    rows = []
    for loss in mean_losses(trainer, indices):
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        rows.append(dict(zip(names.values(), grads, strict=True)))
    total: dict[str, Tensor | None] = {}
    for name in names.values():
        found = [row[name] for row in rows if row[name] is not None]
        total[name] = torch.stack(found).sum(0)  # type: ignore[arg-type]
    modules = [[names[id(p)] for p in module] for module in model.shared_modules()]
    flat = [torch.stack([torch.cat([row[n].reshape(-1) for n in m]) for row in rows]) for m in modules]  # type: ignore[union-attr]
    mask = conflict_mask(flat) if conflict == "prefix" else [conflict_mask([one])[0] for one in flat]
    mask = [True] * len(mask) if conflict == "none" else mask
    for module, updated in zip(modules, mask, strict=True):
        if not updated:
            total |= dict.fromkeys(module)
    return mask, total


@pytest.mark.parametrize(
    ("conflict", "noticed", "accumulate", "shared"),
    [
        # Micro-batches with the fewest or the most layers noticed; the other half of these is nightly.
        pytest.param(
            conflict, noticed, accumulate, shared, marks=pytest.mark.slow if accumulate > 1 and usual == shared else ()
        )
        for conflict in ("prefix", "module", "none")
        for noticed, usual in ((1, True), (3, False))
        for accumulate in (1, 2)
        for shared in (False, True)
    ],
)
def test_the_gradients_are_those_made_by_hand(
    conflict: str, noticed: int, accumulate: int, shared: bool, job: Jobs
) -> None:
    trainer = Trainer(*job(shared, SGD % f", accumulate: {accumulate}", conflict, noticed=noticed))
    session, model = trainer.session, trainer.model
    seen = set()
    for _, indices in zip(range(12), (i for epoch in (1, 2) for i in session.main.sampler.epoch(epoch)), strict=False):
        mask, expected = by_hand(trainer, indices, conflict)
        result = session.step(session.main, trainer.batches.micros(indices, 1))
        seen.add(tuple(mask))
        assert bool(result.weights.isnan().all())
        for name, parameter in model.named_parameters():
            wanted = expected[name]
            if wanted is None:
                assert parameter.grad is None, name
            else:
                assert parameter.grad is not None, name
                torch.testing.assert_close(parameter.grad, wanted, rtol=1e-9, atol=1e-12)
    assert len(seen) == 1 if conflict == "none" else len(seen) > 1


@pytest.mark.parametrize("pooled", [False, True])
def test_a_module_that_is_left_out_keeps_its_bits_after_momentum_and_weight_decay(pooled: bool, job: Jobs) -> None:
    trainer = Trainer(*job(False, ADAM % (", batches: pooled" if pooled else "")))
    session, model = trainer.session, trainer.model
    left, moved = 0, set()
    for indices in (i for epoch in (1, 2, 3) for i in session.main.sampler.epoch(epoch)):
        before = [[p.detach().clone() for p in module] for module in model.shared_modules()]
        session.step(session.main, trainer.batches.micros(indices, 1))
        for place, module in enumerate(model.shared_modules()):
            same = all(torch.equal(p, old) for p, old in zip(module, before[place], strict=True))
            if all(p.grad is None for p in module):
                assert same
                left += place in moved
            else:
                assert not same
                moved.add(place)
    assert left and moved == {0, 1, 2}


def finished(work: tuple[Run, PreparedData], workers: Workers | None = None) -> tuple[dict[str, Tensor], list[Any]]:
    trainer = Trainer(*work, workers=workers)
    record = finish(trainer)
    assert record.status == "finished", record.error
    assert record.departure is None and not any(epoch.weights for epoch in record.epochs)
    return trainer.model.state_dict(), [epoch.traces["conflict_ratio"] for epoch in record.epochs]


def close(one: Any, other: Any) -> None:
    assert one[1] == other[1]
    for name, value in one[0].items():
        if value.is_floating_point():
            assert (value - other[0][name]).norm() <= 1e-9 * value.norm().clamp(min=1e-12), name


def test_workers_and_micro_batches_do_not_matter(job: Jobs) -> None:
    """With batch normalisation, too, but for micro-batches; with clipping, and steps that lack a task."""
    sgd, adam = (training.replace("epochs: 2", "epochs: 1") for training in (SGD, ADAM))
    jobs = []
    for shared in (False, True):
        sparse = sgd.replace("batch_size: 8", "batch_size: 1") % ", steps_per_epoch: 7, clip: 0.5"
        jobs += [job(shared, sgd % ", clip: 0.5"), job(shared, sparse, "module")]
        jobs += [job(shared, sgd % "", noticed=1, norm=True), job(shared, adam % "", norm=True)]
        jobs += [job(shared, sgd % ", accumulate: 2", "module", noticed=2)]
    alone = [finished(one) for one in jobs]
    for rank in two_workers(finished, jobs):
        for one, other in zip(alone, rank, strict=True):
            close(one, other)
    assert any(0.0 < ratio < 1.0 for _, traces in alone for ratios in traces for ratio in ratios)
    for shared in (False, True):
        for options in ({}, {"noticed": 1, "conflict": "module"}):
            close(finished(job(shared, **options)), finished(job(shared, SGD % ", accumulate: 2", **options)))


def test_the_trace_is_the_share_of_pairs_that_conflict(job: Jobs) -> None:
    run, data = job(False)
    trainer, other = Trainer(run, data), Trainer(run, data)
    entry = next(trainer.train())
    counts = torch.zeros(3, dtype=torch.int64)
    steps = list(other.session.main.sampler.epoch(1))
    for indices in steps:
        rows = [
            [torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, module, retain_graph=True)])
             for module in other.model.shared_modules()]
            for loss in mean_losses(other, indices)
        ]  # fmt: skip
        for i in range(3):
            for j in range(i):
                counts += torch.stack([a @ b < 0 for a, b in zip(rows[i], rows[j], strict=True)])
        other.session.step(other.session.main, other.batches.micros(indices, 1))
    assert entry.traces["conflict_ratio"] == (counts.to(torch.float64) / (3 * len(steps))).tolist()
    assert 0 < sum(entry.traces["conflict_ratio"]) < 3


def test_when_nothing_is_left_out_it_is_the_plain_sum(job: Jobs, small: Any, run_of: Any) -> None:
    run, data = job(True, conflict="none")
    experiment = small(
        plugins=f"[{', '.join(map(str, PLUGINS))}]",
        datasets="[{name: uneven, options: {shared: true}}]",
        methods="[{architecture: layered, balancer: {name: equal, reduction: sum}}]",
        training=SGD % "",
    )
    trainer = Trainer(run_of(experiment, data), data)
    finish(trainer)
    found, _ = finished((run, data))
    for name, value in trainer.model.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("amp", ["fp16", "bf16"])
def test_halves(amp: str, accumulate: int, job: Jobs) -> None:
    """A step that overflows moves nothing and counts nothing; the others train."""
    training = f"{{epochs: 2, batch_size: 8, lr: 1e-2, amp: {amp}, accumulate: {accumulate}}}"
    trainer = Trainer(*job(False, training, "module"))
    session, update = trainer.session, trainer.session.main.update
    if amp == "fp16":
        steps = session.main.sampler.epoch(1)
        session.step(session.main, trainer.batches.micros(next(steps), 1))
        before = {name: value.clone() for name, value in {**trainer.model.state_dict(), **update.state}.items()}
        update.loss_scale, usual = 2.0**40, update.loss_scale
        assert session.step(session.main, trainer.batches.micros(next(steps), 1)).skipped
        after = {**trainer.model.state_dict(), **update.state}
        assert all(torch.equal(value, after[name]) for name, value in before.items())
        update.loss_scale = usual
    record = finish(trainer)
    assert record.status == "finished"
    exact = finish(Trainer(*job(False, training.replace(amp, '"off"'), "module")))
    for one, other in zip(record.epochs[0].train_loss.values(), exact.epochs[0].train_loss.values(), strict=True):
        assert one == pytest.approx(other, rel=0.1)


@pytest.mark.parametrize(("noticed", "tasks"), [(1, 1), (3, 3)])
def test_what_is_in_no_module_is_differentiated_once(
    noticed: int, tasks: int, job: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tasks there are; the modules once for each task."""
    trainer = Trainer(*job(True, noticed=noticed))
    first, last = (trainer.model.layers[place].weight for place in (0, -1))  # type: ignore[index,union-attr]
    passes, plain = [], torch.autograd.grad

    def counted(loss: Tensor, targets: Any, *rest: Any, **more: Any) -> Any:
        passes.append({id(target) for target in targets})
        return plain(loss, targets, *rest, **more)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    indices = next(trainer.session.main.sampler.epoch(1))
    trainer.session.step(trainer.session.main, trainer.batches.micros(indices, 1))
    assert len(passes) == 4
    assert sum(id(first) in targets for targets in passes) == tasks
    assert sum(id(last) in targets for targets in passes) == 3
