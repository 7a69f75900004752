"""What every balancer keeps, as checks that raise `AssertionError` where it does not."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.balancing import (
    Balancer,
    JacobianBalancer,
    ModuleBalancer,
    State,
    balance,
    balanced_tasks,
    direct,
    look_again,
)
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import UserError, build
from mtlscale.data import Workers
from mtlscale.testing.gradients import KINDS, gradients, losses_of, permutation
from mtlscale.testing.training import SAMPLES, STEPS_PER_EPOCH, TASKS, Labels, Trail, by_threads, train

Bound = Callable[[Tensor, Tensor], float]  # gradients [T, P] and update [P] in float64 -> a ratio, at most 1

_EXACT = 1e-9  # relative, in float64
_DRAWS = 20
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_NOISE = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)


@dataclass(frozen=True)
class Check:
    """A check of one property. Calling it raises `AssertionError` where the balancer does not have it."""

    name: str
    test: Callable[[], None]

    def __call__(self) -> None:
        self.test()

    @property
    def __name__(self) -> str:
        """The name by which pytest tells parameters apart."""
        return self.name


@dataclass(frozen=True)
class _TestedBalancer:
    """The balancer under test, and the numbers of tasks that it may have."""

    balancer: Balancer
    sizes: tuple[int, ...]
    bound: Bound | None

    @property
    def several(self) -> list[int]:
        return [size for size in self.sizes if size > 1]


def balancer_checks(
    balancer: str | Balancer | type[Balancer],
    *,
    leave_out: Collection[str] = (),
    bound: Bound | None = None,
    sizes: Sequence[int] = (1, 2, 3, 8),
) -> list[Check]:
    """Return the checks of what every balancer keeps; those that do not concern the balancer are not among them.

    ```python
    @pytest.mark.parametrize("check", balancer_checks(RunningMean))
    def test_running_mean(check):
        check()
    ```

    Args:
        balancer: The balancer: its name, an instance, or a class, which gets its default settings.
        leave_out: Names of checks that the balancer is not meant to pass.
        bound: What the method states of its update, such as a largest distance from the mean gradient: from the
            gradients [T, P] and the update [P] to a ratio that is at most 1. It is held in single and half precision,
            near points where no task can gain.
        sizes: Numbers of tasks to try; they contain 3.

    Raises:
        UserError: If a check that is left out does not exist, or training data are needed before the first step.
    """
    built: Balancer
    if isinstance(balancer, str):
        built = build("balancers", balancer)
    else:
        built = balancer() if isinstance(balancer, type) else balancer
    if hasattr(built, "from_data"):
        raise UserError(f"{built.name} makes its weights of training data; the checks have none")
    for name in leave_out:
        if name not in _CHECKS:
            raise UserError(f"there is no check {name!r} to leave out; choose {', '.join(_CHECKS)}")

    subject = _TestedBalancer(built, tuple(sizes), bound)
    concerned = [name for name in _CHECKS if name not in leave_out and _concerns(name, subject)]
    return [Check(name, lambda test=_CHECKS[name]: test(subject)) for name in concerned]  # type: ignore[misc]


def _concerns(name: str, subject: _TestedBalancer) -> bool:
    balancer = subject.balancer
    if name == "one task":
        return 1 in subject.sizes and not isinstance(balancer, JacobianBalancer | ModuleBalancer)
    if name == "scale":
        return not isinstance(balancer, ModuleBalancer) and balancer.needs != "validation"
    if name == "batch":
        return balancer.batchable
    if name == "bound":
        return subject.bound is not None
    if name == "micro-batches":  # these need a whole step at once, and say so
        return balancer.at == "parameters" and not balancer.aligns_heads
    return True


# -- calls -------------------------------------------------------------------------------------------------------------


def _call(
    balancer: Balancer, jacobian: Tensor, losses: Tensor, state: State, present: Tensor | None = None
) -> tuple[Tensor, State]:
    """Return weights [..., T], weights by module [M, T] or a direction [P], and the next state."""
    present = torch.ones(losses.shape[-1], dtype=torch.bool) if present is None else present
    if isinstance(balancer, JacobianBalancer):
        parts, state = direct(balancer, [jacobian[:, :1], jacobian[:, 1:]], losses, state, present)
        return torch.cat(parts), state

    gramian = None if balancer.needs == "losses" else jacobian @ jacobian.mT
    if gramian is not None and isinstance(balancer, ModuleBalancer):
        gramian = torch.stack([gramian, gramian])
    return balance(balancer, losses, gramian, state, present)


def _steps(balancer: Balancer, jacobian: Tensor, state: State, count: int = 3) -> tuple[Tensor, State]:
    """Return the last answer and the state after so many steps, each of an epoch of its own."""
    for step in range(count):
        losses = losses_of(jacobian, step)
        answer, state = _call(balancer, jacobian, losses, state)
        if balancer.needs_post_step_losses:
            state = balancer.after_step(0.9 * losses, state)
        state = balancer.on_epoch_end(losses, state)
    return answer, state


def _direction(balancer: Balancer, jacobian: Tensor, losses: Tensor) -> Tensor:
    """Return the update [P] of the first step, in the gradients' type."""
    state = balancer.init(len(jacobian), seed=1)
    if "precision" in balancer.hints:
        state = {**state, "precision": torch.full_like(state["precision"], torch.finfo(jacobian.dtype).eps)}
    wide = jacobian if jacobian.dtype == torch.float64 else jacobian.float()
    if isinstance(balancer, JacobianBalancer):
        return _call(balancer, wide, losses, state)[0]
    gramian = None if balancer.needs == "losses" else (wide @ wide.T).double()
    weights, _ = balancer(losses, gramian, state)
    return weights.to(wide) @ wide


