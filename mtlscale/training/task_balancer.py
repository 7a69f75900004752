"""Balancers in a training loop of one's own: losses in, `.grad` of every parameter out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from mtlscale.balancing import Balancer, ValidationBalancer
from mtlscale.config import UserError, build
from mtlscale.data import Losses, Workers
from mtlscale.training.gradients.loss_graph import check_features, check_loss
from mtlscale.training.gradients.per_task import Partition, TaskGradients
from mtlscale.training.gradients.strategies import Amp
from mtlscale.training.gradients.tally import Tally
from mtlscale.training.gradients.update import StepResult, Update

Parameters = nn.Module | Iterable[nn.Parameter]
PerTask = Sequence[Any] | Mapping[str, Any]  # one entry per task, in their order or by name


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
        heads: Sequence[Parameters] | Mapping[str, Parameters] | nn.ModuleDict | nn.ModuleList | None = None,
        tasks: int | Sequence[str] | None = None,
        scaler: torch.amp.GradScaler | None = None,
        amp: Amp = "off",
        gramian_every: int = 1,
        seed: int = 0,
        **knobs: Any,
    ) -> None:
        self.names = _names(heads, tasks)
        own = (
            list(heads.values())
            if isinstance(heads, Mapping | nn.ModuleDict)
            else list(heads or [()] * len(self.names))
        )
        partition = _partition(shared, own, self.names)
        self._owners: dict[int, int | None] = {id(p): None for p in partition.shared}
        for task, group in enumerate(partition.own):
            self._owners |= {id(p): task for p in group}

        self.balancer = _balancer(method, knobs)
        _check_usable(self.balancer, partition)
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None

        first = partition.all[0]
        self.update = Update(
            self.names,
            partition,
            self.balancer,
            device=first.device,
            dtype=first.dtype,
            workers=Workers.current(),
            amp="fp16" if self.scaler is not None else amp,
            gramian_every=gramian_every,
            seed=seed,
        )
        self._tally = Tally(len(self.names))
        self._checked: set[tuple[int, bool]] = set()  # tasks, without and with features, whose graphs were looked at
        self._previous: list[Tensor | None] = []  # `.grad` of all parameters before the step
        self._earlier: TaskGradients | None = None  # of this step's micro-batches so far
        self._sizes: list[float] = []  # of the losses of the step's first micro-batch
        self._awaits_losses = False  # whether `after_step` is due

    def backward(
        self, losses: PerTask, features: Tensor | PerTask | None = None, counts: PerTask | None = None
    ) -> StepResult:
        """Add the balanced gradients to `.grad` of all parameters, as `loss.backward()` does.

        Args:
            losses: A scalar per task, the mean over its samples; None for a task without labels.
            features: The output of the shared part that all heads read, if they read nothing else of it. It saves most
                of the work of balancers of Gramians: trunks of linear layers, convolutions and embeddings are then
                handled layer by layer. One per task where tasks have inputs of their own.
            counts: How many terms each loss is the mean of. Exact means need it if micro-batches or workers differ in
                it.

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
        with self._unchanged_on_errors():
            scale = self._start_step()
            micro = self._losses(losses, features, counts)
            result = self.update([micro], sizes=self._sizes, earlier=self._earlier)

        self._finish_step(result, scale)
        return result

    def accumulate(
        self, losses: PerTask, features: Tensor | PerTask | None = None, counts: PerTask | None = None
    ) -> None:
        """Differentiate one micro-batch of a step; `backward` with the step's last one balances all of them together.

        Arguments and exceptions are those of `backward`. After an exception the step's micro-batches so far are lost.
        """
        with self._unchanged_on_errors():
            self._start_step()
            micro = self._losses(losses, features, counts)
            self._earlier = self.update.collect(micro, self._sizes, self._earlier)

    def after_step(self, losses: PerTask, counts: PerTask | None = None) -> None:
        """Tell the balancer the losses of the same batch, computed without gradients after the optimiser's step.

        FAMO learns its weights from them. Other balancers ignore them.
        """
        self._awaits_losses = False
        if not self.balancer.needs_post_step_losses:
            return
        present, sums, numbers = self._sums(losses, counts, detached=True)
        self.update.look_again([[Losses(present, sums, numbers)]])

    def end_epoch(self) -> None:
        """Tell the balancer that an epoch ends; DWA and others compare the mean losses of epochs."""
        self.update.on_epoch_end(self._tally.balanced_losses)
        self._tally = Tally(len(self.names))

    def state_dict(self) -> dict[str, Any]:
        """Return all that is remembered between steps; micro-batches of an unfinished step are not."""
        return {
            "method": self.balancer.name,
            "update": self.update.state_dict(),
            "epoch": {"losses": self._tally.losses, "balanced": self._tally.balanced},
            "awaits_losses": self._awaits_losses,
        }

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            UserError: If it is the state of another balancer, or of another number of tasks.
        """
        tasks = len(content["epoch"]["losses"])
        if content["method"] != self.balancer.name or tasks != len(self.names):
            raise UserError(
                f"the state is of {content['method']} with {tasks} tasks, this is {self.balancer.name} with "
                f"{len(self.names)}; load the state that belongs to it"
            )
        self.update.load_state_dict(content["update"])
        self._tally.restore(content["epoch"]["losses"], content["epoch"]["balanced"])
        self._awaits_losses = content["awaits_losses"]

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _start_step(self) -> float:
        """Check the process group; return the scale of the losses, which the update takes over from the scaler."""
        if Workers.current() != self.update.workers:
            raise UserError("the process group was started after the balancer was made; make the balancer behind it")
        if self.scaler is None:
            return 1.0
        # The scaler makes its scale with the first tensor that it scales.
        self.update.loss_scale = float(self.scaler.scale(torch.ones((), device=self.update.device)))
        return self.update.loss_scale

    def _finish_step(self, result: StepResult, scale: float) -> None:
        """Scale `.grad` as the scaler expects it, and add what was there before."""
        parameters = self.update.partition.all
        if result.skipped:
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, torch.inf)
        elif self.scaler is not None:
            torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], scale)

        for parameter, previous in zip(parameters, self._previous, strict=True):
            if previous is not None:
                parameter.grad = previous if parameter.grad is None else previous.add_(parameter.grad)

        self._previous = []
        self._earlier, self._sizes = None, []
        self._tally.add(result)
        self._awaits_losses = self.balancer.needs_post_step_losses and not result.skipped and len(self.names) > 1

    @contextmanager
    def _unchanged_on_errors(self) -> Iterator[None]:
        """Put back `.grad` and the update's counter where the body fails, and explain graphs that are gone."""
        parameters, count = self.update.partition.all, self.update.count
        self._previous = [parameter.grad for parameter in parameters]
        try:
            yield
        except BaseException as error:
            self._earlier, self._sizes, self.update.count = None, [], count
            for parameter, previous in zip(parameters, self._previous, strict=True):
                parameter.grad = previous
            if isinstance(error, RuntimeError) and "backward through the graph a second time" in str(error):
                raise UserError(
                    "a loss's graph was differentiated before: compute all losses of a step in one forward pass, and "
                    "call backward once"
                ) from error
            raise

    def _losses(self, losses: PerTask, features: Tensor | PerTask | None, counts: PerTask | None) -> list[Losses]:
        """Return a micro-batch's losses: one entry, or one per task where tasks have inputs of their own."""
        present, sums, numbers = self._sums(losses, counts)
        if not self._sizes:
            sizes = dict(zip(present, numbers, strict=True))
            self._sizes = [max(1.0, float(sizes[t])) if t in sizes else 1.0 for t in range(len(self.names))]

        if features is None and (self.balancer.at == "representation" or self.balancer.aligns_heads):
            raise UserError(f"{self.balancer.name} reads the gradients at the features: give features to backward")
        by_task = self._features(features, present)
        self._check_graphs(present, sums, by_task, one=isinstance(features, Tensor))

        if features is None or isinstance(features, Tensor):
            return [
                Losses(present, sums, numbers, None, features, [features] * len(sums) if features is not None else [])
            ]
        return [
            Losses([task], [total], [number], None, z, [z])
            for task, total, number, z in zip(present, sums, numbers, cast(list[Tensor], by_task), strict=True)
        ]

    def _check_graphs(
        self, present: Sequence[int], losses: Sequence[Tensor], features: Sequence[Tensor | None], *, one: bool
    ) -> None:
        """Look at the graph of each task's first loss, and of its features; `one` says that tasks have them in common.

        Raises:
            UserError: If a gradient would not be what its user means.
        """
        new = [entry for entry in zip(present, losses, features, strict=True) if (entry[0], one) not in self._checked]
        for task, loss, z in new:
            check_loss(loss, task, self.names, self._owners, z)

        for z in {id(z): z for _, _, z in new if z is not None}.values():
            graph = check_features(z, self._owners)
            self.update.partition.vectorised = one and graph.batchable
        self._checked.update((task, one) for task in present)

    def _features(self, features: Tensor | PerTask | None, present: Sequence[int]) -> list[Tensor | None]:
        """Return the features of each task that is there."""
        if features is None or isinstance(features, Tensor):
            by_task = dict.fromkeys(present, features)
        else:
            by_task = self._by_task("features", features)
        for task in present:
            feature = by_task.get(task)
            if features is not None and not (isinstance(feature, Tensor) and feature.grad_fn is not None):
                raise UserError(
                    f"the features of task {self.names[task]} are no tensor with a graph; hand over the output"
                )
        return [by_task[task] for task in present]

    def _sums(
        self, losses: PerTask, counts: PerTask | None, *, detached: bool = False
    ) -> tuple[list[int], list[Tensor], list[Tensor]]:
        """Return the tasks that are there, their sums of losses, and the numbers of terms in them."""
        by_task = self._by_task("losses", losses)
        terms = {} if counts is None else self._by_task("counts", counts)
        sums, numbers = [], []
        one: Tensor | None = None

        for task, loss in by_task.items():
            name = self.names[task]
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
                actual = (
                    f"has the shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"is a {type(loss).__name__}"
                )
                raise UserError(f"the loss of task {name} {actual}; it should be one number: take the mean")
            if not detached and not loss.requires_grad:
                raise UserError(
                    f"the loss of task {name} is detached from its graph: compute it without no_grad and detach"
                )
            if counts is not None and task not in terms:
                raise UserError(f"counts have no entry for task {name}, which has a loss")

            loss = loss.detach() if detached else loss
            loss = loss.reshape(()) if loss.ndim else loss
            if counts is None:
                if one is None or one.dtype != loss.dtype or one.device != loss.device:
                    one = torch.ones_like(loss)
                numbers.append(one)
            else:
                numbers.append(torch.as_tensor(terms[task], dtype=torch.float64, device=loss.device).detach())
                loss = loss * numbers[-1].to(loss.dtype)
            sums.append(loss)

        return list(by_task), sums, numbers

    def _by_task(self, what: str, values: PerTask) -> dict[int, Any]:
        """Return the values that are not None by the tasks' positions."""
        if isinstance(values, Mapping):
            unknown = [name for name in values if name not in self.names]
            if unknown:
                raise UserError(f"{what} name a task {unknown[0]!r}; the tasks are {', '.join(self.names)}")
            pairs = [(task, values.get(name)) for task, name in enumerate(self.names)]
        else:
            entries = list(values)
            if len(entries) != len(self.names):
                raise UserError(
                    f"{what} have {len(entries)} entries, but there are {len(self.names)} tasks; None is a gap"
                )
            pairs = list(enumerate(entries))
        return {task: value for task, value in pairs if value is not None}


