"""Construction of the session that trains a phase, from the phase as data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from mtlscale.architectures import (
    TURN_SETTINGS,
    MultiTaskModule,
    NetworkSource,
    Phase,
    PhaseOutput,
    Source,
    Turn,
    channels_last,
)
from mtlscale.balancing import Balancer, State, ValidationBalancer
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import MISSING_CLASS, Run, TaskSuite, TrainingSpec, UserError, check_batches
from mtlscale.data import SAMPLERS, EpochSampler, Samples, WindowSampler, Workers, halves
from mtlscale.data.readers.stream import StreamReader
from mtlscale.encoders import needs_every_worker
from mtlscale.objectives import ObjectiveModule
from mtlscale.training.batches import Batches
from mtlscale.training.engine.building import build_model
from mtlscale.training.engine.optimizers import hidden_matrices, make_optimizer
from mtlscale.training.engine.session import Session, Updater
from mtlscale.training.gradients.per_task import Partition
from mtlscale.training.gradients.update import Update
from mtlscale.training.probes.features import features
from mtlscale.training.seeds import derive_seed
from mtlscale.training.sources import SupervisedSource, check_names, sparse_embeddings

_LOOK = 256  # samples that are read at a time


def begin(
    run: Run,
    suite: TaskSuite,
    phase: Phase,
    found: PhaseOutput | None,
    batches: Batches,
    *,
    device: torch.device,
    workers: Workers,
) -> Session:
    """Return a session at the start of a phase.

    Args:
        suite: the run's tasks.
        found: what the previous phase handed over; None for a first phase.
        batches: the run's batches; whether all streams run together is set here.

    Raises:
        UserError: If phase, data and network do not fit.
    """
    spec = run.parts.training
    if phase.batch_size is not None:
        spec = spec.model_copy(update={"batch_size": phase.batch_size})
    check_batches(run, suite)
    model, objective = _modules(run, suite, phase, found, batches, spec, device)

    partitions = [partition_of(model, suite, objective, turn, phase) for turn in phase.turns]
    _check_disjoint(phase, partitions, model, objective)
    batches.together = workers.size > 1 and (
        needs_every_worker(model) or model.joint_backward or (objective is not None and objective.whole_step)
    )

    seed = run.seed if phase.seed is None else phase.seed
    builder = _UpdaterBuilder(run, suite, phase, spec, batches, model, objective, seed, device, workers)
    updaters: list[Updater] = []
    for turn, partition in zip(phase.turns, partitions, strict=True):
        updaters.append(builder.updater(turn, partition, updaters[0] if updaters else None))

    if phase.main and phase.main not in {turn.name for turn in phase.turns}:
        turn_names = ", ".join(turn.name for turn in phase.turns)
        raise UserError(f"phase {phase.name}: there is no turn {phase.main!r}, its main one; there are: {turn_names}")
    return Session(model, objective, updaters, phase.main)


def _modules(
    run: Run,
    suite: TaskSuite,
    phase: Phase,
    found: PhaseOutput | None,
    batches: Batches,
    spec: TrainingSpec,
    device: torch.device,
) -> tuple[MultiTaskModule, ObjectiveModule | None]:
    """Return a phase's network and objective on the device, ready to be trained."""
    model, objective = build_model(run, suite, phase, found)
    model = model.to(device)
    if spec.channels_last:
        channels_last(model)

    objective = None if objective is None else objective.to(device)
    if objective is not None and objective.whole_step and spec.accumulate > 1:
        raise UserError(f"{run.spec['objective']['name']} looks at a whole step at once: set accumulate to 1")

    model.from_data(_View(batches, run.spec["architecture"]["name"]))
    sparse_embeddings(model)
    return model, objective


