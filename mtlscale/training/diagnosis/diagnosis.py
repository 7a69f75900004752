"""Diagnosis of which tasks belong together, before a sweep is paid for: inputs, labels, gradients and affinities."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures import MultiTaskModule, Source
from mtlscale.architectures.hard.tag import AffinityModule
from mtlscale.config import Run, TaskSuite, TrainingSpec, UserError, build
from mtlscale.config.run.run_parts import Parts
from mtlscale.data import Batch, PreparedData, Samples, labelled
from mtlscale.encoders import Encoder
from mtlscale.records import Diagnosis, Matrix
from mtlscale.solvers import best_groups, covariance_similarities
from mtlscale.training.diagnosis.advice import across, estimated, groups_of, merges, sentence, symmetric, verdict
from mtlscale.training.diagnosis.labels import comparable, correlations
from mtlscale.training.engine.loop import Trainer
from mtlscale.training.gradients.gramian import gramian
from mtlscale.training.gradients.per_task import Partition, collect, scatter
from mtlscale.training.probes.replay import random_state, replayed, statistics_kept
from mtlscale.training.seeds import derive_seed

PARTS = 8  # measurements of a network's affinities, and batches that its gradients are compared on
NETWORKS = 8  # networks that are trained where they cost next to nothing
STEPS = 32  # least number of steps of an epoch
FEATURES = 1024  # numbers of an image; larger ones are averaged down
WORDS = 64  # numbers of a word's random vector

Tell = Callable[[int, int], None]  # (how much is done, of how much)


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
    """Measure all matrices of a data set's tasks on hard parameter sharing, and conclude which tasks belong together.

    Each network is trained with equal weights for one pass over `samples` of the largest stream, at least `STEPS`
    steps; inputs and labels are those of as many training samples. `encoder` is by default a small one for the kind of
    input, `name` the suite's. `seed` is that of the first network and of the samples; the other networks' seeds are
    derived from it. `tell` is called with how many of how many measurements are done.

    Raises:
        UserError: If there is nothing to compare.
    """
    started, suite = time.perf_counter(), data.suite
    if len(suite.tasks) < 2:
        raise UserError(f"{suite.name} has one task: nothing to compare")

    encoder = encoder or _default(data)
    largest_task = max(data.manifest.counts[task.name].get("train", 0) for task in suite.tasks)
    steps = -(-max(STEPS, -(-min(samples, largest_task) // batch_size)) // PARTS)  # of a part
    networks = networks_of(suite)
    trainers = (
        Trainer(run_of(data, encoder, name or suite.name, steps, batch_size, lr, network_seed), data)
        for network_seed in (seed, *(derive_seed("network", seed, number) for number in range(1, networks)))
    )
    trainer = next(trainers)
    if not trainer.session.main.update.partition.shared:
        raise UserError(f"encoder {encoder.name} shares no parameters: nothing to compare; give it a hidden layer")

    drawn = {stream: _taken(trainer, stream, samples, seed) for stream, tasks in suite.streams.items() if tasks}
    left_out: dict[str, str] = {}
    matrices = _sample_matrices(suite, drawn, left_out)
    before, affinities, after = _measured_networks(itertools.chain([trainer], trainers), networks, steps, tell)
    matrices |= _gradient_matrices(before, affinities, after, networks)

    settings = {
        "encoder": trainer.run.spec["encoder"],
        "samples": samples,
        "batch_size": batch_size,
        "steps": steps * PARTS,
        "networks": networks,
        "lr": lr,
        "seed": seed,
    }
    return Diagnosis(
        dataset=name or suite.name,
        fingerprint=data.manifest.fingerprint,
        settings=settings,
        matrices=matrices,
        **_conclusions(suite, affinities, after, networks),
        left_out=left_out,
        seconds=time.perf_counter() - started,
    )


def _sample_matrices(suite: TaskSuite, taken: dict[str, Samples], left_out: dict[str, str]) -> dict[str, Matrix]:
    """Return the matrices of the tasks' samples alone; what is left out, and why, goes into `left_out`."""
    matrices: dict[str, Matrix] = {}
    if (table := _covariances(suite, taken, left_out)) is not None:
        about = "how much the leading directions of both tasks' inputs overlap, from 0 to 1"
        matrices["covariance"] = Matrix("covariance similarity of the inputs", about, _plain(table))
    if (table := _labels(suite, taken, left_out)) is not None:
        about = "Pearson's r or phi, from -1 to 1; Cramér's V, from 0 to 1, where a task has more than two classes"
        matrices["labels"] = Matrix("correlation of the labels", about, _plain(table))
    return matrices


