"""The contract of a balancer: losses and the Gramian of the task gradients in, task weights out, no side effect."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from mtlscale.spec import Component, UserError, from_plugin, plugin_error

State = dict[str, Tensor]
Needs = Literal["losses", "gramian", "jacobian", "validation", "modules"]


class Balancer(Component):
    """Turns task losses, and the Gramian of their gradients, into weights of the shared update `Jᵀ w`.

    Pure: everything it remembers is in `state`, a flat dictionary of tensors, so it can be checkpointed, batched over
    leading dimensions (losses [..., T], gramian [..., T, T], weights [..., T]) and gives the same answer on every
    worker. All tensors are float64 but for counters and generators' positions (int64).

    Two entries of the state may be told by whoever trains, before each call (`told`); `init` gives them the values that
    change nothing. "precision" [...]: eps of the type in which the gradients were computed (default: float64's);
    "task_scale" [..., T]: what the losses were multiplied by before they were handed over (default: ones; it is one of
    `per_task`, too).

    A balancer that `looks_again` gets the losses of the same batch once more after the optimiser's step. Where tasks
    have no labels in a step, `balance`, `direct` and `look_again` are called in place of the methods themselves.
    """

    kind: ClassVar[str] = "balancers"
    needs: ClassVar[Needs] = "losses"  # the cheapest thing that suffices
    cost: ClassVar[str] = "1 backward"  # of a step, for `mtlscale list`
    # Heads and other task parameters: weighted with the losses ("weighted"), or plain gradients times 1/T ("mean") or
    # times 1 ("sum"), matching the scale of the shared direction (docs/methods.md).
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "weighted"
    at: ClassVar[Literal["parameters", "representation"]] = "parameters"  # where the Gramian is taken
    positive_losses: ClassVar[bool] = False  # negative losses are an error that names the task
    per_task: ClassVar[tuple[str, ...]] = ()  # entries of the state whose last dimension is the task
    per_pair: ClassVar[tuple[str, ...]] = ()  # entries of the state whose last two dimensions are tasks
    counters: ClassVar[tuple[str, ...]] = ()  # entries that count events to report ("failures", "clamps")
    traced: ClassVar[tuple[str, ...]] = ()  # entries that are noted with every epoch ("kappa"): numbers or vectors
    told: ClassVar[tuple[str, ...]] = ()  # entries that are set before each call: "precision", "task_scale"
    looks_again: ClassVar[bool] = False  # whether `after_step` wants the batch's losses after the step
    # Whether trials of it may be trained as one batched model: it needs losses or the Gramian at the parameters, and
    # all its methods work over leading dimensions.
    batchable: ClassVar[bool] = False

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        """The state before the first step, for leading dimensions `batch`."""
        return {}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        """losses [..., T], gramian [..., T, T] or None -> weights [..., T] and the next state."""
        raise NotImplementedError

    def after_step(self, losses: Tensor, state: State) -> State:
        """losses [..., T] of the same batch after the optimiser's step, computed without gradients and scaled as those
        of the call were -> the next state. Called only when `looks_again` and the step was taken."""
        return state

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        """losses [..., T]: training losses averaged over the epoch, as the tasks have them (no `task_scale`)."""
        return state

    @property
    def looks_at_features(self) -> bool:
        """Whether its `from_data` is handed what the heads read before the first step, in place of the inputs."""
        return False

    @classmethod
    def check_class(cls) -> None:
        bases = {"jacobian": JacobianBalancer, "validation": ValidationBalancer, "modules": ModuleBalancer}
        for what, known in (
            ("needs", get_args(Needs)),
            ("heads", ("weighted", "mean", "sum")),
            ("at", ("parameters", "representation")),
        ):
            if getattr(cls, what) not in known:
                raise ValueError(f"{what} = {getattr(cls, what)!r} is unknown; choose {', '.join(known)}")
        base = bases.get(cls.needs)
        if base is not None and not issubclass(cls, base):
            raise ValueError(f"needs = {cls.needs!r}, so it has to derive from {base.__name__}")
        if cls.needs == "modules" and cls.heads == "weighted":
            raise ValueError("heads = 'weighted', but it has weights for every module; choose mean, sum")

    def rehearse(self) -> None:
        if from_plugin(self):
            rehearsal(self, 2, sure=False)


def rehearsal(balancer: Balancer, tasks: int, *, sure: bool = True) -> None:
    """`UserError` where a balancer of a plugin does not answer with weights and state. sure: that it is made for so
    many tasks; else what it raises says nothing."""
    if isinstance(balancer, JacobianBalancer | ValidationBalancer) or hasattr(balancer, "from_data"):
        return
    try:
        state = balancer.init(tasks, seed=0)
        losses = torch.linspace(1.0, 2.0, tasks, dtype=torch.float64)
        gramian = None if balancer.needs == "losses" else torch.eye(tasks, dtype=torch.float64) + 0.1
        if gramian is not None and balancer.needs == "modules":
            gramian = torch.stack([gramian, gramian])
        answer = balancer(losses, gramian, dict(state))
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
    wanted = f"its call has to return (weights {shape}, state)"
    if not isinstance(answer, tuple) or len(answer) != 2:
        given = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise UserError(f"balancer {balancer.name} returns {given}; {wanted}")
    weights, after = answer
    if not isinstance(weights, Tensor) or list(weights.shape) != shape:
        given = f"of shape {list(weights.shape)}" if isinstance(weights, Tensor) else f"a {type(weights).__name__}"
        raise UserError(f"balancer {balancer.name} returns weights {given}; {wanted}")
    if not isinstance(after, dict) or not all(isinstance(value, Tensor) for value in after.values()):
        raise UserError(f"balancer {balancer.name} returns a state that is no dictionary of tensors; {wanted}")
    if not bool(weights.isfinite().all()):
        given = ", ".join(f"{loss:g}" for loss in losses.tolist())
        raise UserError(f"balancer {balancer.name}: weights are {_odd(weights)} for losses [{given}]; mend the plugin")


def _odd(weights: Tensor) -> str:
    """The first weight that is no finite number: nan, inf or -inf."""
    return str(float(weights[~weights.isfinite()].reshape(-1)[0]))


def _answers_a_gramian(balancer: Balancer, tasks: int) -> bool:
    """Whether a balancer that fails without a Gramian gives weights with one."""
    losses = torch.linspace(1.0, 2.0, tasks, dtype=torch.float64)
    try:
        answer = balancer(losses, torch.eye(tasks, dtype=torch.float64) + 0.1, dict(balancer.init(tasks, seed=0)))
    except Exception:
        return False
    return isinstance(answer, tuple) and isinstance(answer[0], Tensor)


class JacobianBalancer(Balancer):
    """A balancer that needs the gradients themselves and answers with a direction instead of weights."""

    needs: ClassVar[Needs] = "jacobian"
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "sum"
    # Beginnings of the keys of entries of the state whose first dimension is the task ("tracked."); such entries may
    # appear with the first call.
    per_row: ClassVar[tuple[str, ...]] = ()
    on_host: ClassVar[
        tuple[str, ...]
    ] = ()  # entries of the state that are read there; the others are with the gradients

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        """jacobian: one [T, *shape] tensor per shared parameter -> the update [*shape] of each, and the next state."""
        raise NotImplementedError


class ValidationBalancer(Balancer):
    """A balancer that learns its weights by looking ahead: called with the losses q_t(θ') [..., T] of query data and
    C[t, s] = ⟨∇q_t(θ'), g_s(θ)⟩ in place of the Gramian, at θ' = θ - eta Σ_s v_s g_s, v = `lookahead(state)`. Query and
    training samples come from disjoint halves of the training data."""

    needs: ClassVar[Needs] = "validation"
    eta: float  # the look-ahead's learning rate

    def lookahead(self, state: State) -> Tensor:
        """The weights v [..., T] of the look-ahead step."""
        raise NotImplementedError


class ModuleBalancer(Balancer):
    """A balancer that decides module by module: called with the Gramian of the task gradients at each of the network's
    M noticed modules, input side first, [M, T, T], it answers with weights [M, T]. A module whose weights are all 0 is
    not moved at all, by no momentum and no weight decay either. Shared parameters outside these modules follow `heads`.

    Entries of the state with a number for each module are empty in `init`, which does not know how many there are.
    """

    needs: ClassVar[Needs] = "modules"
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "sum"


def balance(
    balancer: Balancer, losses: Tensor, gramian: Tensor | None, state: State, present: Tensor
) -> tuple[Tensor, State]:
    """Weights [..., T] where some tasks have no labels in this step (`present` [T], bool): those get weight 0 and their
    part of the state stays as it is; the others are balanced among themselves."""
    if bool(present.all()):
        return balancer(losses, gramian, state)
    weights = torch.zeros_like(losses)
    if balancer.needs == "modules":
        assert gramian is not None
        weights = gramian.new_zeros(gramian.shape[:-1])
    if not bool(present.any()):
        return weights, state
    index = present.nonzero().squeeze(-1)
    sub = None if gramian is None else gramian[..., index, :][..., :, index]
    answer, after = balancer(losses[..., index], sub, _part(balancer, state, index))
    weights[..., index] = answer
    return weights, _whole(balancer, state, after, index)


def direct(
    balancer: JacobianBalancer, jacobian: list[Tensor], losses: Tensor, state: State, present: Tensor
) -> tuple[list[Tensor], State]:
    """The update [*shape] of each shared parameter where some tasks have no labels in this step (`present` [T], bool):
    their rows of the jacobian (one [T, *shape] per parameter), losses and parts of the state are left out and stay as
    they are. Zeros where no task has labels."""
    if bool(present.all()):
        return balancer.direction(jacobian, losses, state)
    if not bool(present.any()):
        return [torch.zeros_like(gradients[0]) for gradients in jacobian], state
    index = present.nonzero().squeeze(-1)
    part = _part(balancer, state, index, balancer.per_row)
    direction, after = balancer.direction([gradients[index] for gradients in jacobian], losses[..., index], part)
    return direction, _whole(balancer, state, after, index, len(present), balancer.per_row)


def look_again(balancer: Balancer, losses: Tensor, state: State, present: Tensor) -> State:
    """The state after `after_step` where some tasks had no labels in the step (`present` [T], bool): their losses
    (of [..., T]) and parts of the state are left out and stay as they are."""
    if bool(present.all()):
        return balancer.after_step(losses, state)
    if not bool(present.any()):
        return state
    index = present.nonzero().squeeze(-1)
    after = balancer.after_step(losses[..., index], _part(balancer, state, index))
    return _whole(balancer, state, after, index)


def _part(balancer: Balancer, state: State, index: Tensor, per_row: tuple[str, ...] = ()) -> State:
    """The state of the tasks `index` [S] alone."""
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
    """The state of all tasks: `after` for the tasks `index` [S], `state` for the others; rows that were not there
    before are zeros for the others."""
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
    """`UserError` where a list of per-task settings has not one entry per task."""
    if not isinstance(values, tuple | list) or len(values) != tasks:
        given = len(values) if isinstance(values, tuple | list) else 0
        raise UserError(f"{balancer.name}: {what} has {given} entries, but there are {tasks} tasks")
