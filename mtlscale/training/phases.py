"""From a phase as data to a session that can train it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from mtlscale.architectures import (
    TURN_SETTINGS,
    Found,
    MultiTaskModule,
    NetworkSource,
    Phase,
    Source,
    Turn,
    channels_last,
)
from mtlscale.balancing import Balancer, State, ValidationBalancer
from mtlscale.balancing.equal import Equal
from mtlscale.data import SAMPLERS, EpochSampler, Samples, WindowSampler, Workers, halves
from mtlscale.data.streamed import StreamReader
from mtlscale.encoders import needs_every_worker
from mtlscale.objectives import ObjectiveModule
from mtlscale.spec import MISSING_CLASS, Run, TaskSuite, TrainingSpec, UserError, check_batches
from mtlscale.training.batches import Batches
from mtlscale.training.building import build_model
from mtlscale.training.features import features
from mtlscale.training.rows import Partition
from mtlscale.training.seeds import derive_seed
from mtlscale.training.session import Mover, Session, make_optimizer
from mtlscale.training.sources import SupervisedSource, check_names, sparse_embeddings
from mtlscale.training.update import Update

_LOOK = 256  # samples that are looked at at a time


def begin(
    run: Run,
    suite: TaskSuite,
    phase: Phase,
    found: Found | None,
    batches: Batches,
    *,
    device: torch.device,
    workers: Workers,
) -> Session:
    """A session at the start of a phase. Raises `UserError` where phase, data and network do not fit."""
    spec = run.parts.training
    if phase.batch_size is not None:
        spec = spec.model_copy(update={"batch_size": phase.batch_size})
    check_batches(run, suite)
    model, objective = build_model(run, suite, phase, found)
    model = model.to(device)
    model.phase_epochs = phase.epochs or spec.epochs
    if spec.channels_last:
        channels_last(model)
    objective = None if objective is None else objective.to(device)
    if objective is not None and objective.whole_step and spec.accumulate > 1:
        raise UserError(f"{run.spec['objective']['name']} looks at a whole step at once: set accumulate to 1")
    if type(model).from_data is not MultiTaskModule.from_data:
        model.from_data(_View(batches, run.spec["architecture"]["name"]))
    sparse_embeddings(model)
    partitions = [partition_of(model, suite, objective, turn, phase) for turn in phase.turns]
    _check_disjoint(phase, partitions, model, objective)
    batches.together = workers.size > 1 and (
        needs_every_worker(model) or model.joint_backward or (objective is not None and objective.whole_step)
    )
    seed = run.seed if phase.seed is None else phase.seed
    movers: list[Mover] = []
    for number, (turn, partition) in enumerate(zip(phase.turns, partitions, strict=True)):
        settings = _settings(turn, spec, phase)
        balancer = turn.balancer or run.parts.balancer
        if turn.signed and balancer.positive_losses:
            balancer = Equal(reduction="mean")
        source = _source(turn, model, suite, objective, spec, device, workers)
        if not source.of_tasks:  # all that is moved is moved by all of its losses
            partition = replace(partition, shared=partition.all, own=[[] for _ in source.names], extra=[])
        name = () if number == 0 else (turn.name,)
        update = Update(
            source.names,
            partition,
            balancer,
            device=device,
            dtype=getattr(torch, spec.dtype),
            workers=workers,
            clip=settings.clip,
            amp=spec.amp,
            gramian_every=spec.gramian_every,
            overlap=not batches.together,
            everywhere=spec.batches == "pooled",
            state=first_state(
                balancer,
                source.names,
                suite,
                partial(features, model, suite, batches) if balancer.looks_at_features else batches.whole,
                derive_seed("balancer", seed, *name),
            ),
        )
        parameters = partition.all if turn.groups else _all(model, objective if turn.objective else None)
        share, query = _shares(turn, balancer, suite, batches, seed)
        steps = movers[0].sampler.steps if movers else _steps(spec, suite, batches, share)
        # Nobody but an objective, or who says so, looks at streams without labels: what else ran them would see the
        # target domain.
        looks = turn.unlabelled or (objective is not None and turn.objective)
        sampler = _sampler(
            batches, spec, share, derive_seed("order", seed, *name), steps, () if looks else suite.unlabelled
        )
        asked = None
        if query is not None:
            seed_of_query = derive_seed("query", seed, *name)
            asked = (_sampler(batches, spec, query, seed_of_query, sampler.steps, suite.unlabelled), query)
        movers.append(
            Mover(
                turn, settings, source, update, make_optimizer(settings, parameters, turn.betas), sampler, share, asked
            )
        )
    if phase.main and phase.main not in {turn.name for turn in phase.turns}:
        known = ", ".join(turn.name for turn in phase.turns)
        raise UserError(f"phase {phase.name}: there is no turn {phase.main!r}, its main one; there are: {known}")
    return Session(model, objective, movers, phase.main)


def _all(model: nn.Module, objective: nn.Module | None) -> list[nn.Parameter]:
    parameters = list(model.parameters())
    known = {id(p) for p in parameters}
    return parameters + ([] if objective is None else [p for p in objective.parameters() if id(p) not in known])


def partition_of(
    model: MultiTaskModule,
    suite: TaskSuite,
    objective: ObjectiveModule | None = None,
    turn: Turn = Turn(),  # noqa: B008 (frozen)
    phase: Phase = Phase(),  # noqa: B008
) -> Partition:
    """The parameters of a turn's groups by whose they are; those that the network calls neither shared nor a task's
    count as shared."""
    groups = model.groups()
    for name in turn.groups:
        if name not in groups:
            raise UserError(
                f"phase {phase.name}: turn {turn.name} moves a group {name!r}; the network has: {', '.join(groups)}"
            )
    chosen = None if not turn.groups else {id(p) for name in turn.groups for p in groups[name]}

    def moved(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        return [p for p in parameters if p.requires_grad and (chosen is None or id(p) in chosen)]

    shared, own = moved(model.shared_parameters()), [moved(model.task_parameters(task.name)) for task in suite.tasks]
    extra: list[nn.Parameter] = []
    place = {id(p): index for index, p in enumerate(shared)}
    modules = [[place[id(p)] for p in module if id(p) in place] for module in model.shared_modules()]
    if chosen is not None:
        named = {id(p) for p in (*shared, *(p for group in own for p in group))}
        shared += [p for name in turn.groups for p in groups[name] if p.requires_grad and id(p) not in named]
    if objective is not None and turn.objective:
        extra = [p for p in objective.parameters() if p.requires_grad]
    partition = Partition(
        shared,
        own,
        extra,
        independent=model.independent,
        vectorised=model.vectorised,
        joint=model.joint_backward,
        same_inputs=suite.inputs == "shared",
        partial=chosen is not None,
        modules=modules,
    )
    if not partition.all:
        raise UserError(f"phase {phase.name}: turn {turn.name} trains nothing; give it a group with parameters")
    return partition


def _check_disjoint(
    phase: Phase, partitions: Sequence[Partition], model: MultiTaskModule, objective: ObjectiveModule | None
) -> None:
    """`UserError` where two turns, hence two optimisers, move one parameter."""
    if len(partitions) == 1:
        return
    names = {id(p): name for name, p in model.named_parameters()}
    if objective is not None:
        names.update({id(p): f"objective.{name}" for name, p in objective.named_parameters()})
    mover: dict[int, str] = {}
    for turn, partition in zip(phase.turns, partitions, strict=True):
        for parameter in partition.all:
            other = mover.setdefault(id(parameter), turn.name)
            if other != turn.name:
                raise UserError(
                    f"phase {phase.name}: {names.get(id(parameter), 'a parameter')} is moved by two optimisers, of the "
                    f"turns {other} and {turn.name}; put it into one group"
                )


def _settings(turn: Turn, spec: TrainingSpec, phase: Phase) -> TrainingSpec:
    for name in turn.training:
        if name not in TURN_SETTINGS:
            raise UserError(
                f"phase {phase.name}: turn {turn.name} cannot set {name}; it may: {', '.join(TURN_SETTINGS)}"
            )
    own = {"lr": turn.lr_factor * spec.lr} if turn.lr_factor != 1.0 else {}
    own.update(turn.training)
    return TrainingSpec.model_validate({**spec.model_dump(), **own}) if own else spec


def _source(
    turn: Turn,
    model: MultiTaskModule,
    suite: TaskSuite,
    objective: ObjectiveModule | None,
    spec: TrainingSpec,
    device: torch.device,
    workers: Workers,
) -> Source:
    if turn.source == "tasks":
        return SupervisedSource(
            model, suite, objective if turn.objective else None, amp=spec.amp, device=device, workers=workers
        )
    known = model.sources()
    if turn.source not in known:
        raise UserError(
            f"turn {turn.name} asks for a source {turn.source!r}; there are: {', '.join(('tasks', *known))}"
        )
    source = known[turn.source]
    if isinstance(source, NetworkSource):
        source.bind(SupervisedSource(model, suite, amp=spec.amp, device=device, workers=workers), spec.amp)
    check_names(source, suite, turn.name)
    return source


class _View:
    """The data as `who` may look at them before the first step."""

    def __init__(self, batches: Batches, who: str) -> None:
        self._batches, self._who = batches, who

    def targets(self) -> Mapping[str, Tensor]:
        return self._batches.targets(self._who)

    def samples(self, split: str, stream: str, most: int | None = None) -> Iterator[Samples]:
        size = self._batches.reader.sizes(split).get(stream, 0)
        taken = size if most is None else min(size, most)
        for part in torch.linspace(0, max(size - 1, 0), taken, dtype=torch.float64).round().long().split(_LOOK):
            yield self._batches.take(split, stream, part)


def first_state(
    balancer: Balancer,
    losses: Sequence[str],
    suite: TaskSuite,
    whole: Callable[[str], Mapping[str, Samples]],
    seed: int,
) -> State:
    """A balancer's state before the first step, from the training samples of every labelled stream where it looks at
    them.
    whole: who asks -> these samples."""
    look = getattr(balancer, "from_data", None)
    if look is None:
        return balancer.init(len(losses), seed=seed)
    train = whole(balancer.name)
    of_task = {name: train[stream] for stream, tasks in suite.streams.items() for name in tasks}
    state: State = look(
        {name: s.inputs for name, s in of_task.items()}, {name: s.targets[name] for name, s in of_task.items()}
    )
    return state


def _shares(
    turn: Turn, balancer: Balancer, suite: TaskSuite, batches: Batches, seed: int
) -> tuple[dict[str, Tensor] | None, dict[str, Tensor] | None]:
    """The samples a turn works on (None: all), and those of its query."""
    asks = isinstance(balancer, ValidationBalancer)
    if turn.share == "whole" and not asks:
        return None, None
    if turn.share != "whole" and asks:
        raise UserError(
            f"{balancer.name} needs both halves of the training data, but turn {turn.name} works on one of them; use "
            "another balancer there"
        )
    if isinstance(batches.reader, StreamReader):
        raise batches.reader.refuse_halves(balancer.name if asks else f"turn {turn.name}")
    parts = {stream: halves(size, derive_seed("halves", seed, stream)) for stream, size in batches.sizes.items()}
    first, second = ({stream: part[side] for stream, part in parts.items()} for side in (0, 1))
    _check_halves(suite, batches, (first, second))
    if asks:
        return first, second
    return (first if turn.share == "first" else second), None


def _check_halves(suite: TaskSuite, batches: Batches, sides: Sequence[Mapping[str, Tensor]]) -> None:
    """`UserError` where a task has no label in a half."""
    for side, name in zip(sides, ("first", "second"), strict=True):
        for stream, tasks in suite.streams.items():
            for task in tasks:
                if not any(_labelled(batches, stream, task, part) for part in side[stream].split(_LOOK)):
                    raise UserError(
                        f"the {name} half of the training data has no label of task {task}; it needs at least two "
                        "labelled samples, or a method that does not split its training data"
                    )


def _labelled(batches: Batches, stream: str, task: str, index: Tensor) -> bool:
    """Whether any of these training samples has a label of the task."""
    target = batches.take("train", stream, index).targets[task]
    there = ~target.isnan() if target.is_floating_point() else target != MISSING_CLASS
    return bool(there.any())


def _steps(spec: TrainingSpec, suite: TaskSuite, batches: Batches, share: Mapping[str, Tensor] | None) -> int | None:
    """Steps of an epoch where the settings leave it open: unlabelled streams do not make an epoch longer."""
    if spec.steps_per_epoch is not None or not suite.unlabelled:
        return spec.steps_per_epoch
    sizes = batches.sizes if share is None else {stream: len(index) for stream, index in share.items()}
    largest = max(size for stream, size in sizes.items() if suite.streams[stream])
    return -(-largest // spec.batch_size)


def _sampler(
    batches: Batches,
    spec: TrainingSpec,
    share: Mapping[str, Tensor] | None,
    seed: int,
    steps: int | None,
    unseen: Sequence[str],
) -> EpochSampler:
    """unseen: streams that are left out."""
    if isinstance(batches.reader, StreamReader):
        starts = {stream: of for stream, of in batches.reader.starts("train").items() if stream not in unseen}
        return WindowSampler(starts, spec.batch_size, seed, window=spec.stream_window, steps_per_epoch=steps)
    sizes = batches.sizes if share is None else {stream: len(index) for stream, index in share.items()}
    sizes = {stream: size for stream, size in sizes.items() if stream not in unseen}
    return SAMPLERS[spec.batches](sizes, spec.batch_size, seed, steps_per_epoch=steps)