def _measured_networks(
    trainers: Iterable[Trainer], networks: int, steps: int, tell: Tell | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return initial cosines, affinities and final cosines [P, T, T], of P batches of one network or P networks."""
    report, reports_per_network = tell or (lambda done, total: None), 3 * PARTS
    measured = [
        _measured(trainer, steps, reports_per_network * number, reports_per_network * networks, report)
        for number, trainer in enumerate(trainers)
    ]

    before, affinities, after = (
        # Networks differ in their heads' initial signs, as batches do not.
        parts[0] if networks == 1 else torch.stack([part.nanmean(0) for part in parts])
        for parts in zip(*measured, strict=True)
    )
    return before, affinities, after


def _gradient_matrices(before: Tensor, affinities: Tensor, after: Tensor, networks: int) -> dict[str, Matrix]:
    """Return the matrices of the tasks' gradients, means over the measurements [P, T, T]."""
    over = f"{PARTS} batches" + (f" and {networks} networks" if networks > 1 else "")
    about_cosines = f"cosine of the tasks' gradients, mean over {over}; below 0 they conflict"
    about_affinity = (
        f"by what share a step for the row's task lowers the loss of the column's, mean over {over} of an epoch"
    )

    return {
        "conflict_before": Matrix("gradient cosine at initialisation", about_cosines, _plain(before.nanmean(0))),
        "conflict_after": Matrix("gradient cosine after an epoch", about_cosines, _plain(after.nanmean(0))),
        "affinity": Matrix("affinity (TAG)", about_affinity, _plain(affinities.nanmean(0))),
    }


def _conclusions(suite: TaskSuite, affinities: Tensor, after: Tensor, networks: int) -> dict[str, Any]:
    """Return the diagnosis' entries that follow from the affinities or, where there are none, the final cosines."""
    unit = "networks" if networks > 1 else "batches"
    has_affinities = bool(symmetric(affinities).isfinite().any())
    tables, summary = (affinities, "affinity") if has_affinities else (after, "conflict_after")

    similarity = estimated(symmetric(tables), len(suite.tasks) * (len(suite.tasks) - 1) // 2)
    linked = merges(similarity.mean)
    groups, held_out = groups_of(linked), across(tables)

    names = tuple(task.name for task in suite.tasks)
    return {
        "tasks": names,
        "summary": summary,
        "similarity": _plain(similarity.mean),
        "margin": _plain(similarity.margin),
        "merges": linked,
        "groups": groups,
        "two_groups": best_groups(similarity.mean, 2),
        "sentence": sentence(names, tables, unit),
        "verdict": verdict(len(groups), held_out, unit),
        "across": None if held_out is None else [float(held_out.mean), _number(float(held_out.margin))],
    }


def cosines(
    model: MultiTaskModule,
    partition: Partition,
    source: Source,
    micros: Sequence[Sequence[Batch]],
    device: torch.device,
) -> Tensor:
    """Return the cosines of the tasks' gradients over the shared parameters on a batch, [T, T] float64 on the host.

    They are NaN for tasks without a gradient. Parameters, random numbers and running statistics are restored.
    """
    shared_only = replace(partition, own=[[] for _ in partition.own], extra=[])
    with statistics_kept(model), replayed(random_state(device), device):
        task_gradients = collect((source(micro, terms=False) for micro in micros), shared_only, None)

    counts = scatter(task_gradients.tasks, task_gradients.sums, task_gradients.counts, len(partition.own), device)[1]
    products = gramian(task_gradients.shared, 1 / counts.clamp(min=1)).cpu()

    norms = products.diagonal().sqrt()
    ratios = products / (norms[:, None] * norms)
    return torch.where(ratios.isfinite(), ratios.clamp(-1, 1), math.nan)


def _measured(trainer: Trainer, steps: int, done: int, total: int, tell: Tell) -> tuple[Tensor, Tensor, Tensor]:
    """Return initial cosines, affinities on the way, and final cosines of one network, [PARTS, T, T] each."""

    def compared(done: int) -> Tensor:
        main, tables = trainer.session.main, []
        trainer.model.train()
        epochs = (main.steps(epoch) for epoch in itertools.count(1))
        for indices, _ in itertools.islice(itertools.chain.from_iterable(epochs), PARTS):
            micros = trainer.batches.micros(indices, 1)
            tables.append(cosines(trainer.model, main.update.partition, main.source, micros, trainer.device))
            tell(done + len(tables), total)
        return torch.stack(tables)

    # Both cosines are on the same batches, the first of the sample order.
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
    """Return how many networks a minute has room for.

    Each of them trains an epoch, with a pass for every task in each measurement.
    """
    return NETWORKS if suite.input_kind == "vector" and len(suite.tasks) <= 2 * NETWORKS else 1


def run_of(data: PreparedData, encoder: Encoder, name: str, steps: int, batch_size: int, lr: float, seed: int) -> Run:
    """Return a run of TAG's affinity phase that trains one epoch in `PARTS` parts, so that each is measured once.

    The parts are epochs of this run; it has one more, which is never trained, because the last epoch would validate.
    """
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
    """Draw `samples` training samples of a stream at random."""
    generator = torch.Generator().manual_seed(derive_seed("diagnose", seed, stream))
    index = torch.randperm(trainer.batches.sizes[stream], generator=generator)[:samples].sort().values
    return trainer.batches.take("train", stream, index)


def _covariances(suite: TaskSuite, taken: dict[str, Samples], left_out: dict[str, str]) -> Tensor | None:
    """Return the covariance similarities [T, T]; None where they say nothing, with the reason in `left_out`."""
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
    """Return the features [N, d] of each task's inputs, at most about `FEATURES` for images."""
    if suite.input_kind == "tokens":
        # Texts are means of fixed random word vectors, less the mean that every two texts share.
        vectors = torch.randn(suite.vocabulary_size or 0, WORDS, generator=torch.Generator().manual_seed(0))
        vectors[0] = 0  # padding
        averages = [
            functional.embedding_bag(part.long(), vectors, mode="sum") / (part != 0).sum(1, keepdim=True).clamp(min=1)
            for part in inputs
        ]
        common = torch.cat(averages).mean(0)
        return [part - common for part in averages]

    if suite.input_kind == "image" and math.prod(suite.input_shape) > FEATURES:
        side = math.isqrt(FEATURES // suite.input_shape[0])
        return [functional.adaptive_avg_pool2d(part.float(), side).flatten(1) for part in inputs]
    return [part.float().flatten(1) for part in inputs]


def _labels(suite: TaskSuite, taken: dict[str, Samples], left_out: dict[str, str]) -> Tensor | None:
    """Return the correlations [T, T] of the labels, or None; `left_out` receives what has none, and why."""
    if suite.inputs != "shared":
        left_out["labels"] = "each task has samples of its own, so that no sample has two labels"
        return None

    targets = taken["all"].targets
    comparable_tasks = comparable(suite, targets)
    if excluded := [task.name for task in suite.tasks if task.name not in comparable_tasks]:
        left_out["labels"] = f"maps, and labels of several numbers, have no correlation: {', '.join(excluded)}"
    table = correlations(suite, targets)
    return table if len(comparable_tasks) > 1 else None


def _plain(table: Tensor) -> list[list[float | None]]:
    return [[_number(value) for value in row] for row in table.tolist()]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