def _random(tasks: int, parameters: int = 6) -> Tensor:
    return gradients("gaussian", tasks, parameters)


def _finite(state: Mapping[str, Tensor], unknown: Mapping[str, Tensor] | None = None) -> bool:
    """Return whether a state has finite numbers, but for entries that `unknown` has NaN in."""
    hoped = {} if unknown is None else {key for key, value in unknown.items() if bool(value.isnan().any())}
    return all(bool(value.isfinite().all()) for key, value in state.items() if key not in hoped)


def _same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value.nan_to_num(), other[key].nan_to_num()) and torch.equal(value.isnan(), other[key].isnan())
        for key, value in one.items()
    )


def _assert_close(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    gap, size = float((found - expected).nan_to_num().norm()), float(expected.nan_to_num().norm())
    assert torch.equal(found.isnan(), expected.isnan()), f"{what}: NaN in other places"
    assert gap <= tolerance * max(size, 1e-12), f"{what}: {gap / max(size, 1e-12):.1e} apart"


# -- the checks --------------------------------------------------------------------------------------------------------


def _check_form(subject: _TestedBalancer) -> None:
    """Answers have the right shape, states keep theirs, and entries that are declared exist."""
    balancer = subject.balancer
    for tasks in subject.sizes:
        start = balancer.init(tasks, seed=1)
        answer, state = _steps(balancer, _random(tasks), start)
        shape = [6] if isinstance(balancer, JacobianBalancer) else [tasks]
        shape = [2, tasks] if isinstance(balancer, ModuleBalancer) else shape
        assert list(answer.shape) == shape, f"an answer {list(answer.shape)} for {tasks} tasks"
        assert answer.dtype == torch.float64, f"an answer in {answer.dtype}"

        declared = {*balancer.per_task, *balancer.per_pair, *balancer.counters, *balancer.hints}
        assert declared <= start.keys(), f"init has no {', '.join(sorted(declared - start.keys()))}"
        assert start.keys() <= state.keys(), f"lost of the state: {', '.join(sorted(start.keys() - state.keys()))}"
        for name in balancer.per_task:
            assert state[name].shape == (tasks,), f"{name} has the shape {list(state[name].shape)}"
        for name in balancer.per_pair:
            assert state[name].shape == (tasks, tasks), f"{name} has the shape {list(state[name].shape)}"


def _check_finite(subject: _TestedBalancer) -> None:
    """Gradients of every kind and scale get finite answers, and leave finite states."""
    balancer = subject.balancer
    for seed, tasks in enumerate(subject.sizes):
        for kind in KINDS:
            for scale in (1e-12, 1.0, 1e12) if tasks == TASKS else (1.0,):
                jacobian = gradients(kind, tasks, 1 + (seed + tasks) % (2 * tasks), scale=scale, seed=seed)
                if jacobian.shape[1] == 1:
                    jacobian = torch.cat([jacobian, jacobian], dim=1)
                answer, state = _steps(balancer, jacobian, balancer.init(tasks, seed=1))
                case = f"{kind} gradients of {tasks} tasks, scaled by {scale:g}"
                assert bool(answer.isfinite().all()), f"{case}: {answer.tolist()}"
                assert _finite(state), f"{case}: the state is not finite"


def _check_one_task(subject: _TestedBalancer) -> None:
    """With one task a balancer is plain training: its weight is 1."""
    balancer = subject.balancer
    for scale in (1e-12, 1.0, 1e12):
        weights, _ = _steps(balancer, torch.full((1, 2), scale, dtype=torch.float64), balancer.init(1))
        assert float((weights - 1.0).abs()) <= 1e-12, f"one task has the weight {float(weights)}"


def _check_order(subject: _TestedBalancer) -> None:
    """Another order of the tasks gives the same weights, in that order."""
    balancer = subject.balancer
    for tasks in subject.several:
        for kind in ("gaussian", "agreeing", "all zero", "zeros"):  # elsewhere optimal weights may not be unique
            for seed in range(2):
                jacobian, order = gradients(kind, tasks, tasks + 2, seed=seed), permutation(tasks)
                state = balancer.init(tasks)
                renamed = {key: value[order] if key in balancer.per_task else value for key, value in state.items()}
                renamed |= {key: state[key][order][:, order] for key in balancer.per_pair}
                expected, _ = _steps(balancer, jacobian, state)
                weights, _ = _steps(balancer, jacobian[order], renamed)
                if not isinstance(balancer, JacobianBalancer):
                    expected = expected[..., order]
                _assert_close(weights, expected, 1e-5, f"{kind} gradients of {tasks} tasks")


def _check_scale(subject: _TestedBalancer) -> None:
    """Multiplying all losses by one number does not turn the update of the first step."""
    for tasks in subject.several:
        jacobian = _random(tasks)
        losses = losses_of(jacobian)
        plain = _direction(subject.balancer, jacobian, losses)
        for factor in (1e-3, 1e3):
            scaled = _direction(subject.balancer, factor * jacobian, factor * losses)
            _assert_close(scaled / scaled.norm(), plain / plain.norm(), 1e-5, f"losses times {factor:g}")


def _check_batch(subject: _TestedBalancer) -> None:
    """Compare a batch of trials over leading dimensions with the trials one by one."""
    balancer = subject.balancer
    for tasks in subject.several:
        stacked = torch.stack([gradients("gaussian", tasks, 6, seed=seed) for seed in range(6)]).unflatten(0, (2, 3))
        answer, state = _steps(balancer, stacked, balancer.init(tasks, seed=5, batch=(2, 3)))
        assert answer.shape == (2, 3, tasks), f"an answer {list(answer.shape)} for a batch of 2 x 3 with {tasks} tasks"
        for index in ((0, 0), (1, 2)):
            alone, after = _steps(balancer, stacked[index], balancer.init(tasks, seed=5))
            _assert_close(answer[index], alone, 1e-12, "the weights of a trial")
            for key, value in after.items():
                _assert_close(state[key][index].double(), value.double(), 1e-12, f"{key} of a trial")


def _check_pure(subject: _TestedBalancer) -> None:
    """Call twice: answers are alike whatever was drawn or called in between, and inputs stay as they are."""
    balancer, jacobian = subject.balancer, _random(TASKS)
    losses = losses_of(jacobian)
    _, state = _steps(balancer, jacobian, balancer.init(TASKS, seed=2), count=2)
    inputs, before = [jacobian.clone(), losses.clone()], {key: value.clone() for key, value in state.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        one, after = _call(balancer, jacobian, losses, state)
        assert torch.equal(jacobian, inputs[0]) and torch.equal(losses, inputs[1]), "a call changes its inputs"
        assert _same(state, before), "a call changes the state that it was given"
        torch.manual_seed(2)
        _steps(balancer, 2.0 * jacobian, balancer.init(TASKS, seed=3))
        other, later = _call(balancer, jacobian, losses, state)
    assert torch.equal(one, other), f"the same call answers {one.tolist()}, then {other.tolist()}"
    assert _same(after, later), "the same call leaves different states"


def _check_resumed(subject: _TestedBalancer) -> None:
    """Go on from a state that was saved and loaded as if nothing had happened, bit by bit."""
    balancer, jacobian = subject.balancer, _random(TASKS)
    _, state = _steps(balancer, jacobian, balancer.init(TASKS, seed=2), count=2)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    undisturbed, after = _steps(balancer, jacobian, state)
    resumed, later = _steps(balancer, jacobian, torch.load(buffer, weights_only=True))
    assert torch.equal(undisturbed, resumed) and _same(after, later), "a saved state goes on otherwise"


def _check_missing(subject: _TestedBalancer) -> None:
    """Leave out a task without labels: it keeps its state, and the others are balanced as if it did not exist."""
    balancer, jacobian, index = subject.balancer, _random(TASKS), torch.tensor([0, 2])
    losses, present = losses_of(jacobian), torch.tensor([True, False, True])
    start = balancer.init(TASKS, seed=1)
    part = {key: value[index] if key in balancer.per_task else value for key, value in start.items()}
    part |= {key: start[key][index][:, index] for key in balancer.per_pair}

    weights, _ = _call(balancer, jacobian, losses, start, present)
    alone, _ = _call(balancer, jacobian[index], losses[index], part)
    if not isinstance(balancer, JacobianBalancer):
        assert not bool(weights[..., 1].any()), f"a task without labels has the weight {weights[..., 1].tolist()}"
        weights = weights[..., index]
    assert torch.equal(weights, alone), f"{weights.tolist()} among others that are absent, {alone.tolist()} alone"

    _, state = _steps(balancer, jacobian, start)
    _, after = _call(balancer, jacobian, losses, state, present)
    if balancer.needs_post_step_losses:
        after = look_again(balancer, 0.9 * losses, after, present)
    for key in (*balancer.per_task, *balancer.per_pair):
        assert torch.equal(after[key][1], state[key][1]), f"{key} of a task without labels changes"


def _check_alone(subject: _TestedBalancer) -> None:
    """Give a task that is alone in a step its plain gradient, and its head, too."""
    steps = [Labels().without(0, 2)]
    trained, plain = train(subject.balancer, steps), train(Equal(reduction="sum"), steps)
    _assert_close(trained.of_shared, plain.of_shared, _EXACT, "the shared gradient of a task alone")
    _assert_close(trained.of_head(1), plain.of_head(1), _EXACT, "the head's gradient of a task alone")


_STEPS = 4 * STEPS_PER_EPOCH
# The steps in which the losses of which tasks are 0.
_MASKED: dict[str, dict[int, tuple[int, ...]]] = {
    "in the first epoch": dict.fromkeys(range(STEPS_PER_EPOCH), (2,)),
    "in the second epoch": dict.fromkeys(range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH), (2,)),
    "of all tasks in the first step": {0: (0, 1, 2)},
}
_OFTEN: dict[int, tuple[int, ...]] = {0: (2,), 2: (2,), 3: (1, 2), 5: (0, 1, 2), 6: (0,)}


def _check_zero(subject: _TestedBalancer) -> None:
    """Pass by losses of 0 with gradients of 0: all stays finite, and no weight is lost or explodes later."""
    balancer = subject.balancer
    undisturbed = _masked(balancer, {}).weights
    for when, zeroed in _MASKED.items():
        _assert_recovered(_masked(balancer, zeroed).weights, undisturbed, when)

    at_rest = torch.zeros(1, dtype=torch.float64)
    if not bool(balanced_tasks(balancer, at_rest, at_rest == 0).any()):  # it leaves out such a task
        trail, expected = _masked(balancer, _OFTEN), _masked(balancer, _OFTEN, missing=True)
        _assert_close(trail.weights, expected.weights, _EXACT, "weights where losses are 0 and where they are missing")
        _assert_close(trail.gradients, expected.gradients, _EXACT, "gradients with losses of 0, and without")

    jacobian = _random(TASKS)
    jacobian[2] = 0.0
    losses = torch.where(torch.tensor([True, True, False]), losses_of(jacobian), 0.0)
    start = balancer.init(TASKS)
    for factor, whose in ((1.0, "one task"), (0.0, "all tasks")):
        answer, state = _call(balancer, factor * jacobian, factor * losses, start)
        state = balancer.on_epoch_end(factor * losses, state)
        assert bool(answer.isfinite().all()), f"loss and gradient of {whose} are 0: {answer.tolist()}"
        assert _finite(state, start), f"loss and gradient of {whose} are 0: the state is not finite"


def _masked(balancer: Balancer, masked: Mapping[int, tuple[int, ...]], *, missing: bool = False) -> Trail:
    """Train for some epochs in which losses are 0, or else missing."""
    tasks = [masked.get(number, ()) for number in range(_STEPS)]
    trail = train(balancer, [Labels().without(*masked) if missing else Labels(masked=masked) for masked in tasks])
    assert bool(trail.gradients.isfinite().all()), (
        f"losses of 0 in the steps {sorted(masked)}: a gradient is not finite"
    )
    return trail


def _assert_recovered(found: Tensor, undisturbed: Tensor, when: str) -> None:
    """Compare the shares of weights [steps, T] in the last steps: none of a fifth falls below a tenth of itself."""
    if bool(undisturbed.isnan().any()):
        return
    sizes = [weights[-2 * STEPS_PER_EPOCH :].abs().mean(0) for weights in (found, undisturbed)]
    shares = [size / size.sum() for size in sizes]
    lost = (shares[1] > 0.2) & ~(shares[0] > 0.1 * shares[1])
    means = [[float(f"{size:.3g}") for size in weights.tolist()] for weights in sizes]
    assert not bool(lost.any()), f"a loss of 0 {when}: the last weights are {means[0]}, else {means[1]}"


def _check_not_finite(subject: _TestedBalancer) -> None:
    """Losses and gradients that are not finite raise no error: the training loop says which task's they are."""
    balancer = subject.balancer
    for number in (torch.nan, torch.inf, -torch.inf):
        jacobian, losses = _random(TASKS), torch.ones(TASKS, dtype=torch.float64)
        worse, bad_losses = jacobian.clone(), losses.clone()
        worse[1, 2] = bad_losses[1] = number
        for gradient, loss in ((worse, losses), (jacobian, bad_losses)):
            answer, state = _call(balancer, gradient, loss, balancer.init(TASKS))
            balancer.on_epoch_end(loss, balancer.after_step(loss, state))
            assert answer.shape[-1] in (TASKS, jacobian.shape[1])


def _uneven() -> Iterator[Labels]:
    """Yield the labels of steps that lack some: on the second worker, in a micro-batch, and everywhere."""
    first = torch.arange(SAMPLES) % 2 == 0
    for here in (first, torch.zeros_like(first)):
        mask = Labels().mask.clone()
        mask[:, 2] = here
        yield Labels(mask)
        mask = mask.clone()
        mask[:, 0] = False
        mask[SAMPLES // 2 :, 1] = False
        yield Labels(mask)
    yield Labels()
    yield Labels(masked=(1,))
    yield Labels().without(0, 1, 2)
    yield Labels()


def _check_workers(subject: _TestedBalancer) -> None:
    """Two workers, of which one may lack a task, make the steps of one."""

    def work(workers: Workers) -> Trail:
        return train(subject.balancer, list(_uneven()), workers)

    expected = work(Workers())
    for trained in by_threads(work):
        _assert_close(trained.weights, expected.weights, 1e-7, "the weights of two workers")
        _assert_close(trained.gradients, expected.gradients, 1e-7, "the gradients of two workers")


def _check_micro_batches(subject: _TestedBalancer) -> None:
    """Micro-batches, of which some may lack a task, make the steps of the whole batch."""
    expected, trained = (train(subject.balancer, list(_uneven()), micros=micros) for micros in (1, 3))
    _assert_close(trained.weights, expected.weights, 1e-7, "the weights of micro-batches")
    _assert_close(trained.gradients, expected.gradients, 1e-7, "the gradients of micro-batches")


def _check_bound(subject: _TestedBalancer) -> None:
    """Keep the method's bound in single and half precision, near points where no task can gain."""
    assert subject.bound is not None
    for dtype in _TYPES:
        for noise in _NOISE:
            for seed in range(_DRAWS):
                exact = gradients("gaussian", TASKS, 40, seed=seed)
                exact[1] = -(0.2 + seed / _DRAWS) * exact[0] + noise * exact[1]
                jacobian = exact.to(dtype)
                direction = _direction(subject.balancer, jacobian, losses_of(jacobian.double()))
                ratio = subject.bound(jacobian.double(), direction.double())
                assert ratio <= 1.01, f"{ratio:.3g} times the bound in {dtype}, with noise {noise:g} (draw {seed})"


_CHECKS: dict[str, Callable[[_TestedBalancer], None]] = {
    "form": _check_form,
    "finite": _check_finite,
    "one task": _check_one_task,
    "order": _check_order,
    "scale": _check_scale,
    "batch": _check_batch,
    "pure": _check_pure,
    "resumed": _check_resumed,
    "missing": _check_missing,
    "alone": _check_alone,
    "zero": _check_zero,
    "not finite": _check_not_finite,
    "workers": _check_workers,
    "micro-batches": _check_micro_batches,
    "bound": _check_bound,
}
