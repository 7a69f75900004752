"""What holds for every method: permuted tasks, degenerate gradients, purity, batching, steps without labels."""

import io

import pytest
import torch
from gramians import jacobians, permutation
from hypothesis import given, settings
from torch import Tensor

from mtlscale.balancing import Balancer, JacobianBalancer, ModuleBalancer, State, balance, direct, look_again
from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.balancing.wrapper import Wrapper
from mtlscale.config import build, component, names

ALL = [name for name in names("balancers") if name != "svd_reweighting"]  # it has no init: test_validation_balancers.py
JACOBIAN = [name for name in ALL if issubclass(component("balancers", name), JacobianBalancer)]
MODULES = [name for name in ALL if issubclass(component("balancers", name), ModuleBalancer)]
WEIGHTING = [name for name in ALL if name not in {*JACOBIAN, *MODULES}]
RANDOM = {"pcgrad", "gradvac", "rlw", "random_static"}  # another order of tasks meets other numbers
ORDERED = {"ldc_mtl"}  # looks at neighbouring tasks
# Optimal weights are not unique there (only the direction is), or the method jumps (docs/methods.md).
UNIQUE = ("gaussian", "agreeing", "all zero", "zeros")

few = settings(max_examples=25, deadline=None, derandomize=True)


def make(name: str, tasks: int) -> Balancer:
    options = {"weights": [1.0 + task for task in range(tasks)]} if name == "static" else {}
    balancer: Balancer = build("balancers", name, options)
    return balancer


def losses_of(gramian: Tensor) -> Tensor:
    """Positive losses [..., T] as large as the gradients."""
    scale = gramian.diagonal(dim1=-2, dim2=-1).sqrt()
    return scale + scale.amax(-1, keepdim=True) + 1e-9


def steps(balancer: Balancer, gramian: Tensor, state: State, count: int = 3) -> tuple[Tensor, State]:
    losses = losses_of(gramian)
    for _ in range(count):
        weights, state = balancer(losses, gramian, state)
        state = balancer.after_step(0.9 * losses, state)
        state = balancer.on_epoch_end(losses, state)
    return weights, state


