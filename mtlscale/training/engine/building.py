"""Construction of the networks of a run's phases, their hand-over, and the id by which runs share a phase."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtlscale.architectures import MultiTaskModule, Phase, PhaseOutput, of_tokens
from mtlscale.config import Run, TaskSuite, UserError, named_files, no_result
from mtlscale.config.run.run_parts import Parts
from mtlscale.objectives import ObjectiveModule
from mtlscale.training.seeds import derive_seed, seed_generators

PHASES_VERSION = 1  # raise when what a phase hands over changes


def build_model(
    run: Run, suite: TaskSuite, phase: Phase | None = None, found: PhaseOutput | None = None
) -> tuple[MultiTaskModule, ObjectiveModule | None]:
    """Build the network and objective of a run's phase (default: its first), initialised from its seed.

    Initial values are the same for every method that has the same modules in the same order. `found` is what the
    previous phase handed over.
    """
    parts = run.parts
    encoder, architecture, objective = parts.encoder, parts.architecture, parts.objective
    if suite.input_kind not in encoder.inputs:
        accepted, offered = " or ".join(map(_plural, encoder.inputs)), _plural(suite.input_kind)
        raise UserError(f"encoder {encoder.name} reads {accepted}, {suite.name} has {offered}; choose another encoder")
    if suite.per_token:
        _check_tokens(suite, parts)

    phase = phase or parts.phases[0]
    found = given_found(run) if found is None else found

    dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, parts.training.dtype))
    try:
        seed_generators(derive_seed("init", run.seed if phase.seed is None else phase.seed))
        if objective is not None:
            objective.require(architecture, parts.training)

        inputs = architecture.encoder_suite(suite)
        if found is None:
            model = architecture.build(suite, lambda: encoder.build(inputs), parts.dropout)
        else:
            model = architecture.build_next(phase.name, found, suite, lambda: encoder.build(inputs), parts.dropout)

        of_tokens(model, suite)
        uses_objective = objective is not None and any(turn.objective for turn in phase.turns)
        return model, objective.build(suite, model) if uses_objective else None
    finally:
        torch.set_default_dtype(dtype)


def _check_tokens(suite: TaskSuite, parts: Parts) -> None:
    """Raise `UserError` for components that cannot handle tasks with a label for every token."""
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
    """Return a hash of all that shapes what the phase at position `place` hands over.

    Runs that agree in it share the phase.
    """
    content = []
    for phase in phases[: place + 1]:
        set_by_turns = set.intersection(
            *(set(turn.optimizer.training) for turn in phase.turns)
        )  # which the turns' own settings cover
        training = {name: value for name, value in run.spec["training"].items() if name not in set_by_turns}

        if phase.epochs is not None:
            training.pop("epochs")
        if phase.batch_size is not None:
            training.pop("batch_size")
        if phase.choose == "last":
            training.pop("patience")
        for name in no_result(training):
            training.pop(name, None)

        turns: list[Any] = []
        for turn in phase.turns:
            own, balancer = turn.balancer, run.spec["balancer"]
            if own is not None:
                knobs = {name: getattr(own, name) for name in type(own).knobs()}
                balancer = [own.name, type(own).results_version, knobs]
            turns.append([turn.name, turn.share, turn.groups, turn.source, dict(turn.optimizer.training), balancer])
            if turn.objective:
                turns.append(run.spec["objective"])

        seed = run.seed if phase.seed is None else phase.seed
        # None: the place of a setting that phases had once.
        content.append([phase.name, turns, phase.epochs, phase.choose, None, seed, training])

    common_spec = [run.spec[key] for key in ("dataset", "architecture", "encoder", "dropout")]
    text = json.dumps([content, common_spec, run.fingerprint, PHASES_VERSION], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def following(run: Run, place: int, found: PhaseOutput) -> int:
    """Return the position of the next phase that has anything to do.

    `place` is the position of the phase that has handed over `found`.
    """
    phases, wants = run.parts.phases, run.parts.architecture.wants
    last_phase = len(phases) - 1
    return next(p for p in range(place + 1, last_phase + 1) if p == last_phase or wants(phases[p].name, found))


def found_for(run: Run) -> dict[str, Any]:
    """Return what a phase's output belongs to: it says nothing of other data, encoders or methods."""
    names = {"architecture": run.spec["architecture"]["name"], "encoder": run.spec["encoder"]}
    return {"dataset": run.spec["dataset"]["name"], "fingerprint": run.fingerprint, **names}


def given_found(run: Run) -> PhaseOutput | None:
    """Load the output of an earlier phase from the file that the architecture's knob `found` names, if any.

    Raises:
        UserError: If the file cannot be read, or its content was found for something else.
    """
    file_name = getattr(run.parts.architecture, "found", None)
    if file_name is None:
        return None
    from mtlscale.training.engine import checkpoint

    path = named_files.locate(file_name)
    try:
        content = checkpoint.load(path)
    except checkpoint.Damaged:
        content = None

    if content is None or not isinstance(content, dict) or "of" not in content:
        raise UserError(f"found: {path} is not what a phase has left; name a file of a home folder's `phases`")

    for key, value in found_for(run).items():
        if content["of"].get(key) != value:
            stored, current = _differing(content["of"].get(key), value)
            subject = "version of the data" if key == "fingerprint" else key
            raise UserError(
                f"found: {path} was found for another {subject} ({stored}, here {current}); drop it to search anew"
            )

    phase_output: PhaseOutput = content["found"]
    return phase_output


def _differing(*both: Any) -> list[str]:
    """Return both values in short; of two mappings, only the settings that differ."""
    if all(isinstance(entry, Mapping) for entry in both):
        keys = [key for key in {**both[0], **both[1]} if both[0].get(key) != both[1].get(key)]
        both = tuple({key: entry[key] for key in keys if key in entry} for entry in both)
    return [json.dumps(entry, default=str)[:80] for entry in both]


def _plural(kind: str) -> str:
    return kind if kind.endswith("s") else f"{kind}s"
