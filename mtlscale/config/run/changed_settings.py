"""Settings in short, without those at their defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mtlscale.config.errors import UserError
from mtlscale.config.registry import components
from mtlscale.config.run.run_parts import IDENTITY
from mtlscale.config.settings.models import TrainingSpec

KINDS = {
    "dataset": "datasets",
    "architecture": "architectures",
    "balancer": "balancers",
    "objective": "objectives",
    "encoder": "encoders",
}


def changed(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a component's plain form that differ from their defaults.

    All options are returned if the component is not known here (it comes from a plugin).
    """
    options = {key: value for key, value in entry.items() if key not in IDENTITY}
    try:
        knobs = components.component(kind, entry["name"]).knobs()
    except UserError:  # from a plugin that is not loaded
        return options
    defaults = {key: json.loads(json.dumps(default, default=str)) for key, (default, _) in knobs.items()}
    return {key: value for key, value in options.items() if key not in defaults or defaults[key] != value}


def differences(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a spec that differ from their defaults, by dotted name.

    The components themselves are listed by their part (`architecture`, `balancer`, …) -> name.
    """
    settings: dict[str, Any] = {}

    for part, kind in KINDS.items():
        entry = spec[part]
        if entry is not None:
            settings[part] = entry["name"]
            settings |= {f"{part}.{key}": value for key, value in changed(kind, entry).items()}

    defaults = TrainingSpec().model_dump(mode="json")
    training = {key: value for key, value in spec["training"].items() if defaults.get(key) != value}
    settings |= {f"training.{key}": value for key, value in training.items()}
    return settings | ({"dropout": spec["dropout"]} if spec["dropout"] else {})
