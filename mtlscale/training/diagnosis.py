"""Which tasks belong together, looked at before a sweep is paid for: inputs, labels, gradients and affinities."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures import MultiTaskModule, Source
from mtlscale.architectures.tag import AffinityModule
from mtlscale.data import Batch, PreparedData, Samples, labelled
from mtlscale.encoders import Encoder
from mtlscale.records import Diagnosis, Matrix
from mtlscale.solvers import best_groups, covariance_similarities
from mtlscale.spec import Run, TaskSuite, TrainingSpec, UserError, build
from mtlscale.spec.parts import Parts
from mtlscale.training.advice import across, estimated, groups_of, merges, sentence, symmetric, verdict
from mtlscale.training.gradients import gramian
from mtlscale.training.labels import comparable, correlations
from mtlscale.training.loop import Trainer
from mtlscale.training.replay import random_state, replayed, statistics_kept
from mtlscale.training.rows import Partition, collect, scatter
from mtlscale.training.seeds import derive_seed

PARTS = 8  # measurements of a network's affinities, and batches that its gradients are compared on
NETWORKS = 8  # where they cost next to nothing
STEPS = 32  # of an epoch, at least
FEATURES = 1024  # numbers of an image; larger ones are averaged down
WORDS = 64  # numbers of a word's random vector

Tell = Callable[[int, int], None]  # how much is done, of how much


def diagnose(
    data: PreparedData,
    encoder: Encoder | None = None,
    *,
    name: str = "",
    samples: int = 2000,
    batch_size: int = 64,
    lr: float = 1e-3,
    seed: int = 0,
    tell: Tell | None = None,
) -> Diagnosis:
    """All matrices, on hard parameter sharing with this encoder (default: a small one of the kind of input).

    It is trained with equal weights for one pass over `samples` of the largest stream, at least `STEPS` steps; inputs
    and labels are those of as many training samples. Raises `UserError` where there is nothing to compare.
    """
    started, suite = time.perf_counter(), data.suite
    if len(suite.tasks) < 2:
        raise UserError(f"{suite.name} has one task: nothing to compare")
    encoder = encoder or _default(data)
    sizes = data.manifest.counts
    largest = max(sizes[task.name].get("train", 0) for task in suite.tasks)
    steps = -(-max(STEPS, -(-min(samples, largest) // batch_size)) // PARTS)
    networks = networks_of(suite)
    trainers = (
        Trainer(run_of(data, encoder, name or suite.name, steps, batch_size, lr, own), data)
        for own in (seed, *(derive_seed("network", seed, number) for number in range(1, networks)))
    )
    trainer = next(trainers)
    if not trainer.session.main.update.partition.shared:
        raise UserError(f"encoder {encoder.name} shares no parameters: nothing to compare; give it a hidden layer")
    taken = {stream: _taken(trainer, stream, samples, seed) for stream, tasks in suite.streams.items() if tasks}
    left_out: dict[str, str] = {}
    matrices: dict[str, Matrix] = {}
    if (table := _covariances(suite, taken, left_out)) is not None:
        about = "how much the leading directions of both tasks' inputs overlap, from 0 to 1"
        matrices["covariance"] = Matrix("covariance similarity of the inputs", about, _plain(table))
    if (table := _labels(suite, taken, left_out)) is not None:
        about = "Pearson's r or phi, from -1 to 1; Cramér's V, from 0 to 1, where a task has more than two classes"
        matrices["labels"] = Matrix("correlation of the labels", about, _plain(table))
    told, each = tell or (lambda done, total: None), 3 * PARTS
    measured = [
        _measured(own, steps, each * number, each * networks, told)
        for number, own in enumerate(itertools.chain([trainer], trainers))
    ]
    # Of several networks each is a measurement: their heads' initial signs differ as those of batches do not.
    before, affinities, after = (
        parts[0] if networks == 1 else torch.stack([part.nanmean(0) for part in parts])
        for parts in zip(*measured, strict=True)
    )
    unit = "networks" if networks > 1 else "batches"
    over = f"{PARTS} batches" + (f" and {networks} networks" if networks > 1 else "")
    about = f"cosine of the tasks' gradients, mean over {over}; below 0 they conflict"
    matrices["conflict_before"] = Matrix("gradient cosine at initialisation", about, _plain(before.nanmean(0)))
    matrices["conflict_after"] = Matrix("gradient cosine after an epoch", about, _plain(after.nanmean(0)))
    about = f"by what share a step for the row's task lowers the loss of the column's, mean over {over} of an epoch"
    matrices["affinity"] = Matrix("affinity (TAG)", about, _plain(affinities.nanmean(0)))
    known = bool(symmetric(affinities).isfinite().any())
    tables, summary = (affinities, "affinity") if known else (after, "conflict_after")
    both = estimated(symmetric(tables), len(suite.tasks) * (len(suite.tasks) - 1) // 2)
    linked = merges(both.mean)
    groups, held_out = groups_of(linked), across(tables)
    names = tuple(task.name for task in suite.tasks)
    return Diagnosis(
        dataset=name or suite.name,
        fingerprint=data.manifest.fingerprint,
        tasks=names,
        settings={
            "encoder": trainer.run.spec["encoder"],
            "samples": samples,
            "batch_size": batch_size,
            "steps": steps * PARTS,
            "networks": networks,
            "lr": lr,
            "seed": seed,
        },
        matrices=matrices,
        summary=summary,
        similarity=_plain(both.mean),
        margin=_plain(both.margin),
        merges=linked,
        groups=groups,
        two_groups=best_groups(both.mean, 2),
        sentence=sentence(names, tables, unit),
        verdict=verdict(len(groups), held_out, unit),
        across=None if held_out is None else [float(held_out.mean), _number(float(held_out.margin))],
        left_out=left_out,
        seconds=time.perf_counter() - started,
    )


def cosines(
    model: MultiTaskModule,
    partition: Partition,
    source: Source,
    micros: Sequence[Sequence[Batch]],
    device: torch.device,
) -> Tensor:
    """[T, T] float64 on the host: cosines of the tasks' gradients over the shared parameters on a batch; NaN for tasks
    without a gradient. Parameters, random numbers and running statistics are as before."""
    alone = replace(partition, own=[[] for _ in partition.own], extra=[])
    with statistics_kept(model), replayed(random_state(device), device):
        g = collect((source(micro, terms=False) for micro in micros), alone, None)
    counts = scatter(g.tasks, g.sums, g.counts, len(partition.own), device)[1]
    products = gramian(g.shared, 1 / counts.clamp(min=1)).cpu()
    norms = products.diagonal().sqrt()
    found = products / (norms[:, None] * norms)
    return torch.where(found.isfinite(), found.clamp(-1, 1), math.nan)


def _measured(trainer: Trainer, steps: int, done: int, total: int, tell: Tell) -> tuple[Tensor, Tensor, Tensor]:
    """[PARTS, T, T] each: cosines at first, affinities on the way, cosines in the end, on the batches of the first."""

    def compared(done: int) -> Tensor:
        main, found = trainer.session.main, []
        trainer.model.train()
        epochs = (main.steps(epoch) for epoch in itertools.count(1))
        for indices, _ in itertools.islice(itertools.chain.from_iterable(epochs), PARTS):
            micros = trainer.batches.micros(indices, 1)
            found.append(cosines(trainer.model, main.update.partition, main.source, micros, trainer.device))
            tell(done + len(found), total)
        return torch.stack(found)

    before = compared(done)
    model = trainer.model
    assert isinstance(model, AffinityModule)
    epochs, affinities = trainer.train(), []
    for part in range(PARTS):
        sums, counts = model.affinity_sum.clone(), model.affinity_count.clone()
        try:
            next(epochs)
        except StopIteration as stop:
            raise UserError(f"training came to an end: {stop.value.error}; try a smaller --lr") from None
        affinities.append((model.affinity_sum - sums) / (model.affinity_count - counts))
        tell(done + PARTS + part + 1, total)
    return before, torch.stack(affinities).cpu(), compared(done + 2 * PARTS)


def networks_of(suite: TaskSuite) -> int:
    """As many as a minute has room for: each trains an epoch, with a pass for every task in each measurement."""
    return NETWORKS if suite.input_kind == "vector" and len(suite.tasks) <= 2 * NETWORKS else 1


def run_of(data: PreparedData, encoder: Encoder, name: str, steps: int, batch_size: int, lr: float, seed: int) -> Run:
    """The affinity phase of TAG, an epoch of it in parts, so that each is measured once; one more would validate."""
    options = {"every": steps, "search_epochs": PARTS + 1, "search_seed": None}
    training = TrainingSpec(
        epochs=PARTS + 1,
        evaluate_every=PARTS + 1,
        steps_per_epoch=steps,
        batch_size=batch_size,
        lr=lr,
        # In float32 affinities of texts, 1e-7, would be rounding; convolutions in float64 take three times as long.
        dtype="float32" if data.suite.input_kind == "image" else "float64",
    )
    parts = Parts(
        build("architectures", "tag", options, "diagnose"),
        build("balancers", "equal", {}, "diagnose"),
        None,
        encoder,
        0.0,
        training,
    )
    spec = {"dataset": {"name": name}, **parts.plain(), "seed": seed}
    return Run.of_parts(
        parts,
        experiment="diagnose",
        dataset=name,
        data=name,
        method="tag",
        seed=seed,
        fingerprint=data.manifest.fingerprint,
        spec=spec,
    )


def _default(data: PreparedData) -> Encoder:
    """A small one of the kind of the inputs."""
    name = {"vector": "mlp", "tokens": "averaged", "image": "resnet18"}[data.suite.input_kind]
    # A word's vector of 300 numbers would take most of the time.
    options: dict[str, object] = {"dimensions": 64, "hidden": [64]} if name == "averaged" else {}
    if any(len(shape) > 1 for shape in data.manifest.target_shapes.values()):
        name, options = "segnet", {"width": 16}
    elif name == "resnet18":
        options = {"width": 8, "stem": "small" if max(data.suite.input_shape[1:]) <= 32 else "imagenet"}
    encoder: Encoder = build("encoders", name, options, "diagnose")
    return encoder


def _taken(trainer: Trainer, stream: str, samples: int, seed: int) -> Samples:
    """So many training samples of a stream, drawn at random."""
    generator = torch.Generator().manual_seed(derive_seed("diagnose", seed, stream))
    index = torch.randperm(trainer.batches.sizes[stream], generator=generator)[:samples].sort().values
    return trainer.batches.take("train", stream, index)


def _covariances(suite: TaskSuite, taken: dict[str, Samples], left_out: dict[str, str]) -> Tensor | None:
    """[T, T]; None where it says nothing, and why into `left_out`."""
    if suite.inputs == "shared":
        inputs, targets = _features(suite, [taken["all"].inputs])[0], taken["all"].targets
        rows = [labelled(task, targets[task.name]) for task in suite.tasks]
        if all(torch.equal(row, rows[0]) for row in rows):
            left_out["covariance"] = "all tasks have the same labelled samples, so that all pairs have the same score"
            return None
        features = [inputs[row] for row in rows]
    else:
        features = _features(suite, [taken[task.name].inputs for task in suite.tasks])
    return covariance_similarities(features)


def _features(suite: TaskSuite, inputs: Sequence[Tensor]) -> list[Tensor]:
    """[N, d] each: vectors and small images as they are; large images averaged down; of texts the means of fixed random
    word vectors, less the mean of all, which every two texts have in common."""
    if suite.input_kind == "tokens":
        vectors = torch.randn(suite.vocabulary_size or 0, WORDS, generator=torch.Generator().manual_seed(0))
        vectors[0] = 0  # padding
        found = [
            functional.embedding_bag(part.long(), vectors, mode="sum") / (part != 0).sum(1, keepdim=True).clamp(min=1)
            for part in inputs
        ]
        common = torch.cat(found).mean(0)
        return [part - common for part in found]
    if suite.input_kind == "image" and math.prod(suite.input_shape) > FEATURES:
        side = math.isqrt(FEATURES // suite.input_shape[0])
        return [functional.adaptive_avg_pool2d(part.float(), side).flatten(1) for part in inputs]
    return [part.float().flatten(1) for part in inputs]


def _labels(suite: TaskSuite, taken: dict[str, Samples], left_out: dict[str, str]) -> Tensor | None:
    """[T, T]; None where there is none, and what is left out, why, into `left_out`."""
    if suite.inputs != "shared":
        left_out["labels"] = "each task has samples of its own, so that no sample has two labels"
        return None
    targets = taken["all"].targets
    known = comparable(suite, targets)
    if others := [task.name for task in suite.tasks if task.name not in known]:
        left_out["labels"] = f"maps, and labels of several numbers, have no correlation: {', '.join(others)}"
    table = correlations(suite, targets)
    return table if len(known) > 1 else None


def _plain(table: Tensor) -> list[list[float | None]]:
    return [[_number(value) for value in row] for row in table.tolist()]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