@dataclass(frozen=True)
class _UpdaterBuilder:
    """Builder of the updaters of a phase's turns; `spec` are the training settings of the phase."""

    run: Run
    suite: TaskSuite
    phase: Phase
    spec: TrainingSpec
    batches: Batches
    model: MultiTaskModule
    objective: ObjectiveModule | None
    seed: int
    device: torch.device
    workers: Workers

    def updater(self, turn: Turn, partition: Partition, first: Updater | None) -> Updater:
        """Return the updater of a turn; `first` is that of the phase's first turn, None for this turn itself."""
        spec, suite, batches, objective = self.spec, self.suite, self.batches, self.objective
        settings = _settings(turn, spec, self.phase)
        source = _source(turn, self.model, suite, objective, spec, self.device, self.workers)
        balancer = turn.balancer or self.run.parts.balancer
        if source.allow_negative and balancer.positive_losses:
            balancer = Equal(reduction="mean")
        if not source.of_tasks:  # every loss of such a source moves every parameter of the turn
            partition = replace(partition, shared=partition.all, own=[[] for _ in source.names], extra=[])

        seed_suffix = () if first is None else (turn.name,)
        update = self._update(source, partition, balancer, settings, seed_suffix)

        parameters = partition.all if turn.groups else _all(self.model, objective if turn.objective else None)
        share, query_share = _shares(turn, balancer, suite, batches, self.seed)
        steps = _steps(spec, suite, batches, share) if first is None else first.sampler.steps
        # Only an objective, or a source that asks for them, gets streams without labels: anything else that ran them
        # would see the target domain.
        unlabelled = source.unlabelled or (objective is not None and turn.objective)
        order_seed = derive_seed("order", self.seed, *seed_suffix)
        sampler = _sampler(batches, spec, share, order_seed, steps, () if unlabelled else suite.unlabelled)

        query = None
        if query_share is not None:
            query_seed = derive_seed("query", self.seed, *seed_suffix)
            query_sampler = _sampler(batches, spec, query_share, query_seed, sampler.steps, suite.unlabelled)
            query = (query_sampler, query_share)

        hidden = hidden_matrices(self.model, partition.shared) if settings.optimizer == "muon" else ()
        optimizer = make_optimizer(settings, parameters, turn.optimizer.betas, hidden)
        return Updater(turn, settings, source, update, optimizer, sampler, share, query)

    def _update(
        self,
        source: Source,
        partition: Partition,
        balancer: Balancer,
        settings: TrainingSpec,
        seed_suffix: tuple[str, ...],
    ) -> Update:
        """Return the update of a turn, with the balancer's first state."""
        spec, suite, batches = self.spec, self.suite, self.batches
        state = first_state(
            balancer,
            source.names,
            suite,
            partial(features, self.model, suite, batches) if balancer.looks_at_features else batches.whole,
            derive_seed("balancer", self.seed, *seed_suffix),
            noisy_tasks(self.run, suite),
        )

        return Update(
            source.names,
            partition,
            balancer,
            device=self.device,
            dtype=getattr(torch, spec.dtype),
            workers=self.workers,
            clip=settings.clip,
            amp=spec.amp,
            gramian_every=spec.gramian_every,
            overlap=not batches.together,
            everywhere=spec.batches == "pooled",
            state=state,
        )


def _all(model: nn.Module, objective: nn.Module | None) -> list[nn.Parameter]:
    parameters = list(model.parameters())
    model_ids = {id(p) for p in parameters}
    return parameters + ([] if objective is None else [p for p in objective.parameters() if id(p) not in model_ids])


