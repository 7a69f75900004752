"""The networks of a run's phases, what they hand over to each other, and the id that runs share a phase by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtlscale.architectures import Found, MultiTaskModule, Phase, of_tokens
from mtlscale.balancing import Balancer
from mtlscale.objectives import ObjectiveModule
from mtlscale.spec import Run, TaskSuite, UserError, files, no_result
from mtlscale.spec.parts import Parts
from mtlscale.training.seeds import derive_seed

PHASES_VERSION = 1  # raise when what a phase hands over changes


def build_model(
    run: Run, suite: TaskSuite, phase: Phase | None = None, found: Found | None = None
) -> tuple[MultiTaskModule, ObjectiveModule | None]:
    """The network and objective of a run's phase (default: its first), initialised from its seed: the same for every
    method that has the same modules in the same order. found: what the phase before handed over."""
    parts = run.parts
    encoder, architecture, objective = parts.encoder, parts.architecture, parts.objective
    if suite.input_kind not in encoder.inputs:
        wanted, given = " or ".join(map(_plural, encoder.inputs)), _plural(suite.input_kind)
        raise UserError(f"encoder {encoder.name} reads {wanted}, {suite.name} has {given}; choose another encoder")
    if suite.per_token:
        _check_tokens(suite, parts)
    phase = phase or parts.phases[0]
    found = given_found(run) if found is None else found
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, parts.training.dtype))
    try:
        torch.manual_seed(derive_seed("init", run.seed if phase.seed is None else phase.seed))
        if objective is not None:
            objective.require(architecture, parts.training)
        if found is None:
            model = architecture.build(suite, lambda: encoder.build(suite), parts.dropout)
        else:
            model = architecture.build_next(phase.name, found, suite, lambda: encoder.build(suite), parts.dropout)
        of_tokens(model, suite)
        uses = objective is not None and any(turn.objective for turn in phase.turns)
        return model, objective.build(suite, model) if uses else None
    finally:
        torch.set_default_dtype(dtype)


def _check_tokens(suite: TaskSuite, parts: Parts) -> None:
    """`UserError` for what knows nothing of tasks that have a label for every token."""
    if not parts.encoder.per_token and not parts.architecture.fitted:
        raise UserError(
            f"encoder {parts.encoder.name} gives features of whole samples, the tasks of {suite.name} are per token; "
            "choose word_char, token_layers or pretrained_layers"
        )
    if parts.objective is not None and not parts.objective.per_token:
        raise UserError(
            f"objective {parts.objective.name} looks at features of whole samples, the tasks of {suite.name} are per "
            "token; leave it out"
        )


def phase_id(run: Run, phases: Sequence[Phase], place: int) -> str:
    """A hash of all that shapes what the phase at this place hands over, so that runs that agree in it share it."""
    content = []
    for phase in phases[: place + 1]:
        of_turns = set.intersection(*(set(turn.training) for turn in phase.turns))  # which say so themselves
        training = {name: value for name, value in run.spec["training"].items() if name not in of_turns}
        if phase.epochs is not None:
            training.pop("epochs")
        if phase.batch_size is not None:
            training.pop("batch_size")
        if phase.choose == "last" or phase.patience is not None:
            training.pop("patience")
        for name in no_result(training):
            training.pop(name, None)
        turns: list[Any] = []
        for turn in phase.turns:
            balancer = run.spec["balancer"] if turn.balancer is None else _told(turn.balancer)
            turns.append([turn.name, turn.share, turn.groups, turn.source, dict(turn.training), balancer])
            if turn.objective:
                turns.append(run.spec["objective"])
        seed = run.seed if phase.seed is None else phase.seed
        content.append([phase.name, turns, phase.epochs, phase.choose, phase.patience, seed, training])
    same = [run.spec[key] for key in ("dataset", "architecture", "encoder", "dropout")]
    text = json.dumps([content, same, run.fingerprint, PHASES_VERSION], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def following(run: Run, place: int, found: Found) -> int:
    """The place of the next phase that has anything to do, after the one at this place has handed over."""
    phases, wants = run.parts.phases, run.parts.architecture.wants
    last = len(phases) - 1
    return next(p for p in range(place + 1, last + 1) if p == last or wants(phases[p].name, found))


def found_for(run: Run) -> dict[str, Any]:
    """What a phase's finding belongs to: it says nothing of other data, encoders or methods."""
    names = {"architecture": run.spec["architecture"]["name"], "encoder": run.spec["encoder"]}
    return {"dataset": run.spec["dataset"]["name"], "fingerprint": run.fingerprint, **names}


def given_found(run: Run) -> Found | None:
    """What the knob `found` of an architecture names: the finding of an earlier phase of its, in a file. `UserError`
    where it cannot be read, or was found for something else."""
    named = getattr(run.parts.architecture, "found", None)
    if named is None:
        return None
    from mtlscale.training import checkpoint  # which what differentiates alone does without

    path = files.locate(named)
    try:
        content = checkpoint.load(path)
    except checkpoint.Damaged:
        content = None
    if content is None or not isinstance(content, dict) or "of" not in content:
        raise UserError(f"found: {path} is not what a phase has left; name a file of a home folder's `phases`")
    for what, value in found_for(run).items():
        if content["of"].get(what) != value:
            before, now = _differing(content["of"].get(what), value)
            other = "version of the data" if what == "fingerprint" else what
            raise UserError(
                f"found: {path} was found for another {other} ({before}, here {now}); drop it to search anew"
            )
    found: Found = content["found"]
    return found


def _differing(*both: Any) -> list[str]:
    """Both in short; of two with settings those that differ."""
    if all(isinstance(one, Mapping) for one in both):
        keys = [key for key in {**both[0], **both[1]} if both[0].get(key) != both[1].get(key)]
        both = tuple({key: one[key] for key in keys if key in one} for one in both)
    return [json.dumps(one, default=str)[:80] for one in both]


def _told(balancer: Balancer) -> list[Any]:
    knobs = {name: getattr(balancer, name) for name in type(balancer).knobs()}
    return [balancer.name, type(balancer).results_version, knobs]


def _plural(kind: str) -> str:
    return kind if kind.endswith("s") else f"{kind}s"