def _names(heads: Any, tasks: int | Sequence[str] | None) -> list[str]:
    """Return the tasks' names; their positions where they have none."""
    if isinstance(heads, Mapping | nn.ModuleDict):
        names = [str(name) for name in heads]
    elif heads is not None and (tasks is None or isinstance(tasks, int)):
        names = [str(task) for task in range(len(heads))]
    else:
        names = [str(task) for task in range(tasks)] if isinstance(tasks, int) else [str(name) for name in tasks or ()]

    if not names:
        raise UserError("there are no tasks: give heads, one group of parameters per task, or tasks, their number")
    given = len(names) if tasks is None else tasks if isinstance(tasks, int) else len(tasks)
    if given != len(names) or (heads is not None and len(heads) != len(names)):
        raise UserError(f"heads has {len(heads or ())} entries, tasks {given}; give one group of parameters per task")
    return names


def _partition(shared: Any, heads: Sequence[Parameters], names: Sequence[str]) -> Partition:
    """Return the trainable parameters by whose they are.

    Raises:
        UserError: If one is in two groups, or there is none.
    """
    groups = list(shared) if not isinstance(shared, nn.Module) else [shared]
    of_modules = bool(groups) and all(isinstance(module, nn.Module) for module in groups)
    modules = [_trainable(module) for module in groups] if of_modules else []
    shared_parameters = [p for module in modules for p in module] if of_modules else _trainable(groups)
    if of_modules:
        shared_parameters = list({id(p): p for p in shared_parameters}.values())  # layers may share a weight
    own = [_trainable(group) for group in heads]

    places: dict[int, str] = {}
    labelled = [("shared", shared_parameters), *((f"the head of task {n}", g) for n, g in zip(names, own, strict=True))]
    for label, group in labelled:
        for position, parameter in enumerate(group):
            place = f"{label} (number {position}, of shape {list(parameter.shape)})"
            first = places.setdefault(id(parameter), place)
            if first != place:
                raise UserError(f"a parameter is in two groups: {first} and {place}; leave it in one of them")

    if not places:
        raise UserError("there is no parameter that requires gradients in shared and heads; give the network's")
    index_of = {id(p): index for index, p in enumerate(shared_parameters)}
    return Partition(
        shared_parameters,
        own,
        partial=True,
        modules=[[index_of[id(p)] for p in module] for module in modules] if len(modules) > 1 else [],
    )


def _trainable(parameters: Any) -> list[nn.Parameter]:
    """Return the parameters that require gradients, of a module or an iterable."""
    listed = list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
    for parameter in listed:
        if not isinstance(parameter, Tensor) or not parameter.is_leaf:
            raise UserError(f"shared and heads hold parameters or modules, not a {type(parameter).__name__}")
    return [parameter for parameter in listed if parameter.requires_grad]


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


def _check_usable(balancer: Balancer, partition: Partition) -> None:
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
        raise UserError(
            f"{balancer.name} balances the gradients of shared parameters: give the trainable ones as shared"
        )
    if balancer.needs == "modules" and not partition.modules:
        raise UserError(f"{balancer.name} decides module by module: give shared as a list of two or more modules")