@pytest.mark.parametrize("name", WEIGHTING)
@given(jacobian=jacobians(min_tasks=1, max_tasks=12))
@few
def test_weights_and_state_are_finite(name: str, jacobian: Tensor) -> None:
    balancer = make(name, len(jacobian))
    start = balancer.init(len(jacobian), seed=1)
    weights, state = steps(balancer, jacobian @ jacobian.T, start)
    assert weights.shape == (len(jacobian),)
    assert weights.dtype == torch.float64
    assert bool(weights.isfinite().all())
    assert {key: value.shape for key, value in state.items()} == {key: value.shape for key, value in start.items()}
    assert all(bool(value.isfinite().all()) for value in state.values())


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("name", WEIGHTING)
def test_one_task_is_plain_training(name: str, scale: float) -> None:
    balancer = make(name, 1)
    weights, _ = steps(balancer, torch.tensor([[scale**2]], dtype=torch.float64), balancer.init(1))
    torch.testing.assert_close(weights, torch.ones(1, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", [name for name in WEIGHTING if name not in RANDOM | ORDERED])
@given(jacobian=jacobians(max_tasks=10, kinds=UNIQUE))
@few
def test_permuting_tasks_permutes_weights(name: str, jacobian: Tensor) -> None:
    order, gramian = permutation(len(jacobian)), jacobian @ jacobian.T
    balancer = make(name, len(jacobian))
    state = balancer.init(len(jacobian))
    weights, _ = steps(balancer, gramian, state)
    renamed = {key: value[order] if key in balancer.per_task else value for key, value in state.items()}
    permuted, _ = steps(balancer, gramian[order][:, order], renamed)
    tolerance = 1e-6 * max(1.0, float(weights.abs().max()))
    torch.testing.assert_close(permuted, weights[order], rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("name", WEIGHTING)
def test_a_batch_of_trials_is_the_trials_one_by_one(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    jacobian = torch.randn(2, 3, 4, 6, dtype=torch.float64, generator=generator)
    gramian = jacobian @ jacobian.mT
    balancer = make(name, 4)
    weights, state = steps(balancer, gramian, balancer.init(4, seed=5, batch=(2, 3)))
    assert weights.shape == (2, 3, 4)
    for index in ((0, 0), (1, 2)):
        alone, after = steps(balancer, gramian[index], balancer.init(4, seed=5))
        torch.testing.assert_close(weights[index], alone, rtol=1e-12, atol=1e-14)
        for key, value in after.items():
            torch.testing.assert_close(state[key][index], value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["rlw", "pcgrad", "gradvac"])
def test_trials_with_different_seeds_draw_as_they_would_alone(name: str) -> None:
    jacobian = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    balancer = make(name, 8)
    alone = [balancer.init(8, seed=seed) for seed in (3, 4)]
    together = {key: torch.stack([state[key] for state in alone]) for key in alone[0]}
    weights, _ = steps(balancer, torch.stack([gramian, gramian]), together)
    for row, state in zip(weights, alone, strict=True):
        assert torch.equal(row, steps(balancer, gramian, state)[0])
    assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("name", WEIGHTING)
def test_pure_and_resumable(name: str) -> None:
    """The same call twice answers alike, inputs stay as they were, and a saved state goes on as if never cut."""
    jacobian = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    balancer = make(name, 5)
    _, state = steps(balancer, gramian, balancer.init(5, seed=2), count=2)
    before = {key: value.clone() for key, value in state.items()}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    one, after = steps(balancer, gramian, state)
    two, other = steps(balancer, gramian, torch.load(buffer, weights_only=True))
    assert torch.equal(one, two)
    assert all(torch.equal(after[key], other[key]) for key in after)
    assert all(torch.equal(state[key], before[key]) for key in before)


@pytest.mark.parametrize("name", WEIGHTING)
def test_tasks_without_labels_keep_their_state_and_weigh_nothing(name: str) -> None:
    jacobian = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    balancer = make(name, 4)
    _, state = steps(balancer, gramian, balancer.init(4))
    present = torch.tensor([True, False, True, True])
    weights, after = balance(balancer, losses_of(gramian), gramian, state, present)
    assert weights[1] == 0
    assert bool(weights.isfinite().all())
    for key in balancer.per_task:
        assert torch.equal(after[key][1], state[key][1])
    for key in balancer.per_pair:
        assert torch.equal(after[key][1], state[key][1])
        assert torch.equal(after[key][:, 1], state[key][:, 1])
    again = look_again(balancer, 0.9 * losses_of(gramian), after, present)
    for key in balancer.per_task:
        assert torch.equal(again[key][1], state[key][1])
    assert not balancer.needs_post_step_losses or any(
        not torch.equal(again[key], after[key]) for key in balancer.per_task
    )
    assert look_again(balancer, losses_of(gramian), again, torch.zeros(4, dtype=torch.bool)) is again


@pytest.mark.parametrize("name", WEIGHTING)
def test_tasks_without_labels_change_nothing_for_the_others(name: str) -> None:
    """Balanced among themselves, the others get what they would get if there were no other task."""
    jacobian = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian, index = jacobian @ jacobian.T, torch.tensor([0, 2, 3])
    balancer = make(name, 4)
    state = balancer.init(4)
    part = {**state, **{key: state[key][index] for key in balancer.per_task}}
    part |= {key: state[key][index][:, index] for key in balancer.per_pair}
    present = torch.tensor([True, False, True, True])
    weights, _ = balance(balancer, losses_of(gramian), gramian, state, present)
    alone, _ = balancer(losses_of(gramian)[index], gramian[index][:, index], part)
    assert torch.equal(weights[index], alone)


@pytest.mark.parametrize("name", ["bandit", "meta_weighting", "excess_mtl", "moco"])
def test_a_task_without_labels_keeps_its_share(name: str) -> None:
    """Steps without its labels do not raise the others' weights against its own: the shares' sum stays what it was."""

    def total(state: State) -> float:
        shares = state["log_weights"].exp() if "log_weights" in state else state["weights"]
        return float(shares[[0, 2]].sum() / shares.sum())

    jacobian = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    balancer = make(name, 3)
    losses = losses_of(gramian)
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
