"""Several turns of a step: whose losses and traces a record keeps, and task weights that one of them learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from two_workers import PLUGINS, two_workers

from mtlscale.config import Experiment, Run, UserError, load_plugin
from mtlscale.config.settings.models import MethodSpec
from mtlscale.data import PreparedData, Workers
from mtlscale.solvers import min_norm_weights
from mtlscale.training import Trainer, finish

Job = tuple[Run, PreparedData]
TRAINING = "{epochs: 2, batch_size: 8, lr: 3e-2, dtype: float64, optimizer: sgd, momentum: 0.9%s}"


@pytest.fixture
def job(small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Any) -> Callable[..., Job]:
    """The run of `layered_turns` by default."""

    def make(method: str = "layered_turns", more: str = "") -> Job:
        for plugin in PLUGINS:
            load_plugin(plugin)
        data = uneven(shared=True)
        experiment = small(
            plugins=f"[{', '.join(map(str, PLUGINS))}]",
            datasets="[{name: uneven, options: {shared: true}}]",
            methods=f"[{method}]",
            training=TRAINING % more,
        )
        return run_of(experiment, data), data

    return make


def test_the_record_is_that_of_the_main_turn_and_has_everybodys_traces(job: Callable[..., Job]) -> None:
    run, data = job()
    trainer = Trainer(run, data)
    assert [updater.turn.name for updater in trainer.session.updaters] == ["logits", "heads", "layers"]
    main = trainer.session.main
    assert main.turn.name == "layers" and main.update.balancer.name == "conflict_noticed"
    entry = next(trainer.train())
    ratios = entry.traces["conflict_ratio"]
    assert ratios == main.update.state["conflict_ratio"].tolist() and len(ratios) == 3 and any(ratios)
    assert entry.traces["heads.conflict_ratio"] == [0.0, 0.0, 0.0]  # it moves no module
    assert entry.weights == {}
    other = next(Trainer(*job("{name: layered_turns, keep: logits}")).train())
    assert other.train_loss != entry.train_loss
    assert other.weights == pytest.approx(dict.fromkeys("abc", 1 / 3))
    assert other.traces["conflict_ratio"] == [0.0, 0.0, 0.0] and other.traces["layers.conflict_ratio"] == ratios


def test_a_main_turn_that_is_none_is_refused(job: Callable[..., Job]) -> None:
    with pytest.raises(UserError, match="there is no turn 'weights', its main one; there are: logits, heads, layers"):
        Trainer(*job("{name: layered_turns, keep: weights}"))


def test_an_architecture_names_its_balancer_where_a_method_names_nothing_else(job: Callable[..., Job]) -> None:
    job()  # loads the plugins
    assert MethodSpec.model_validate("layered_turns").balancer.name == "conflict_noticed"
    assert MethodSpec.model_validate({"name": "layered_turns", "balancer": "mgda"}).balancer.name == "mgda"
    assert MethodSpec.model_validate({"architecture": "layered_turns"}).balancer.name == "equal"
    assert MethodSpec.model_validate("hps").balancer.name == "equal"


def test_a_record_says_what_the_network_looks_like(job: Callable[..., Job]) -> None:
    assert finish(Trainer(*job())).structure == {"stage_parameters": [35, 30, 30]}
    assert finish(Trainer(*job("hps"))).structure == {}


@pytest.mark.parametrize("balancer", ["equal", "{name: equal, reduction: sum}"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_learned_task_weights_follow_the_gradient_of_the_weighted_losses(
    balancer: str, accumulate: int, job: Callable[..., Job]
) -> None:
    """All parameters that a turn moves, beside autograd of the sum of weights times mean losses."""
    trainer = Trainer(*job(f"{{name: layered_turns, balancer: {balancer}}}", f", accumulate: {accumulate}"))
    session, model = trainer.session, trainer.model
    for updater, factor in zip(session.updaters, (1 / 3, None, 1.0 if "sum" in balancer else 1 / 3), strict=True):
        if factor is None:
            continue  # has a balancer of its own
        indices, _ = next(updater.steps(1))
        sums, counts = [0.0] * 3, [0.0] * 3
        for micro in trainer.batches.micros(indices, 1):
            for losses in updater.source(micro):
                for task, total, count in zip(losses.tasks, losses.sums, losses.counts, strict=True):
                    sums[task], counts[task] = sums[task] + total, counts[task] + count
        plain = torch.stack([s / c for s, c in zip(sums, counts, strict=True)])  # type: ignore[arg-type]
        weights = model.task_weights()
        assert weights is not None
        moved = updater.update.partition.all
        expected = torch.autograd.grad(factor * (weights * plain).sum(), moved, retain_graph=True, allow_unused=True)
        if updater.turn.name == "logits":  # the source's losses lead there, too
            expected = torch.autograd.grad(factor * (weights * plain.detach()).sum(), moved)
        result = session.step(updater, trainer.batches.micros(indices, 1))
        assert result.losses.tolist() == pytest.approx(plain.tolist(), rel=1e-12)
        for parameter, wanted in zip(moved, expected, strict=True):
            assert parameter.grad is not None and wanted is not None
            torch.testing.assert_close(parameter.grad, wanted, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("balancer", ["mgda", "{name: conflict_noticed, conflict: none}"])
def test_gradient_balancers_see_weighted_losses(balancer: str, job: Callable[..., Job]) -> None:
    trainer = Trainer(*job(f"{{name: layered_turns, balancer: {balancer}}}"))
    session, model, updater = trainer.session, trainer.model, trainer.session.main
    weights = model.task_weights()
    assert weights is not None
    weights = weights.detach()
    assert float(weights.mean()) == pytest.approx(1.0) and float(weights.std()) > 0.1
    indices, _ = next(updater.steps(1))
    ((losses,),) = [list(updater.source(micro)) for micro in trainer.batches.micros(indices, 1)]
    rows = []
    for task, (total, count) in enumerate(zip(losses.sums, losses.counts, strict=True)):
        grads = torch.autograd.grad(total / count, updater.update.partition.shared, retain_graph=True)
        rows.append(torch.cat([g.reshape(-1) for g in grads]) * weights[task])
    jacobian = torch.stack(rows)
    expected = (min_norm_weights(jacobian @ jacobian.T) if balancer == "mgda" else torch.ones(3).double()) @ jacobian
    session.step(updater, trainer.batches.micros(indices, 1))
    found = torch.cat([p.grad.reshape(-1) for p in updater.update.partition.shared if p.grad is not None])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def _trained(work: Job, workers: Workers) -> dict[str, Any]:
    trainer = Trainer(*work, workers=workers)
    finish(trainer)
    return trainer.model.state_dict()


def test_two_workers_end_as_one(job: Callable[..., Job]) -> None:
    work = job()
    one = _trained(work, Workers())
    for (other,) in two_workers(_trained, [work]):
        for name, value in one.items():
            torch.testing.assert_close(other[name], value, rtol=1e-9, atol=1e-12)
    assert one["logits"].tolist() != [-1.0, 0.0, 1.0]
