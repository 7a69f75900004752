"""Balancers in a training loop of one's own: losses in, `.grad` of every parameter out."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mtlscale.balancing import Balancer, ValidationBalancer
from mtlscale.config import UserError, build
from mtlscale.data import Workers
from mtlscale.training.gradients.loss_graph import (
    GraphLook,
    changed_in_place,
    check_features,
    check_loss,
    graph_bytes,
    is_compiled,
)
from mtlscale.training.gradients.per_task import Partition, TaskGradients
from mtlscale.training.gradients.strategies import Amp
from mtlscale.training.gradients.tally import Tally
from mtlscale.training.gradients.update import StepResult, Update
from mtlscale.training.own_loop.given_losses import DIFFERENTIATED, GivenLosses, PerTask, check_no_scaler, given_losses
from mtlscale.training.own_loop.parameter_groups import Heads, ParameterGroups, Parameters
from mtlscale.training.own_loop.parameter_hooks import ParameterHooks, hooks_of
from mtlscale.training.own_loop.saved_state import check_identity, check_rows, identity

_SMALL = 32 << 20  # bytes of a graph that is kept until the next step, so that the task of a bad gradient can be named
_MOST_GRAPHS = 64  # of different sizes, beyond which a network's graphs are not kept
_STEPS_OF_AN_EPOCH = 500  # steps without `end_epoch` after which a balancer that waits for it says so


class TaskBalancer:
    """A balancer for a training loop of one's own: `backward(losses)` takes the place of `sum(losses).backward()`.

    It leaves in `.grad` what this project's own training leaves, computed by the same code, for any `nn.Module` and any
    optimiser. It is an object and no function because most balancers remember something between steps, and because
    checks and the choice of the cheapest way are made once, at the first step.

    ```python
    balancer = mtlscale.TaskBalancer("getmtl", shared=model.trunk.parameters(), heads=[h.parameters() for h in heads])
    for inputs, targets in loader:
        features = model.trunk(inputs)
        losses = [loss(head(features), y) for loss, head, y in zip(criteria, heads, targets)]
        optimizer.zero_grad()
        balancer.backward(losses, features=features)
        optimizer.step()
    ```

    - *Missing tasks*: a loss of None, or a name that a mapping lacks.
    - *Gradient accumulation*: `accumulate(losses)` for all micro-batches but the last, `backward(losses)` for the last.
      The whole step is balanced at once.
    - *Mixed precision*: give the `torch.amp.GradScaler` as `scaler`, and losses that are not scaled to `backward`. Then
      follow `scaler.step(optimizer)` and `scaler.update()` as always.
    - *Several workers*: if `torch.distributed` is initialised, gradients are averaged over workers before they are
      balanced. So *k* workers with batch *b* do what one does with batch *k·b*. Do not wrap the network in
      `DistributedDataParallel`, or run its forward pass in `no_sync()`: it would average a second time.

    Args:
        method: The name of a shipped balancer, or a balancer: an instance, or a class.
        shared: The parameters that tasks share; a module, or a list of modules for balancers that decide module by
            module.
        heads: The parameters of each task, in the tasks' order, or by name.
        tasks: The tasks' names, or their number, where there are no heads.
        scaler: The loop's gradient scaler.
        amp: The type of the forward pass, which says how exact gradients are: "off", "bf16" or "fp16". A scaler means
            "fp16".
        gramian_every: Balance anew every so many steps and reuse the weights in between (an approximation).
        seed: Seed of balancers that draw random numbers.
        **knobs: The balancer's settings, as in an experiment file.

    Raises:
        UserError: If the parameters overlap, a setting is unknown, or the balancer needs more than losses and their
            gradients.
    """

    def __init__(
        self,
        method: str | Balancer | type[Balancer] = "getmtl",
        *,
        shared: Parameters | Sequence[nn.Module],
        heads: Heads | None = None,
        tasks: int | Sequence[str] | None = None,
        scaler: torch.amp.GradScaler | None = None,
        amp: Amp = "off",
        gramian_every: int = 1,
        seed: int = 0,
        **knobs: Any,
    ) -> None:
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise UserError(f"scaler is a {type(scaler).__name__}; give the loop's torch.amp.GradScaler")
        if amp not in get_args(Amp):
            raise UserError(f"amp is {amp!r}; choose {', '.join(get_args(Amp))}")
        if gramian_every < 1:
            raise UserError(f"gramian_every is {gramian_every}; a number of steps, 1 or more")

        self._groups = ParameterGroups(shared, heads, tasks)
        self.names = self._groups.names
        partition = self._groups.read()

        self.balancer = _balancer(method, knobs)
        _check_usable(self.balancer, partition, self._groups)
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None

        self.update = Update(
            self.names,
            partition,
            self.balancer,
            device=partition.all[0].device,
            dtype=_coarsest(partition),
            workers=Workers.current(),
            amp="fp16" if self.scaler is not None else amp,
            gramian_every=gramian_every,
            seed=seed,
            checks_gradients=True,
        )
        self.update.unknown_task = "; call backward with retain_graph=True to learn of which task"
        self._place, self._look = _place(partition.all), GraphLook(_owners(partition))
        self._tally = Tally(len(self.names))

        self._nodes = 0  # of the micro-batch's graph
        self._kept: dict[int, bool] = {}  # numbers of nodes -> whether such graphs are kept to name a task
        self._wrappers: list[Any] | None = None  # DistributedDataParallel around parameters; None: not looked for
        self._looked_for_scaler = False  # whether the first losses were not scaled by a scaler of the loop
        self._previous: list[Tensor | None] = []  # `.grad` of all parameters before the step
        self._earlier: TaskGradients | None = None  # of this step's micro-batches so far
        self._sizes: list[float] = []  # of the losses of the step's first micro-batch
        self._empty: set[int] = set()  # tasks whose losses were means of no terms in this step
        self._micro_batches, self._usual_micro_batches = 0, 0  # of this step so far, and of the first step
        self._hears_of_epochs = False  # whether `end_epoch` was ever called
        self._awaits_losses = False  # whether `after_step` is due

    def backward(
        self,
        losses: PerTask,
        features: Tensor | PerTask | None = None,
        counts: PerTask | None = None,
        *,
        retain_graph: bool = False,
    ) -> StepResult:
        """Add the balanced gradients to `.grad` of all parameters, as `loss.backward()` does.

        Args:
            losses: A scalar per task, the mean over its samples; None for a task without labels.
            features: The output of the shared part that all heads read, if they read nothing else of it. It saves most
                of the work of balancers of Gramians: trunks of linear layers, convolutions and embeddings are then
                handled layer by layer. One per task where tasks have inputs of their own.
            counts: How many terms each loss is the mean of. Exact means need it if micro-batches or workers differ in
                it. A task with 0 terms has no labels: its loss is not differentiated, its head has gradient 0.
            retain_graph: Keep the losses' graph, for terms that are differentiated after the step.

        Returns:
            The losses over all micro-batches and workers, and the tasks' weights. `skipped` says that mixed precision
            overflowed: `.grad` is infinite then, so that the scaler skips the step.

        Raises:
            Diverged: If a loss, gradient or weight is not a finite number.
            UserError: If a loss is detached, does not depend on the shared parameters, or is not as the balancer needs
                it. Neither parameters nor `.grad` nor the balancer's state change then.
        """
        if self._awaits_losses:
            raise UserError(
                f"{self.balancer.name} learns from the losses of the same batch after the step: call "
                "after_step(losses) behind optimizer.step()"
            )
        with self._forgetting_on_errors():
            scale = self._start_step()
            given = self._given(losses, features, counts)
            keep = retain_graph or self._keeps(given)
            with self._unchanged_on_errors() as hooks:
                micro = given.batches(keep=retain_graph)
                result = self.update([micro], sizes=self._sizes, earlier=self._earlier, retain=keep)

        if keep and not retain_graph:
            given.mark()
        self._finish_step(result, scale, hooks)
        return result

    def accumulate(
        self,
        losses: PerTask,
        features: Tensor | PerTask | None = None,
        counts: PerTask | None = None,
        *,
        retain_graph: bool = False,
    ) -> None:
        """Differentiate one micro-batch of a step; `backward` with the step's last one balances all of them together.

        Arguments and exceptions are those of `backward`. After an exception the step's micro-batches so far are lost.
        """
        with self._forgetting_on_errors():
            self._start_step()
            micro = self._given(losses, features, counts).batches(keep=retain_graph)
            with self._unchanged_on_errors():
                self._earlier = self.update.collect(micro, self._sizes, self._earlier)
        self._micro_batches += 1

    def discard(self) -> None:
        """Forget the micro-batches of a step that `backward` did not end; `end_epoch` does so, too."""
        self._earlier, self._sizes, self._micro_batches = None, [], 0
        self._empty = set()

    def after_step(self, losses: PerTask, counts: PerTask | None = None) -> None:
        """Tell the balancer the losses of the same batch, computed without gradients after the optimiser's step.

        FAMO learns its weights from them. Other balancers ignore them.
        """
        self._awaits_losses = False
        if not self.balancer.needs_post_step_losses:
            return
        given = given_losses(self.names, losses, counts, detached=True)
        self.update.look_again([given.batches()])

    def end_epoch(self) -> None:
        """Tell the balancer that an epoch ends; DWA and others compare the mean losses of epochs.

        Micro-batches of a step that `backward` did not end are forgotten.
        """
        self.discard()
        self.update.on_epoch_end(self._tally.balanced_losses)
        self._tally, self._hears_of_epochs = Tally(len(self.names)), True

    def state_dict(self) -> dict[str, Any]:
        """Return all that is remembered between steps; micro-batches of an unfinished step are not."""
        return {
            **identity(self.balancer, self.names, self._groups.sizes()),
            "update": self.update.state_dict(),
            "epoch": {"losses": self._tally.losses, "balanced": self._tally.balanced},
            "awaits_losses": self._awaits_losses,
        }

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; micro-batches of an unfinished step are forgotten.

        Raises:
            UserError: If it is the state of another balancer, or of other settings, tasks or parameters.
        """
        check_identity(content, identity(self.balancer, self.names, self._groups.sizes()))
        check_rows(self.balancer, content["update"]["balancer"], self.update.partition.shared)
        self.discard()
        self.update.load_state_dict(content["update"])
        self._tally.restore(content["epoch"]["losses"], content["epoch"]["balanced"])
        self._awaits_losses = content["awaits_losses"]

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _start_step(self) -> float:
        """Check what surrounds the step; return the scale of the losses, which the update takes from the scaler."""
        if Workers.current() != self.update.workers:
            raise UserError("the process group was started after the balancer was made; make the balancer behind it")
        parameters = self.update.partition.all
        if self._place != _place(parameters) or not all(parameter.requires_grad for parameter in parameters):
            self._read_groups()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._check_wrappers()

        if self.scaler is None:
            return 1.0
        # The scaler makes its scale with the first tensor that it scales.
        self.update.loss_scale = float(self.scaler.scale(torch.ones((), device=self.update.device)))
        return self.update.loss_scale

    def _read_groups(self) -> None:
        """Read the parameters anew: some are trained that were not, or no longer, or modules were replaced or moved."""
        partition = self._groups.read()
        same = [id(p) for p in partition.all] == [id(p) for p in self.update.partition.all]
        if same and self._place == _place(partition.all):
            return
        if self._earlier is not None:
            raise UserError("the parameters changed between the micro-batches of a step: change them behind backward")

        _check_usable(self.balancer, partition, self._groups)
        check_rows(self.balancer, self.update.state, partition.shared)
        self._place, self._look = _place(partition.all), GraphLook(_owners(partition))
        self.update.repartition(partition, self._place[0], _coarsest(partition))
        self._kept, self._wrappers = {}, None

    def _check_wrappers(self) -> None:
        """Raise `UserError` where the forward pass ran in `DistributedDataParallel`, which averages gradients, too."""
        if self._wrappers is None:
            self._wrappers = _wrappers_of(self.update.partition.all)
        if any(wrapper._lazy_init_ran and wrapper.require_forward_param_sync for wrapper in self._wrappers):
            raise UserError(
                "the forward pass ran in DistributedDataParallel, which averages gradients a second time: call the "
                "network inside it, or run it in no_sync()"
            )

    def _given(self, losses: PerTask, features: Tensor | PerTask | None, counts: PerTask | None) -> GivenLosses:
        """Return a micro-batch's losses, checked."""
        losses_given = given_losses(self.names, losses, counts, features, scaler=self.scaler)
        if self.scaler is None and not self._looked_for_scaler:  # once: it looks among all objects
            check_no_scaler(self.names, losses_given)
            self._looked_for_scaler = True
        if self.update.amp == "fp16" and not self._sizes:
            sizes = dict(zip(losses_given.tasks, losses_given.counts, strict=True))
            self._sizes = [max(1.0, sizes.get(task, 1.0)) for task in range(len(self.names))]
        self._empty.update(losses_given.empty)

        if features is None and self._reads_features:
            raise UserError(f"{self.balancer.name} reads the gradients at the features: give features to backward")
        return self._looked_at(losses_given)

    @property
    def _reads_features(self) -> bool:
        return self.balancer.at == "representation" or self.balancer.aligns_heads

    def _looked_at(self, given: GivenLosses) -> GivenLosses:
        """Return the losses after a look at their graphs; without features where heads change these in place."""
        fit = self._look.fits(given.tasks, given.sums, given.features)
        if not fit.right:
            self._read_groups()
            fit = self._look.fits(given.tasks, given.sums, given.features)

        if not fit.right:
            for task, loss, z in zip(given.tasks, given.sums, given.features, strict=True):
                if z is not None and changed_in_place(z, loss):
                    return self._without_features(given)
                check_loss(loss, task, self.names, self._look.owners, z)
            for z in {id(z): z for z in given.features if z is not None}.values():
                check_features(z, self._look.owners)

        self.update.partition.vectorised = given.one and fit.batchable
        self._nodes = fit.nodes
        return given

    def _without_features(self, given: GivenLosses) -> GivenLosses:
        if self._reads_features:
            raise UserError(
                f"{self.balancer.name} reads the gradients at the features, and a head changes them in place: set "
                "inplace to False there"
            )
        return self._looked_at(replace(given, features=[None] * len(given.features), one=False))

    def _keeps(self, given: GivenLosses) -> bool:
        """Return whether the step keeps its graph, so that the task of a gradient that is not finite can be named."""
        by_sums = self.balancer.needs in ("losses", "modules") or self.update.gramian_every > 1
        if not by_sums or self._earlier is not None or not self.update.partition.shared or len(self.names) == 1:
            return False
        if self._nodes not in self._kept:
            # Large graphs would take memory from the next step; compiled ones cannot be kept.
            small = len(self._kept) < _MOST_GRAPHS and graph_bytes(given.sums) <= _SMALL
            self._kept[self._nodes] = small and not is_compiled(given.sums)
        return self._kept[self._nodes]

    def _finish_step(self, result: StepResult, scale: float, hooks: ParameterHooks | None) -> None:
        """Scale `.grad` as the scaler expects it, call hooks, and add what was there before."""
        parameters = self.update.partition.all
        if result.skipped:
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, torch.inf)
        elif self.scaler is not None:
            torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], scale)
        for parameter in (p for task in self._empty for p in self.update.partition.own[task] if p.grad is None):
            parameter.grad = torch.zeros_like(parameter)

        self._awaits_losses = self.balancer.needs_post_step_losses and not result.skipped and len(self.names) > 1
        self._tally.add(result)
        self._say_what_is_odd()
        self.discard()

        previous, self._previous = self._previous, []
        if hooks is None:
            for parameter, before in zip(parameters, previous, strict=True):
                if before is not None:
                    parameter.grad = before if parameter.grad is None else before.add_(parameter.grad)
        else:
            hooks.accumulate(parameters, previous)

    def _say_what_is_odd(self) -> None:
        """Warn once of micro-batches that seem left over, and of epochs that the balancer never hears of."""
        count, usual = self._micro_batches + 1, self._usual_micro_batches
        self._usual_micro_batches = max(count, usual)
        if 0 < usual < count:
            warnings.warn(
                f"this step has {count} micro-batches, more than those before: some may be left over from an epoch's "
                "end; end_epoch() or discard() forgets them",
                stacklevel=4,
            )
        if self.update.count == _STEPS_OF_AN_EPOCH and not self._hears_of_epochs and _hears(self.balancer):
            warnings.warn(
                f"{self.balancer.name} waits for the ends of epochs, and {_STEPS_OF_AN_EPOCH} steps came without one: "
                "call end_epoch() after every epoch",
                stacklevel=4,
            )

    @contextmanager
    def _forgetting_on_errors(self) -> Iterator[None]:
        """Forget the step's micro-batches where the body fails, and explain torch's errors."""
        try:
            yield
        except BaseException as error:
            self.discard()
            explanation = _explanation(error, self.balancer)
            if explanation is not None:
                raise UserError(explanation) from error
            raise

    @contextmanager
    def _unchanged_on_errors(self) -> Iterator[ParameterHooks | None]:
        """Take hooks off and yield them; put back `.grad` and the update's counter where the body fails."""
        parameters, count = self.update.partition.all, self.update.count
        self._previous = [parameter.grad for parameter in parameters]
        hooks = hooks_of(parameters)
        try:
            with nullcontext() if hooks is None else hooks.set_aside():
                yield hooks
        except BaseException:
            self.update.count = count
            for parameter, previous in zip(parameters, self._previous, strict=True):
                parameter.grad = previous
            raise


