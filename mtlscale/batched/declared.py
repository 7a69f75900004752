"""Check that components that declare themselves batchable are.

Tests see to those that are shipped; those of plugins are tried: one step of a trial batched with others has to be what
it is alone, through the ordinary engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mtlscale.architectures import EpochView
from mtlscale.batched.session import BatchedSession, Causes
from mtlscale.config import Run, UserError, from_plugin
from mtlscale.data import PreparedData, Workers
from mtlscale.data.readers.random_access import DeviceReader
from mtlscale.training import Batches, Diverged, Session, StepResult, begin, build_model, derive_seed

_NETWORK = ("architecture", "encoder")


@dataclass(frozen=True)
class BatchingDifference:
    """Difference of a batched step from the same step alone, and the parts of a run that can cause it.

    The likeliest of these parts comes first.
    """

    quantity: str
    suspects: tuple[str, ...]


def check_declared(runs: Sequence[Run], data: PreparedData, device: torch.device) -> None:
    """Raise `UserError` that names a plugin's component where trials of it cannot be batched."""
    parts = runs[0].parts
    tried = {k: getattr(parts, k) for k in ("architecture", "encoder", "balancer", "objective")}
    tried = {kind: component for kind, component in tried.items() if component is not None and from_plugin(component)}

    difference = _difference(runs, data, device) if tried else None
    if difference is not None:
        kind = next(kind for kind in (*difference.suspects, *tried) if kind in tried)
        raise UserError(
            f"{kind} {tried[kind].name} declares itself batchable, but batched with others {difference.quantity}; "
            "set its batchable to False"
        )


def _difference(runs: Sequence[Run], data: PreparedData, device: torch.device) -> BatchingDifference | None:
    """Return how the first trial's step, in float64, changes when it is batched between two others."""
    first = _exact(runs[0], runs[0].seed)
    # The others have other parameters and, where there are any, other knobs of the balancer.
    neighbour = next((run for run in runs if run.parts.balancer != first.parts.balancer), runs[-1])
    neighbour = _exact(neighbour, first.seed)

    try:
        alone, result = _step_alone(first, data, device)
    except Diverged:
        return None  # nothing to compare; it will be recorded as diverged

    try:
        batched = _batched(first, neighbour, data, device)
    except UserError:
        raise
    except _TrialEndedError as left:
        return BatchingDifference(f"a run diverges that does not alone ({left})", (*_NETWORK, "balancer", "objective"))
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        return BatchingDifference(
            f"its step fails ({type(error).__name__}: {line})", (*_NETWORK, "balancer", "objective")
        )

    return _compare(alone, result, batched, _position(batched, first)) or _more_than_parameters(first, data, alone)


def _exact(run: Run, seed: int) -> Run:
    fields = {name: getattr(run, name) for name in Run.model_fields}
    training = run.training.model_copy(update={"dtype": "float64"})
    return Run.of_parts(replace(run.parts, training=training), **{**fields, "seed": seed})


def _step_alone(run: Run, data: PreparedData, device: torch.device) -> tuple[Session, StepResult]:
    """Take one step of a run alone, and do what follows when an epoch ends."""
    (phase,), workers = run.parts.phases, Workers()
    reader = DeviceReader(data.splits, device, torch.float64)
    batches = Batches(reader, data.suite, device=device, dtype=torch.float64, workers=workers)
    session = begin(run, data.suite, phase, None, batches, device=device, workers=workers)
    updater = session.main

    torch.manual_seed(derive_seed("epoch", run.seed, 1, 0))
    session.model.train()
    updater.schedule(0, run.training.epochs * updater.sampler.steps)

    indices, _ = next(updater.steps(1))
    result = session.step(updater, batches.micros(indices, 1, factors=updater.sampler.factors(indices)))

    updater.update.on_epoch_end(result.balanced_losses)
    session.model.on_epoch_end(EpochView(1))
    return session, result


class _TrialEndedError(Exception):
    """Signal that the trial under test cannot go on."""


def _batched(first: Run, second_run: Run, data: PreparedData, device: torch.device) -> BatchedSession:
    """Take the same step between two of another run with other parameters: nothing of these may reach the first."""
    session = BatchedSession([second_run, first, second_run], data, device)
    for value in session.values:
        value[0] *= 0.7
        value[2] *= 1.5

    def leave(causes: Causes) -> Tensor:
        if _position(session, first) in causes:
            raise _TrialEndedError(str(causes[_position(session, first)]))
        return session.keep([position for position in range(len(session.runs)) if position not in causes])

    session.step(next(session.steps.epoch(1, session.seeds)), 0, leave)
    session.update.on_epoch_end(session.tally.balanced_losses)
    return session


def _position(session: BatchedSession, run: Run) -> int:
    """Return the position of a run, by identity: the other runs may be equal to it."""
    return next(position for position, candidate in enumerate(session.runs) if candidate is run)


def _compare(session: Session, result: StepResult, batched: BatchedSession, position: int) -> BatchingDifference | None:
    """Compare one trial alone with the same at its position among others."""
    tally = batched.tally.of(position)
    if not _close(tally.mean_losses, result.losses):
        return BatchingDifference("its losses are others than alone", (*_NETWORK, "objective", "balancer"))
    if not _close(tally.weights, result.weights):
        return BatchingDifference("its weights are others than alone", ("balancer", *_NETWORK, "objective"))
    values = batched.layout.state_dict([value[position] for value in batched.values])
    if not _all_close(values, dict(session.model.named_parameters())):
        return BatchingDifference("its parameters move otherwise than alone", (*_NETWORK, "objective", "balancer"))
    if not _all_close({k: v[position] for k, v in batched.update.state.items()}, session.main.update.state):
        return BatchingDifference("its state moves otherwise than alone", ("balancer", *_NETWORK, "objective"))
    return None


def _more_than_parameters(run: Run, data: PreparedData, session: Session) -> BatchingDifference | None:
    """Return a difference where a step changed more than parameters: a batch of trials shares one network."""
    before = dict(build_model(run, data.suite)[0].named_buffers())
    buffers_moved = not _all_close(before, dict(session.model.named_buffers()))
    if buffers_moved or session.model.traces() or session.model.extra_parameter_count():
        return BatchingDifference("what it keeps besides parameters would be lost", _NETWORK)
    return None


def _all_close(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    return expected.keys() == actual.keys() and all(_close(expected[key], actual[key]) for key in expected)


def _close(expected: Tensor, actual: Tensor) -> bool:
    expected, actual = expected.detach().cpu(), actual.detach().cpu()
    return expected.shape == actual.shape and torch.allclose(
        expected, actual.to(expected), rtol=1e-6, atol=1e-8, equal_nan=True
    )