def partition_of(
    model: MultiTaskModule,
    suite: TaskSuite,
    objective: ObjectiveModule | None = None,
    turn: Turn = Turn(),  # noqa: B008 (frozen)
    phase: Phase = Phase(),  # noqa: B008
) -> Partition:
    """Return the parameters of a turn's groups by whose they are.

    Those that the network calls neither shared nor a task's count as shared.
    """
    groups = model.groups()
    for name in turn.groups:
        if name not in groups:
            raise UserError(
                f"phase {phase.name}: turn {turn.name} moves a group {name!r}; the network has: {', '.join(groups)}"
            )
    chosen = None if not turn.groups else {id(p) for name in turn.groups for p in groups[name]}

    def moved(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        return [p for p in parameters if p.requires_grad and (chosen is None or id(p) in chosen)]

    shared, own_by_task = (
        moved(model.shared_parameters()),
        [moved(model.task_parameters(task.name)) for task in suite.tasks],
    )
    extra: list[nn.Parameter] = []
    index_of = {id(p): index for index, p in enumerate(shared)}
    modules = [[index_of[id(p)] for p in module if id(p) in index_of] for module in model.shared_modules()]

    if chosen is not None:
        assigned = {id(p) for p in (*shared, *(p for group in own_by_task for p in group))}
        shared += [p for name in turn.groups for p in groups[name] if p.requires_grad and id(p) not in assigned]
    if objective is not None and turn.objective:
        extra = [p for p in objective.parameters() if p.requires_grad]

    partition = Partition(
        shared,
        own_by_task,
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
    """Raise `UserError` where two turns, hence two optimisers, move one parameter."""
    if len(partitions) == 1:
        return

    names = {id(p): name for name, p in model.named_parameters()}
    if objective is not None:
        names.update({id(p): f"objective.{name}" for name, p in objective.named_parameters()})

    turn_of: dict[int, str] = {}  # id of a parameter -> the turn that moves it
    for turn, partition in zip(phase.turns, partitions, strict=True):
        for parameter in partition.all:
            first_turn = turn_of.setdefault(id(parameter), turn.name)
            if first_turn != turn.name:
                raise UserError(
                    f"phase {phase.name}: {names.get(id(parameter), 'a parameter')} is moved by two optimisers, of the "
                    f"turns {first_turn} and {turn.name}; put it into one group"
                )


def _settings(turn: Turn, spec: TrainingSpec, phase: Phase) -> TrainingSpec:
    for name in turn.optimizer.training:
        if name not in TURN_SETTINGS:
            raise UserError(
                f"phase {phase.name}: turn {turn.name} cannot set {name}; it may: {', '.join(TURN_SETTINGS)}"
            )

    factor = turn.optimizer.lr_factor
    overrides = {"lr": factor * spec.lr} if factor != 1.0 else {}
    overrides.update(turn.optimizer.training)
    return TrainingSpec.model_validate({**spec.model_dump(), **overrides}) if overrides else spec


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

    network_sources = model.sources()
    if turn.source not in network_sources:
        raise UserError(
            f"turn {turn.name} asks for a source {turn.source!r}; there are: {', '.join(('tasks', *network_sources))}"
        )

    source = network_sources[turn.source]
    if isinstance(source, NetworkSource):
        source.bind(SupervisedSource(model, suite, amp=spec.amp, device=device, workers=workers), spec.amp)
    check_names(source, suite, turn.name)
    return source


class _View:
    """View of the data that `who` may look at before the first step."""

    def __init__(self, batches: Batches, who: str) -> None:
        self._batches, self._who = batches, who

    def targets(self) -> Mapping[str, Tensor]:
        return self._batches.targets(self._who)

    def samples(self, split: str, stream: str, most: int | None = None) -> Iterator[Samples]:
        size = self._batches.reader.sizes(split).get(stream, 0)
        count = size if most is None else min(size, most)
        for part in torch.linspace(0, max(size - 1, 0), count, dtype=torch.float64).round().long().split(_LOOK):
            yield self._batches.take(split, stream, part)


def first_state(
    balancer: Balancer,
    losses: Sequence[str],
    suite: TaskSuite,
    whole: Callable[[str], Mapping[str, Samples]],
    seed: int,
    noisy: Collection[str] = (),
) -> State:
    """Return a balancer's state before the first step.

    Where it looks at them, the balancer gets the training samples of every labelled stream, or the names of the tasks
    with label noise.

    Args:
        whole: from the name of who asks to these samples.
        noisy: names of the tasks with label noise.
    """
    told_of_noise = getattr(balancer, "from_noise", None)
    if told_of_noise is not None:
        noise_state: State = told_of_noise(losses, noisy)
        return noise_state

    look = getattr(balancer, "from_data", None)
    if look is None:
        return balancer.init(len(losses), seed=seed)

    train = whole(balancer.name)
    samples_of_task = {name: train[stream] for stream, tasks in suite.streams.items() for name in tasks}
    state: State = look(
        {name: s.inputs for name, s in samples_of_task.items()},
        {name: s.targets[name] for name, s in samples_of_task.items()},
    )

    return state


def noisy_tasks(run: Run, suite: TaskSuite) -> tuple[str, ...]:
    """Return the names of the tasks whose training labels have noise in this run."""
    noise = run.noise
    if noise is None or noise.share == 0:
        return ()
    return noise.tasks or tuple(task.name for task in suite.tasks)


def _shares(
    turn: Turn, balancer: Balancer, suite: TaskSuite, batches: Batches, seed: int
) -> tuple[dict[str, Tensor] | None, dict[str, Tensor] | None]:
    """Return the samples a turn works on (None: all), and those of its query."""
    needs_query = isinstance(balancer, ValidationBalancer)
    if turn.share == "whole" and not needs_query:
        return None, None
    if turn.share != "whole" and needs_query:
        raise UserError(
            f"{balancer.name} needs both halves of the training data, but turn {turn.name} works on one of them; use "
            "another balancer there"
        )

    if isinstance(batches.reader, StreamReader):
        raise batches.reader.refuse_halves(balancer.name if needs_query else f"turn {turn.name}")

    parts = {stream: halves(size, derive_seed("halves", seed, stream)) for stream, size in batches.sizes.items()}
    first, second = ({stream: part[side] for stream, part in parts.items()} for side in (0, 1))
    _check_halves(suite, batches, (first, second))

    if needs_query:
        return first, second
    return (first if turn.share == "first" else second), None


def check_shares(run: Run, suite: TaskSuite, phases: Sequence[Phase], batches: Batches) -> None:
    """Raise `UserError` before the first phase where a later one cannot divide the training data among its turns."""
    divided = [
        (turn, run.seed if phase.seed is None else phase.seed)
        for phase in phases
        for turn in phase.turns
        if turn.share != "whole"
    ]
    if divided and all(turn.share == "whole" for turn in phases[0].turns):
        turn, seed = divided[0]
        _shares(turn, turn.balancer or run.parts.balancer, suite, batches, seed)


def _check_halves(suite: TaskSuite, batches: Batches, sides: Sequence[Mapping[str, Tensor]]) -> None:
    """Raise `UserError` where a task has no label in a half of the training data."""
    for side, name in zip(sides, ("first", "second"), strict=True):
        for stream, tasks in suite.streams.items():
            for task in tasks:
                if not any(_labelled(batches, stream, task, part) for part in side[stream].split(_LOOK)):
                    raise UserError(
                        f"the {name} half of the training data has no label of task {task}; it needs at least two "
                        "labelled samples, or a method that does not split its training data"
                    )


def _labelled(batches: Batches, stream: str, task: str, index: Tensor) -> bool:
    """Return whether any of these training samples has a label of the task."""
    target = batches.take("train", stream, index).targets[task]
    present = ~target.isnan() if target.is_floating_point() else target != MISSING_CLASS
    return bool(present.any())


def _steps(spec: TrainingSpec, suite: TaskSuite, batches: Batches, share: Mapping[str, Tensor] | None) -> int | None:
    """Return the steps of an epoch; None leaves them to the sampler."""
    if spec.steps_per_epoch is not None or not suite.unlabelled:
        return spec.steps_per_epoch
    sizes = batches.sizes if share is None else {stream: len(index) for stream, index in share.items()}
    # Unlabelled streams do not make an epoch longer.
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
    """Return a turn's sampler, without the streams `unseen`."""
    if isinstance(batches.reader, StreamReader):
        starts = {
            stream: stream_starts
            for stream, stream_starts in batches.reader.starts("train").items()
            if stream not in unseen
        }
        return WindowSampler(starts, spec.batch_size, seed, window=spec.stream_window, steps_per_epoch=steps)

    sizes = batches.sizes if share is None else {stream: len(index) for stream, index in share.items()}
    sizes = {stream: size for stream, size in sizes.items() if stream not in unseen}
    return SAMPLERS[spec.batches](sizes, spec.batch_size, seed, steps_per_epoch=steps)
