"""What of a run's spec is not as it would be if nobody had said anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mtlscale.spec import components
from mtlscale.spec.errors import UserError
from mtlscale.spec.models import TrainingSpec
from mtlscale.spec.parts import IDENTITY

KINDS = {
    "dataset": "datasets",
    "architecture": "architectures",
    "balancer": "balancers",
    "objective": "objectives",
    "encoder": "encoders",
}


def changed(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a component's plain form that are not at their defaults; all, where it is not known here."""
    options = {key: value for key, value in entry.items() if key not in IDENTITY}
    try:
        knobs = components.component(kind, entry["name"]).knobs()
    except UserError:  # of a plugin
        return options
    defaults = {key: json.loads(json.dumps(default, default=str)) for key, (default, _) in knobs.items()}
    return {key: value for key, value in options.items() if key not in defaults or defaults[key] != value}


def differences(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names of the spec, `architecture` and its like for the components themselves, with their values."""
    found: dict[str, Any] = {}
    for part, kind in KINDS.items():
        entry = spec[part]
        if entry is not None:
            found[part] = entry["name"]
            found |= {f"{part}.{key}": value for key, value in changed(kind, entry).items()}
    defaults = TrainingSpec().model_dump(mode="json")
    training = {key: value for key, value in spec["training"].items() if defaults.get(key) != value}
    found |= {f"training.{key}": value for key, value in training.items()}
    return found | ({"dropout": spec["dropout"]} if spec["dropout"] else {})
