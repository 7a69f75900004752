"""Plan of which trials are trained as one batched model, how many at a time, and whether that pays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mtlscale.architectures import Architecture, MultiTaskModule, Phase, Turn
from mtlscale.batched.eligibility import lengths
from mtlscale.config import Run, Task, TaskSuite
from mtlscale.data import SAMPLERS, Batch, Samples
from mtlscale.data.readers.prepared import Manifest
from mtlscale.metrics import simulated
from mtlscale.training import build_model

# Training settings that may differ between trials that are batched.
_NUMBERS = ("lr", "weight_decay", "momentum", "decay_rate", "decay_steps")

_RATES = ("dropout", "input_dropout")  # knobs of encoders

# The cost model, measured on one core of a desktop CPU: seconds of overhead per stream alone, and per batched pass;
# floating-point operations per second of both. A rough model suffices, since batching wins or loses by factors.
_ALONE, _BATCHED = 4e-4, 5e-3
_PASS = 6e-3  # seconds of overhead of another pass for streams of another length
_SPEED = 1.5e10
_BYTES = 3 << 30  # bytes that a batch of trials may take for one step
_VALUES = 2  # every value kept for the backward pass has a gradient on the way
_RESERVED_BYTES = 16 << 20  # bytes a trial takes for its batches and for what the allocator does not give back
_LARGEST_GROUP = 64  # trials batched at a time
_FEWEST = 3
_SHORT = 10.0  # predicted seconds of a run that needs no checkpoint
_WORTH = 1.5  # predicted gain from which trials are batched


@dataclass(frozen=True)
class CostEstimate:
    """Estimate by the cost model for a group of trials that fit together."""

    alone_seconds: float  # seconds of a step of one trial
    overhead: float  # seconds of a batched step, however many trials it has
    work: float  # seconds of a batched step for each trial in it
    size: int  # the most trials at a time
    bytes: float = 0.0  # bytes that each trial keeps

    def batched(self, trials: int) -> float:
        """Return the seconds of a step per trial, for a group of `trials` trials."""
        return self.overhead / min(trials, self.size) + self.work

    def gain(self, trials: int) -> float:
        """Return how many times cheaper a group of `trials` trials is batched."""
        return self.alone_seconds / self.batched(trials)


def obstacle(run: Run, suite: TaskSuite) -> str | None:
    """Return why trials like this one have to run one by one, or None."""
    spec = run.training
    if spec.amp != "off" or spec.accumulate > 1 or spec.gramian_every > 1:
        return "mixed precision, accumulation and gramian_every run one by one"
    if spec.seconds is not None:
        return "runs with a budget of seconds run one by one"
    if spec.optimizer in ("muon", "lion"):
        return f"{spec.optimizer} runs one by one"
    if spec.augment != "none" or spec.channels_last:
        return "changed images and channels_last run one by one"
    if run.evaluation is not None:
        return "an evaluation of its own runs one by one"
    if suite.unlabelled:
        return "streams without labels run one by one"
    if any(map(simulated, suite.tasks)):
        return "tasks that are environments run one by one"

    parts = run.parts

    for kind in ("encoder", "architecture", "balancer", "objective"):
        component = getattr(parts, kind)
        if component is not None and not component.batchable:
            return f"{kind} {component.name} is not batchable"

    if parts.balancer.looks_at_features:
        return f"balancer {parts.balancer.name} looks at the features of each network before its first step"
    if type(parts.architecture).recipe is not Architecture.recipe:
        return f"architecture {parts.architecture.name} has a recipe of its own"
    if not _trains_plainly(parts.phases):
        return f"architecture {parts.architecture.name} has phases or turns of its own"
    return None


def _trains_plainly(phases: Sequence[Phase]) -> bool:
    """Return whether there is one phase of one turn, and neither asks for anything of its own."""
    if len(phases) > 1 or len(phases[0].turns) > 1:
        return False
    return phases[0] == Phase(name=phases[0].name, turns=(Turn(name=phases[0].turns[0].name),))


def signature(run: Run) -> str:
    """Return what has to be the same for trials to be batched: everything but numbers that tensors can stand for."""
    spec = _copied(run)
    if run.training.batches == "per_task":  # in pooled batches, the number of a task's samples depends on the seed
        spec.pop("seed")

    for name in _NUMBERS:
        spec["training"].pop(name)
    spec["training"]["clip"] = spec["training"]["clip"] is not None
    spec["dropout"] = spec["dropout"] > 0
    for name in encoder_rates(run):
        spec["encoder"][name] = spec["encoder"][name] > 0

    for part in ("balancer", "objective"):
        built = getattr(run.parts, part)
        if built is None:
            continue

        per_task = (*getattr(built, "per_task", ()), *getattr(built, "only_in_init", ()))
        for name, (default, _) in built.knobs().items():
            if (isinstance(default, float) and spec[part].get(name, default) is not None) or name in per_task:
                spec[part][name] = "any"

    return json.dumps([run.data, run.row, run.fingerprint, spec], sort_keys=True)


def _copied(run: Run) -> dict[str, Any]:
    """Return the spec of a run whose entries, and those of its parts, may be set."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in run.spec.items()}


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Group the runs by signature. Trials that drop nothing anywhere join those that drop something."""
    by_signature: dict[str, list[Run]] = {}
    for run in runs:
        by_signature.setdefault(signature(run), []).append(run)

    by_rest: dict[str, list[str]] = {}  # signature without dropout -> those of its groups
    for key, group in by_signature.items():
        by_rest.setdefault(_without_dropout(group[0]), []).append(key)

    for keys in by_rest.values():
        for key in keys:
            group = by_signature[key]
            if group[0].parts.dropout > 0 or any(rate > 0 for rate in encoder_rates(group[0]).values()):
                continue

            partners = [by_signature[other] for other in keys if other != key and other in by_signature]
            if partners:
                max(partners, key=len).extend(group)
                del by_signature[key]

    return list(by_signature.values())


def encoder_rates(run: Run) -> dict[str, float]:
    """Return the encoder's dropout rates by the knob's name."""
    encoder = run.parts.encoder
    return {name: getattr(encoder, name) for name in encoder.knobs() if name in _RATES}


def _without_dropout(run: Run) -> str:
    spec = _copied(run)
    spec["dropout"] = 0.0
    for name in encoder_rates(run):
        spec["encoder"][name] = 0.0
    return signature(run.model_copy(update={"spec": spec}))


def estimate(run: Run, manifest: Manifest, trials: int, workers: int) -> CostEstimate:
    """Return what a step costs alone and batched, for `trials` trials like this one on `workers` workers."""
    suite = manifest.suite
    model, _ = build_model(run, suite)
    streams = {
        stream: max(manifest.counts[t].get("train", 0) for t in tasks) for stream, tasks in suite.streams.items()
    }
    sizes = list(SAMPLERS[run.training.batches](streams, run.training.batch_size, 0).lengths().values())

    bytes_per_sample, work_per_sample = _measure(model, suite)

    parameters = sum(p.numel() for p in model.parameters())
    gradients = 1 if run.parts.balancer.needs == "losses" else len(suite.tasks) if suite.inputs == "shared" else 1
    width = 8 if run.training.dtype == "float64" else 4

    share = max(_FEWEST, -(-trials // max(1, workers)))
    side_by_side = lengths.by_length(sizes, pass_in_samples(work_per_sample, share))
    padded = lengths.padded(sizes, side_by_side)

    copies = 8 if gradients == 1 else 8 + len(suite.tasks)
    per_trial = _VALUES * bytes_per_sample * width * padded + parameters * width * copies + _RESERVED_BYTES
    size = max(1, min(_LARGEST_GROUP, share, int(_BYTES // per_trial)))

    alone = _ALONE * (len(sizes) + gradients - 1) + 6 * work_per_sample * sum(sizes) / _SPEED
    overhead = _BATCHED * gradients + _PASS * (len(side_by_side) - 1)
    return CostEstimate(alone, overhead, 6 * work_per_sample * padded / _SPEED, size, per_trial)


def multiplications(model: MultiTaskModule, tasks: Sequence[str]) -> int:
    """Return the multiplications of one sample's forward pass for these tasks, were every parameter used once."""
    used = [*model.shared_parameters(), *(p for task in tasks for p in model.task_parameters(task))]
    return sum(p.numel() for p in used)