def _owners(partition: Partition) -> dict[int, int | None]:
    """Return the task that owns each parameter, None for shared ones, by the parameter's `id`."""
    of_tasks = {id(p): task for task, group in enumerate(partition.own) for p in group}
    return {id(p): None for p in partition.shared} | of_tasks


def _place(parameters: Sequence[Tensor]) -> tuple[torch.device, torch.dtype]:
    return parameters[0].device, parameters[0].dtype


def _coarsest(partition: Partition) -> torch.dtype:
    """Return the least exact type of the shared parameters, or of all where there are none."""
    return max((p.dtype for p in partition.shared or partition.all), key=lambda dtype: torch.finfo(dtype).eps)


def _wrappers_of(parameters: Sequence[nn.Parameter]) -> list[Any]:
    """Return the `DistributedDataParallel` around some of the parameters."""
    known = {id(parameter) for parameter in parameters}
    # Nothing in a graph tells of them, so they are looked for among all objects.
    wrappers = [thing for thing in gc.get_objects() if issubclass(type(thing), DistributedDataParallel)]
    return [wrapper for wrapper in wrappers if not known.isdisjoint(map(id, wrapper.parameters()))]


def _explanation(error: BaseException, balancer: Balancer) -> str | None:
    """Return what a user can do about an error of torch; None where it says so itself."""
    text = str(error) if isinstance(error, RuntimeError) else ""
    if "backward through the graph a second time" in text:
        return DIFFERENTIATED
    if "donated buffers" in text:
        return (
            f"the compiled network gives up its buffers in one backward pass, and {balancer.name} needs several: set "
            "torch._functorch.config.donated_buffer = False before its first forward pass"
        )
    if "torch.utils.checkpoint is incompatible with .grad()" in text:
        return "checkpoint with use_reentrant=True hides its parameters from the balancer: set use_reentrant to False"
    return None


