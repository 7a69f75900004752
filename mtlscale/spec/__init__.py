"""Experiment files: components and their knobs, models, reading, runs, and what is searched."""

from mtlscale.spec.batches import check_batches
from mtlscale.spec.components import (
    PACKAGES,
    Component,
    Knob,
    build,
    component,
    from_plugin,
    knob,
    load_plugin,
    names,
    nearest,
    plugin_error,
    source_hash,
)
from mtlscale.spec.differences import changed, differences
from mtlscale.spec.dimensions import COMMON, PARTS, Dimension, Knobs, SearchSpec, split_path
from mtlscale.spec.errors import UserError
from mtlscale.spec.experiment import FLOORS, Experiment
from mtlscale.spec.loading import SHIPPED, find_experiment, load_experiment, parse_override, read_settings, shipped
from mtlscale.spec.measures import check_delta, entering, fingerprint_with, suite_delta
from mtlscale.spec.models import (
    ComponentSpec,
    DatasetSpec,
    EvaluationSpec,
    LabelNoise,
    MethodSpec,
    ModelSpec,
    PgdSpec,
    ResourceSpec,
    TrackingSpec,
    TrainingSpec,
)
from mtlscale.spec.run import RESULTS_VERSION, Run, no_result
from mtlscale.spec.search import check_metric, default_space, space_of, trials, whole_number
from mtlscale.spec.tasks import LOSSES, MISSING_CLASS, SPLITS, Task, TaskSuite
from mtlscale.spec.validation import place_of_key

__all__ = [
    "COMMON",
    "FLOORS",
    "LOSSES",
    "MISSING_CLASS",
    "PACKAGES",
    "PARTS",
    "RESULTS_VERSION",
    "SHIPPED",
    "SPLITS",
    "Component",
    "ComponentSpec",
    "DatasetSpec",
    "Dimension",
    "EvaluationSpec",
    "Experiment",
    "Knob",
    "Knobs",
    "LabelNoise",
    "MethodSpec",
    "ModelSpec",
    "PgdSpec",
    "ResourceSpec",
    "Run",
    "SearchSpec",
    "Task",
    "TaskSuite",
    "TrackingSpec",
    "TrainingSpec",
    "UserError",
    "build",
    "changed",
    "check_batches",
    "check_delta",
    "check_metric",
    "component",
    "default_space",
    "differences",
    "entering",
    "find_experiment",
    "fingerprint_with",
    "from_plugin",
    "knob",
    "load_experiment",
    "load_plugin",
    "names",
    "nearest",
    "no_result",
    "parse_override",
    "place_of_key",
    "plugin_error",
    "read_settings",
    "shipped",
    "source_hash",
    "space_of",
    "split_path",
    "suite_delta",
    "trials",
    "whole_number",
]
