"""Construction of an exported run's network, without the files that training began from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtlscale.architectures import Architecture, MultiTaskModule, PhaseOutput, channels_last, of_tokens
from mtlscale.config import TaskSuite, UserError, build
from mtlscale.config.run.run_parts import IDENTITY
from mtlscale.encoders import Encoder


def encoder_of(spec: Mapping[str, Any]) -> Encoder:
    """Return the encoder of a run's spec."""
    encoder: Encoder = build("encoders", spec["encoder"]["name"], _knobs(spec["encoder"]), "encoder")
    return encoder


def architecture_of(spec: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a run's spec."""
    entry = spec["architecture"]
    architecture: Architecture = build("architectures", entry["name"], _knobs(entry), "architecture")
    return architecture


def _knobs(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in IDENTITY}


def network(
    spec: Mapping[str, Any],
    suite: TaskSuite,
    phase: str,
    phase_input: PhaseOutput | None,
    state: Mapping[str, Tensor],
    tokenizer: Path | None,
) -> MultiTaskModule:
    """Build the network of a run's last phase with this state, in evaluation mode.

    Nothing is drawn from the global random generator. `UserError` is raised if the state belongs to another network.
    """
    encoder, architecture = encoder_of(spec).without_files(tokenizer), _without_files(architecture_of(spec))

    inputs = architecture.encoder_suite(suite)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, spec["training"]["dtype"]))
    try:
        with torch.random.fork_rng(devices=[]):
            if phase_input is None:
                model = architecture.build(suite, lambda: encoder.build(inputs), spec["dropout"])
            else:
                model = architecture.build_next(
                    phase, phase_input, suite, lambda: encoder.build(inputs), spec["dropout"]
                )
        of_tokens(model, suite)
    finally:
        torch.set_default_dtype(dtype)

    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UserError(
            f"the parameters are not those of this network ({reason}); run it again and export it"
        ) from None

    if spec["training"]["channels_last"]:
        channels_last(model)
    return model.requires_grad_(False).eval()


def _without_files(architecture: Architecture) -> Architecture:
    """Drop the architecture's files: their content is in the phase output that its last phase was built from."""
    return replace(architecture, **{name: None for name, (_, spec) in architecture.knobs().items() if spec.file})
