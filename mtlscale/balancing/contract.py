"""The contract of a balancer: losses and the Gramian of the task gradients in, task weights out, no side effect."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from mtlscale.config import Component, UserError, from_plugin, knob, plugin_error

_PATIENCE = 60.0  # seconds that a plugin's balancer may take for one call

State = dict[str, Tensor]
Needs = Literal["losses", "gramian", "jacobian", "validation", "modules"]


class Balancer(Component):
    """Base class of a balancer, which turns task losses and perhaps gradients into weights of the shared update `Jᵀ w`.

    A balancer is pure: all that it remembers is in `state`, a flat dictionary of tensors. So it can be checkpointed and
    batched over leading dimensions (losses [..., T], gramian [..., T, T], weights [..., T]), and it gives the same
    answer on every worker. All tensors are float64 except counters and the positions of generators (int64).

    The training loop sets the entries of the state that are named in `hints` before each call; `init` gives them
    neutral values. There are three:

    - "precision" [...]: eps of the type in which the gradients were computed (default: float64's). Lengths read off a
      Gramian are known only so far: `mtlscale.solvers.length_bounds`.
    - "task_scale" [..., T]: the factors that the losses were multiplied by before the call (default: ones). It is one
      of `per_task`, too.
    - "preference" [..., T]: how much each task matters, from the settings; the loop sets it only where preferences are
      drawn for a network that is conditioned on them.

    A balancer with `needs_post_step_losses` gets the losses of the same batch once more, after the optimiser's step.
    Where tasks have no labels in a step, or are at rest (`balanced_tasks`), call `balance`, `direct` and `look_again`
    instead of the methods themselves.
    """

    kind: ClassVar[str] = "balancers"
    needs: ClassVar[Needs] = "losses"  # the cheapest input that suffices
    cost: ClassVar[str] = "1 backward"  # cost of a step, shown by `mtlscale list`
    # Heads and other task parameters: weighted with the losses ("weighted"), or plain gradients times 1/T ("mean") or
    # times 1 ("sum"), matching the scale of the shared direction (docs/methods.md). T are the tasks of the step.
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "weighted"
    at = "parameters"  # where the Gramian is computed, or "representation"; a setting of rules of the Gramian
    # Whether heads also learn to bring their gradients at the representation closer to the weighted sum of all tasks';
    # it then has the settings `lam`, their weight, and `limit`, the largest part of a head's own gradient.
    aligns_heads: ClassVar[bool] = False
    # Made for losses ≥ 0: a negative one is an error that names the task, unless the formula takes it, too. A task is
    # left out of steps in which its loss is 0.
    positive_losses: ClassVar[bool] = False
    takes_negative: ClassVar[bool] = False
    per_task: ClassVar[tuple[str, ...]] = ()  # entries of the state whose last dimension is the task
    per_pair: ClassVar[tuple[str, ...]] = ()  # entries of the state whose last two dimensions are tasks
    only_in_init: ClassVar[tuple[str, ...]] = ()  # knobs that `init` alone reads: batched trials may differ in them
    counters: ClassVar[tuple[str, ...]] = ()  # entries that count events to report ("failures", "clamps")
    traced: ClassVar[tuple[str, ...]] = ()  # entries that are recorded with every epoch ("kappa"): numbers or vectors
    hints: ClassVar[tuple[str, ...]] = ()  # entries that the loop sets before each call: "precision", "task_scale", …
    needs_post_step_losses: ClassVar[bool] = False  # whether `after_step` needs the batch's losses after the step
    # The length of the way uphill, along the gradient of the mean loss, at whose end losses and gradients are computed.
    ascent: ClassVar[float] = 0.0
    # Whether trials with this balancer may be trained as one batched model: it needs losses or the Gramian at the
    # parameters, and all its methods work over leading dimensions.
    batchable: ClassVar[bool] = False

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        """Return the state before the first step, for leading dimensions `batch`."""
        return {}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        """Return the weights of the tasks and the next state.

        Args:
            losses: Task losses [..., T].
            gramian: Gramian [..., T, T] of the task gradients; None if the balancer needs losses alone.
            state: The state of `init` or of the last call.

        Returns:
            Weights [..., T], and the next state.
        """
        raise NotImplementedError(f"{type(self).__name__} has no __call__(self, losses, gramian, state)")

    def after_step(self, losses: Tensor, state: State) -> State:
        """Return the next state, given the losses of the same batch after the optimiser's step.

        Called only for balancers with `needs_post_step_losses`, and only if the step was taken.

        Args:
            losses: Task losses [..., T], computed without gradients and scaled like those of the call.
            state: The state that the call returned.
        """
        return state

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        """Return the next state, at the end of an epoch.

        Args:
            losses: Training losses [..., T] averaged over the steps of the epoch that balanced the task, as the tasks
                define them (without `task_scale`); NaN where there was none.
            state: The state after the epoch's last step.
        """
        return state

    @property
    def looks_at_features(self) -> bool:
        """True if `from_data` gets the heads' inputs of before the first step, instead of the network's inputs."""
        return False

    @classmethod
    def check_class(cls) -> None:
        bases = {"jacobian": JacobianBalancer, "validation": ValidationBalancer, "modules": ModuleBalancer}
        for attribute, choices in (
            ("needs", get_args(Needs)),
            ("heads", ("weighted", "mean", "sum")),
            ("at", ("parameters", "representation")),
        ):
            if getattr(cls, attribute) not in choices:
                raise ValueError(f"{attribute} = {getattr(cls, attribute)!r} is unknown; choose {', '.join(choices)}")

        base = bases.get(cls.needs)
        if base is not None and not issubclass(cls, base):
            raise ValueError(f"needs = {cls.needs!r}, so it has to derive from {base.__name__}")
        if cls.needs == "modules" and cls.heads == "weighted":
            raise ValueError("heads = 'weighted', but it has weights for every module; choose mean, sum")

    def rehearse(self) -> None:
        if from_plugin(self):
            rehearsal(self, 2, sure=False)


def rehearsal(balancer: Balancer, tasks: int, *, sure: bool = True) -> None:
    """Check that a plugin's balancer returns weights and a state.

    Args:
        balancer: The balancer to call with made-up losses.
        sure: Whether the balancer is meant for this number of tasks; if not, an error that it raises does not count,
            unless a missing Gramian is the cause.

    Raises:
        UserError: If its answer is not of the right form, its weights are not finite, or it does not return.
    """
    if isinstance(balancer, JacobianBalancer | ValidationBalancer) or hasattr(balancer, "from_data"):
        return

    try:
        state = balancer.init(tasks, seed=0)
        losses = torch.linspace(1.0, 2.0, tasks, dtype=torch.float64)
        gramian = None if balancer.needs == "losses" else torch.eye(tasks, dtype=torch.float64) + 0.1
        if gramian is not None and balancer.needs == "modules":
            gramian = torch.stack([gramian, gramian])
        answer = _in_time(balancer, lambda: balancer(losses, gramian, dict(state)))
    except _NeverReturnsError:
        raise
    except UserError:
        if sure:
            raise
        return
    except Exception as error:
        if balancer.needs == "losses" and _answers_a_gramian(balancer, tasks):
            raise UserError(
                f"balancer {balancer.name} reads the Gramian, but needs = 'losses'; set needs = 'gramian'"
            ) from error
        if not sure:
            return
        raise plugin_error(type(balancer), error) or error from error

    shape = [tasks] if gramian is None else list(gramian.shape[:-1])
    expectation = f"its call has to return (weights {shape}, state)"

    if not isinstance(answer, tuple) or len(answer) != 2:
        actual = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        actual = "nothing" if answer is None else actual
        raise UserError(f"balancer {balancer.name} returns {actual}; {expectation}")

    weights, next_state = answer
    if not isinstance(weights, Tensor) or list(weights.shape) != shape:
        actual = f"of shape {list(weights.shape)}" if isinstance(weights, Tensor) else f"a {type(weights).__name__}"
        raise UserError(f"balancer {balancer.name} returns weights {actual}; {expectation}")
    if not isinstance(next_state, dict) or not all(isinstance(value, Tensor) for value in next_state.values()):
        raise UserError(f"balancer {balancer.name} returns a state that is no dictionary of tensors; {expectation}")

    if not bool(weights.isfinite().all()):
        actual = ", ".join(f"{loss:g}" for loss in losses.tolist())
        odd = float(weights[~weights.isfinite()].reshape(-1)[0])  # nan, inf or -inf
        raise UserError(f"balancer {balancer.name}: weights are {odd} for losses [{actual}]; mend the plugin")


class _NeverReturnsError(UserError):
    """The error of a plugin's balancer that does not come back from a call."""


def _in_time(balancer: Balancer, call: Callable[[], Any]) -> Any:
    """Return what the call returns, made in a thread that is left behind after `_PATIENCE` seconds."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="rehearsal", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if errors:
        raise errors[0]
    if results:
        return results[0]

    frame = sys._current_frames().get(thread.ident or 0)
    path = getattr(sys.modules[type(balancer).__module__], "__file__", None)
    lines = [entry.lineno for entry in traceback.extract_stack(frame) if entry.filename == path]
    where = f"{path}:{lines[-1]}: " if lines else ""
    raise _NeverReturnsError(
        f"{where}balancer {balancer.name} has not returned from a call on made-up losses after {_PATIENCE:.0f} s; mend "
        "the plugin"
    )


def _answers_a_gramian(balancer: Balancer, tasks: int) -> bool:
    """Return whether a balancer that fails without a Gramian returns weights with one."""
    losses = torch.linspace(1.0, 2.0, tasks, dtype=torch.float64)
    try:
        answer = balancer(losses, torch.eye(tasks, dtype=torch.float64) + 0.1, dict(balancer.init(tasks, seed=0)))
    except Exception:
        return False
    return isinstance(answer, tuple) and isinstance(answer[0], Tensor)


class GramianBalancer(Balancer):
    """Base class of a balancer that makes its weights of the Gramian.

    With `at: representation` the gradients are those of the losses with respect to the shared representation, as in
    Sener & Koltun (NeurIPS 2018, MGDA-UB): one pass through the trunk suffices for any number of tasks. The weights are
    those of another problem (docs/methods.md#at-the-representation); they are the exact ones where the trunk keeps
    angles and ratios of lengths, and for heads of one input that all tasks share.
    """

    needs: ClassVar[Needs] = "gramian"

    at: str = knob(
        "parameters",
        choices=("parameters", "representation"),
        later=True,
        help="compare gradients at the shared parameters, or at the representation: one pass through the trunk",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at == "representation":
            object.__setattr__(self, "batchable", False)


class JacobianBalancer(Balancer):
    """Base class of a balancer that needs the gradients themselves and returns a direction instead of weights."""

    needs: ClassVar[Needs] = "jacobian"
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "sum"
    # Key prefixes of the state's entries whose first dimension is the task ("tracked."); such entries may first appear
    # with the first call.
    per_row: ClassVar[tuple[str, ...]] = ()
    # Entries of the state that are read on the host; the others are on the gradients' device.
    on_host: ClassVar[tuple[str, ...]] = ()

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        """Return the update of each shared parameter and the next state.

        Args:
            jacobian: The task gradients, one tensor [T, *shape] per shared parameter.
            losses: Task losses [T].
            state: The state of `init` or of the last call.

        Returns:
            The update [*shape] of each shared parameter, and the next state.
        """
        raise NotImplementedError


class ValidationBalancer(Balancer):
    """Base class of a balancer that learns its weights from a look-ahead step.

    It is called with the losses q_t(θ') [..., T] of query data, and with C[t, s] = ⟨∇q_t(θ'), g_s(θ)⟩ in place of the
    Gramian, at θ' = θ - eta Σ_s v_s g_s with v = `lookahead(state)`. Query and training samples come from disjoint
    halves of the training data.
    """

    needs: ClassVar[Needs] = "validation"
    eta: float  # the look-ahead's learning rate

    def lookahead(self, state: State) -> Tensor:
        """Return the weights v [..., T] of the look-ahead step among the tasks of the state, as a call returns them."""
        raise NotImplementedError


class ModuleBalancer(Balancer):
    """Base class of a balancer that weights the task gradients module by module.

    It is called with the Gramian [M, T, T] of the task gradients at each of the M modules that the network names, input
    side first, and returns weights [M, T]. A module whose weights are all 0 does not move at all, not even by momentum
    or weight decay. Shared parameters outside these modules follow `heads`.

    Entries of the state with one number per module are empty in `init`, which does not know the number of modules.
    """

    needs: ClassVar[Needs] = "modules"
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "sum"


def balanced_tasks(balancer: Balancer, losses: Tensor, present: Tensor, squares: Tensor | None = None) -> Tensor:
    """Return which tasks a step balances, bool [..., T]: those with labels that are not at rest.

    A task is at rest where its loss and its gradient are exactly 0, as those of masked labels and of satisfied hinges
    are. A balancer that compares gradients or divides by losses would learn from it what is not so; it is asked about
    the others alone, as if the task had no label. A balancer that does neither weighs the task like any other.

    Args:
        losses: Task losses [..., T].
        present: Whether each task has labels in this step, bool [..., T].
        squares: Squared norms [..., T] of the task gradients, or other numbers that are 0 where a gradient is; None if
            they are not known. A loss of 0 then suffices: it is the least that a loss may be, so its gradient is 0.
    """
    if balancer.needs == "losses" and not balancer.positive_losses:
        return present
    at_rest = losses == 0
    if not bool(at_rest.any()):
        return present
    return present & ~(at_rest if squares is None else at_rest & (squares == 0))


def look_ahead_weights(balancer: ValidationBalancer, state: State, present: Tensor) -> Tensor:
    """Return the weights [..., T] of the look-ahead step among the tasks that are `present` [T], 0 for the others."""
    if bool(present.all()):
        return balancer.lookahead(state)
    weights = torch.zeros_like(balancer.lookahead(state))
    if bool(present.any()):
        index = present.nonzero().squeeze(-1)
        weights[..., index] = balancer.lookahead(_part(balancer, state, index))
    return weights


def balance(
    balancer: Balancer, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
) -> tuple[Tensor, State]:
    """Call a balancer for the tasks that have labels in this step; the other tasks get weight 0.

    The part of the state that belongs to the other tasks stays as it is.

    Args:
        losses: Task losses [..., T].
        gramian: Gramian of the task gradients [..., T, T], or of each module [M, T, T]; None if the balancer needs
            losses alone.
        present: Whether each task has labels in this step, bool [T].

    Returns:
        Weights [..., T], or [M, T] of each module, and the next state.
    """
    if bool(present.all()):
        return balancer(losses, gramian, state)

    weights = torch.zeros_like(losses)
    if balancer.needs == "modules":
        assert gramian is not None
        weights = gramian.new_zeros(gramian.shape[:-1])
    if not bool(present.any()):
        return weights, state

    index = present.nonzero().squeeze(-1)
    present_gramian = None if gramian is None else gramian[..., index, :][..., :, index]
    present_weights, next_state = balancer(losses[..., index], present_gramian, _part(balancer, state, index))
    weights[..., index] = present_weights
    return weights, _whole(balancer, state, next_state, index)


def direct(
    balancer: JacobianBalancer, jacobian: list[Tensor], losses: Tensor, state: State, present: Tensor
) -> tuple[list[Tensor], State]:
    """Call a Jacobian balancer for the tasks that have labels in this step.

    The other tasks' rows of the Jacobian, losses and parts of the state are left out and stay as they are.

    Args:
        jacobian: The task gradients, one tensor [T, *shape] per shared parameter.
        losses: Task losses [T].
        present: Whether each task has labels in this step, bool [T].

    Returns:
        The update [*shape] of each shared parameter (zeros if no task has labels), and the next state.
    """
    if bool(present.all()):
        return balancer.direction(jacobian, losses, state)
    if not bool(present.any()):
        return [torch.zeros_like(gradients[0]) for gradients in jacobian], state

    index = present.nonzero().squeeze(-1)
    present_state = _part(balancer, state, index, balancer.per_row)
    direction, next_state = balancer.direction(
        [gradients[index] for gradients in jacobian], losses[..., index], present_state
    )
    return direction, _whole(balancer, state, next_state, index, len(present), balancer.per_row)


def look_again(balancer: Balancer, losses: Tensor, state: State, present: Tensor) -> State:
    """Call `after_step` of a balancer for the tasks that had labels in the step, and return the next state.

    The other tasks' losses and parts of the state are left out and stay as they are.

    Args:
        losses: Task losses [..., T] of the same batch after the optimiser's step.
        present: Whether each task had labels in the step, bool [T].
    """
    if bool(present.all()):
        return balancer.after_step(losses, state)
    if not bool(present.any()):
        return state

    index = present.nonzero().squeeze(-1)
    next_state = balancer.after_step(losses[..., index], _part(balancer, state, index))
    return _whole(balancer, state, next_state, index)


def _part(balancer: Balancer, state: State, index: Tensor, per_row: tuple[str, ...] = ()) -> State:
    """Return the state of the tasks `index` [S] alone."""
    part = dict(state)
    for key in balancer.per_task:
        part[key] = state[key][..., index]
    for key in balancer.per_pair:
        part[key] = state[key][..., index, :][..., :, index]
    for key in _starting(state, per_row):
        part[key] = state[key][index]
    return part


def _whole(
    balancer: Balancer, state: State, after: State, index: Tensor, tasks: int = 0, per_row: tuple[str, ...] = ()
) -> State:
    """Return the state of all tasks: `after` for the tasks `index` [S], `state` or else zeros for the others."""
    result = dict(after)

    for key in balancer.per_task:
        result[key] = state[key].clone()
        result[key][..., index] = after[key]

    for key in balancer.per_pair:
        result[key] = state[key].clone()
        result[key][..., index[:, None], index] = after[key]

    for key in _starting(after, per_row):
        rows = after[key]
        result[key] = state[key].clone() if key in state else rows.new_zeros(tasks, *rows.shape[1:])
        result[key][index] = rows

    return result


def _starting(state: State, prefixes: tuple[str, ...]) -> list[str]:
    return [key for key in state if key.startswith(prefixes)] if prefixes else []


def check_length(balancer: Balancer, what: str, values: object, tasks: int) -> None:
    """Raise `UserError` if a list of per-task settings does not have one entry per task."""
    if not isinstance(values, tuple | list) or len(values) != tasks:
        count = len(values) if isinstance(values, tuple | list) else 0
        raise UserError(f"{balancer.name}: {what} has {count} entries, but there are {tasks} tasks")
