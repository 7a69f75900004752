"""What holds for every method: the checks of `mtlscale.testing`, and what only shipped ones are asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mtlscale.balancing import Balancer, JacobianBalancer, ModuleBalancer, State, balance, direct, look_again
from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.balancing.wrapper import Wrapper
from mtlscale.config import build, component, names
from mtlscale.testing import Check, balancer_checks
from mtlscale.testing.gradients import losses_of

ALL = [name for name in names("balancers") if name != "svd_reweighting"]  # it has no init: test_validation_balancers.py
JACOBIAN = [name for name in ALL if issubclass(component("balancers", name), JacobianBalancer)]
MODULES = [name for name in ALL if issubclass(component("balancers", name), ModuleBalancer)]
WEIGHTING = [name for name in ALL if name not in {*JACOBIAN, *MODULES}]

_DRAWS = "another order of tasks meets other numbers"
_UNIT = "a setting of it is in units of losses or gradients"
# Balancer -> check that it does not pass -> why.
EXCEPTIONS: dict[str, dict[str, str]] = {
    **{name: {"order": _DRAWS} for name in ("pcgrad", "gradvac", "rlw")},
    "m_config": {"order": "the first of the tasks that wait has its turn"},
    "ldc_mtl": {"order": "looks at neighbouring tasks"},
    **{name: {"scale": _UNIT} for name in ("bandit", "go4align", "stch", "pcd", "pmgda")},
    **{name: {"scale": _UNIT} for name in ("getmtl", "getmtl_exact", "getmtl_released")},
    "cosmos": {"scale": "adds a gradient of the losses to one of their cosine, which has no unit"},
    "static": {"alone": "its weights are the user's"},
}
# Settings under which a rule is another one, for the checks that may see it.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "equal, sum": ("equal", {"reduction": "sum"}),
    "mgda, by losses": ("mgda", {"normalize": "loss", "divide": True}),
    "mgda, by losses and norms": ("mgda", {"normalize": "loss+"}),
    "tchebycheff, smooth": ("tchebycheff", {"smoothing": 0.3}),
    "smooth of dwa": ("smooth", {"of": "dwa"}),
    "smooth of famo": ("smooth", {"of": "famo"}),
    "smooth of log_loss": ("smooth", {"of": "log_loss"}),
    "log_losses of equal": ("log_losses", {"of": "equal"}),
    "log_losses of pcgrad": ("log_losses", {"of": "pcgrad"}),
}
OF_VARIANTS = ("zero", "missing", "alone", "workers")


def make(name: str, tasks: int) -> Balancer:
    options = {"weights": [1.0 + task for task in range(tasks)]} if name == "static" else {}
    balancer: Balancer = build("balancers", name, options)
    return balancer


def checks() -> list[Any]:
    """Every check of every balancer, as parameters of a test."""
    found: list[tuple[str, Check]] = []
    for name in ALL:
        sizes = (3,) if name == "static" else (1, 2, 3, 8)
        found += [(name, check) for check in balancer_checks(make(name, 3), sizes=sizes)]
    for name, (method, settings) in VARIANTS.items():
        of_variant = balancer_checks(build("balancers", method, settings))
        found += [(name, check) for check in of_variant if check.name in OF_VARIANTS]
    return [pytest.param(name, check, id=f"{name}-{check.name}") for name, check in found]


@pytest.mark.parametrize(("name", "check"), checks())
def test_what_every_balancer_keeps(name: str, check: Check) -> None:
    if check.name not in EXCEPTIONS.get(name, {}):
        check()
        return
    with pytest.raises(AssertionError):
        check()


def test_a_step_without_any_label_changes_nothing() -> None:
    losses, nobody = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.bool)
    for name in WEIGHTING:
        balancer = make(name, 3)
        state = balancer.init(3)
        weights, after = balance(balancer, losses, torch.eye(3, dtype=torch.float64), state, nobody)
        assert after is state and not bool(weights.any())
        assert look_again(balancer, losses, state, nobody) is state


def gramian_of(jacobian: Tensor) -> Tensor:
    return jacobian @ jacobian.mT


def some_steps(balancer: Balancer, jacobian: Tensor, state: State) -> Tensor:
    """The weights of the third step."""
    for step in range(3):
        weights, state = balancer(losses_of(jacobian, step), gramian_of(jacobian), state)
    return weights


@pytest.mark.parametrize("name", ["rlw", "pcgrad", "gradvac"])
def test_trials_with_different_seeds_draw_as_they_would_alone(name: str) -> None:
    jacobian = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    balancer = make(name, 8)
    alone = [balancer.init(8, seed=seed) for seed in (3, 4)]
    together = {key: torch.stack([state[key] for state in alone]) for key in alone[0]}
    weights = some_steps(balancer, torch.stack([jacobian, jacobian]), together)
    for row, state in zip(weights, alone, strict=True):
        torch.testing.assert_close(row, some_steps(balancer, jacobian, state), rtol=1e-12, atol=1e-12)
    assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("name", ["bandit", "meta_weighting", "excess_mtl", "moco"])
def test_a_task_without_labels_keeps_its_share(name: str) -> None:
    """Steps without its labels do not raise the others' weights against its own: the shares' sum stays what it was."""

    def total(state: State) -> float:
        shares = state["log_weights"].exp() if "log_weights" in state else state["weights"]
        return float(shares[[0, 2]].sum() / shares.sum())

    jacobian = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    balancer = make(name, 3)
    losses = losses_of(jacobian)
    state = balancer.init(3)
    for present in ([True, True, True], [True, False, True], [True, False, True], [True, False, False]):
        mask = torch.tensor(present)
        before = total(state)
        if isinstance(balancer, JacobianBalancer):
            _, state = direct(balancer, [jacobian], losses, state, mask)
        else:
            _, state = balance(balancer, losses, gramian, state, mask)
        if not mask.all():
            assert total(state) == pytest.approx(before, rel=1e-12)


def test_gradnorm_among_some_tasks_moves_them_against_each_other_alone() -> None:
    balancer = make("gradnorm", 3)
    gramian = torch.diag(torch.tensor([1.0, 9.0, 4.0], dtype=torch.float64))
    losses = torch.ones(3, dtype=torch.float64)
    _, state = balance(balancer, losses, gramian, balancer.init(3), torch.ones(3, dtype=torch.bool))
    for present in ([True, False, True], [False, True, False]):
        _, after = balance(balancer, losses, gramian, state, torch.tensor(present))
        mean = state["logits"][present].mean()
        assert float(mean) != 0.0
        torch.testing.assert_close(after["logits"][present].mean(), mean, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", JACOBIAN)
def test_direct_leaves_out_the_rows_of_tasks_without_labels(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    jacobian = [torch.randn(4, *shape, dtype=torch.float64, generator=generator) for shape in ((5,), (2, 3))]
    losses = torch.tensor([1.0, torch.nan, 2.0, 3.0], dtype=torch.float64)
    present, index = torch.tensor([True, False, True, True]), torch.tensor([0, 2, 3])
    for gradients in jacobian:
        gradients[1] = torch.nan
    balancer = make(name, 4)
    start = balancer.init(4, seed=3)
    found, state = direct(balancer, jacobian, losses, start, present)
    part = {**start, **{key: start[key][index] for key in balancer.per_task}}
    alone, after = balancer.direction([gradients[index] for gradients in jacobian], losses[index], part)
    assert all(torch.equal(one, other) for one, other in zip(found, alone, strict=True))
    for key, value in after.items():
        if key.startswith(balancer.per_row) and balancer.per_row:
            assert state[key].shape == (4, *value.shape[1:])
            assert torch.equal(state[key][index], value)
            assert not state[key][1].any()  # seen for the first time without it
        elif key in balancer.per_task:
            assert torch.equal(state[key][index], value)
            torch.testing.assert_close(state[key][1], start[key][1], rtol=0, atol=0, equal_nan=True)
    assert set(state) == set(after)
    # All there: the method itself; then another without it, and none at all.
    whole = [gradients.nan_to_num(nan=0.5) for gradients in jacobian]
    ones = torch.ones(4, dtype=torch.float64)
    _, state = direct(balancer, whole, ones, state, torch.ones(4, dtype=torch.bool))
    _, later = direct(balancer, whole, ones, state, present)
    for key in state:
        if balancer.per_row and key.startswith(balancer.per_row):
            assert torch.equal(later[key][1], state[key][1])
            assert not torch.equal(later[key][index], state[key][index])
    nothing, same = direct(balancer, whole, ones, state, torch.zeros(4, dtype=torch.bool))
    assert [part.shape for part in nothing] == [(5,), (2, 3)]
    assert not any(part.any() for part in nothing)
    assert same is state


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ALL)
def test_what_is_not_finite_raises_no_error(name: str, bad: float) -> None:
    """The engine looks for it and says which task it was."""
    tasks = 3
    balancer = make(name, tasks)
    jacobian = torch.randn(tasks, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = torch.ones(tasks, dtype=torch.float64)
    worse = jacobian.clone()
    worse[1, 2] = bad
    if isinstance(balancer, JacobianBalancer):
        direction, _ = balancer.direction([worse], losses, balancer.init(tasks))
        # the one compares signs, the other reads one task's gradient a step
        assert name in ("graddrop", "m_config") or not bool(direction[0].isfinite().all())
        return
    if isinstance(balancer, ModuleBalancer):
        answer, _ = balancer(losses, torch.stack([worse @ worse.T] * 2), balancer.init(tasks))
        assert answer.shape == (2, tasks)
        return
    weights, _ = balancer(losses, worse @ worse.T, balancer.init(tasks))
    assert balancer.needs == "losses" or name == "gradnorm" or not bool(weights.isfinite().any())
    bad_losses = torch.tensor([1.0, bad, 1.0], dtype=torch.float64)
    weights, state = balancer(bad_losses, jacobian @ jacobian.T, balancer.init(tasks))
    balancer.on_epoch_end(bad_losses, balancer.after_step(bad_losses, state))
    assert weights.shape == (tasks,)


@pytest.mark.parametrize("name", names("balancers"))
def test_declares_itself(name: str) -> None:
    """What `mtlscale list balancers` and the loop read."""
    cls = component("balancers", name)
    assert cls.name == name
    assert cls.source
    assert cls.summary().endswith(".")
    assert cls.needs in ("losses", "gramian", "jacobian", "validation", "modules")
    of_parameters = cls.at == "parameters" and not cls.aligns_heads
    assert cls.batchable == (cls.needs in ("losses", "gramian") and of_parameters)
    own_answer = cls.after_step is not Balancer.after_step and not issubclass(cls, Wrapper)
    assert cls.needs_post_step_losses == own_answer
    for default, knob in cls.knobs().values():
        assert default in ((), None) or knob.admits(default)
        assert knob.help
        numeric = [value for value in knob.search if isinstance(value, int | float)]
        assert all(knob.admits(value) for value in numeric)
    if name != "svd_reweighting":
        built = make(name, 3)
        state = built.init(3)
        assert {*built.per_task, *built.per_pair, *built.counters} <= set(state)
        filled_in = {"precision", "task_scale", *(["preference"] if isinstance(built, PreferenceBalancer) else [])}
        assert set(built.hints) == filled_in & set(state)
        sized = {key for key, value in state.items() if value.shape[-1:] == (3,)}
        assert sized == {*built.per_task, *built.per_pair}
