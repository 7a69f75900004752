"""The parts of a run: built components and checked settings, and the plain form they are written in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtlscale.config.named_files import with_content_hash
from mtlscale.config.registry import components
from mtlscale.config.settings.models import TrainingSpec

IDENTITY = ("name", "results_version", "plugin")  # entries of a component's settings that are no knobs


@dataclass(frozen=True)
class Parts:
    """The components and settings of a run; the classes of the components are in the packages of their kinds."""

    architecture: Any  # Architecture
    balancer: Any  # Balancer
    objective: Any  # Objective, or None
    encoder: Any  # Encoder
    dropout: float
    training: TrainingSpec

    @classmethod
    def of(cls, spec: Mapping[str, Any], method: str) -> Parts:
        """Build the parts from their plain form.

        Raises:
            UserError: If it names something that this process does not know.
        """

        def build(part: str) -> Any:
            entry = spec[part]
            if entry is None:
                return None
            options = {key: value for key, value in entry.items() if key not in IDENTITY}
            return components.build(f"{part}s", entry["name"], options, f"{part} of {method}")

        return cls(
            architecture=build("architecture"),
            balancer=build("balancer"),
            objective=build("objective"),
            encoder=build("encoder"),
            dropout=spec["dropout"],
            training=TrainingSpec.model_validate(spec["training"]),
        )

    @property
    def phases(self) -> tuple[Any, ...]:
        """The method's phases on this encoder, in order: a tuple of `Phase`."""
        phases = self.architecture.phases_for(self.encoder.stage_count)
        return tuple(phase.of_run(self.training.epochs) for phase in phases)

    def plain(self) -> dict[str, Any]:
        """Return the plain form, every setting with its value; records keep it and run ids hash it."""
        return as_json(
            {
                "architecture": settings(self.architecture),
                "balancer": settings(self.balancer),
                "objective": None if self.objective is None else settings(self.objective),
                "encoder": settings(self.encoder),
                "dropout": self.dropout,
                "training": self.training.model_dump(mode="json"),
            }
        )


def settings(component: Any) -> dict[str, Any]:
    """Return a component's name, results version and the knobs that a run is known by, with their values.

    Plugins and files add their hash.
    """
    cls = type(component)
    specs = {knob: spec for knob, (_, spec) in cls.knobs().items()}
    values = component.knob_values()
    knobs = {knob: with_content_hash(value) if specs[knob].file else value for knob, value in values.items()}
    source = components.source_hash(cls)
    return {"name": cls.name, "results_version": cls.results_version, **({"plugin": source} if source else {}), **knobs}


def as_json(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content after writing it as JSON and reading it back, which makes it plain."""
    plain: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return plain