def pass_in_samples(flops: int, trials: int) -> float:
    """Return the cost of another batched pass, in samples of one stream of all trials.

    `flops` is the number of multiplications of a sample.
    """
    return _PASS * _SPEED / (6 * max(1, flops) * trials)


def _measure(model: MultiTaskModule, suite: TaskSuite) -> tuple[float, int]:
    """Return numbers kept for the backward pass, and multiplications, of one sample of the first stream."""
    stream, tasks = next(iter(suite.streams.items()))
    stored: dict[int, int] = {}
    parameter_pointers = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in parameter_pointers:
            stored[pointer] = tensor.numel()
        return tensor

    samples = 8
    dtype = next(model.parameters()).dtype
    inputs = torch.zeros(samples, *suite.input_shape, dtype=dtype)
    task_of: dict[str, Task] = {task.name: task for task in suite.tasks}
    targets = {name: torch.zeros(samples, task_of[name].outputs) for name in tasks}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(Batch(stream, Samples(inputs, targets), samples))
    return sum(stored.values()) / samples, multiplications(model, tasks)


def shares(runs: Sequence[Run], size: int) -> list[list[Run]]:
    """Split the runs into shares of nearly equal size, at most `size` each."""
    count = -(-len(runs) // size)
    return [list(runs[i::count]) for i in range(count)]


def estimate_alone(run: Run, manifest: Manifest, steps: int) -> CostEstimate | None:
    """Return the cost of a run of `steps` steps that should be batched by itself; None if it should not.

    It should where tasks side by side make it much cheaper, and it is too short to need checkpoints, which batched runs
    do not have. How a run is trained depends on the run alone, so its results do, too.
    """
    suite = manifest.suite
    if len(suite.streams) * _ALONE < _WORTH * _BATCHED or obstacle(run, suite) is not None:
        return None
    cost = estimate(run, manifest, 1, 1)
    return cost if worth_it(cost, 1) and steps * cost.batched(1) < _SHORT else None


def worth_it(estimate: CostEstimate, trials: int) -> bool:
    """Return whether so many trials should be batched; with many tasks side by side even one alone may be."""
    return estimate.gain(trials) >= _WORTH