def _hears(balancer: Balancer) -> bool:
    """Return whether a balancer, or the one that it wraps, does anything when an epoch ends."""
    while isinstance(inner := getattr(balancer, "inner", None), Balancer):
        balancer = inner
    return type(balancer).on_epoch_end is not Balancer.on_epoch_end


def _balancer(method: str | Balancer | type[Balancer], knobs: dict[str, Any]) -> Balancer:
    if isinstance(method, str):
        return cast(Balancer, build("balancers", method, knobs))
    if isinstance(method, type) and issubclass(method, Balancer):
        return method(**knobs)
    if not isinstance(method, Balancer):
        raise UserError(f"method is a {type(method).__name__}; give the name of a balancer, or a balancer")
    if knobs:
        raise UserError(f"{method.name} is built already; set {', '.join(knobs)} where it is built")
    return method


def _check_usable(balancer: Balancer, partition: Partition, groups: ParameterGroups) -> None:
    """Raise `UserError` where a balancer needs what a loop of one's own does not hand over."""
    if isinstance(balancer, ValidationBalancer):
        raise UserError(
            f"{balancer.name} needs losses of other samples after a look-ahead step, which a loop of one's own does "
            "not hand over; use it in an experiment file"
        )
    if balancer.ascent:
        raise UserError(
            f"{balancer.name} needs the losses at another point, too, which a loop of one's own does not hand over; "
            "use it in an experiment file"
        )
    if hasattr(balancer, "from_data"):
        raise UserError(
            f"{balancer.name} computes its weights from the whole training data before the first step; use it in an "
            "experiment file, or hand its weights to static"
        )
    if hasattr(balancer, "from_noise"):
        raise UserError(
            f"{balancer.name} knows the label noise that an experiment file adds; hand its weights to static"
        )
    if not partition.shared and len(partition.own) > 1 and balancer.needs != "losses":
        frozen = len(groups.sizes()["shared"])
        missing = (
            f", but all {frozen} of them are frozen (requires_grad is False): thaw some, or take equal"
            if frozen
            else ": give the trainable ones as shared"
        )
        raise UserError(f"{balancer.name} balances the gradients of shared parameters{missing}")
    if balancer.needs == "modules" and not partition.modules:
        raise UserError(f"{balancer.name} decides module by module: give shared as a list of two or more modules")
