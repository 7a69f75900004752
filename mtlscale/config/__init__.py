"""Experiment files: components and their knobs, sections, loading, runs, and the search space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.config.addresses import without_secrets
    from mtlscale.config.errors import UserError
    from mtlscale.config.experiment.defaults import defaults_file
    from mtlscale.config.experiment.experiment import FLOORS, Experiment, data_settings
    from mtlscale.config.experiment.loading import (
        SHIPPED,
        experiment_from,
        find_experiment,
        load_experiment,
        loaded,
        parse_override,
        read_settings,
        shipped,
    )
    from mtlscale.config.experiment.outline import Outline, read_outline
    from mtlscale.config.registry.components import (
        PACKAGES,
        Component,
        Knob,
        build,
        component,
        from_plugin,
        knob,
        load_plugin,
        names,
        plugin_error,
        plugin_file,
        source_hash,
    )
    from mtlscale.config.registry.extensions import extensions
    from mtlscale.config.registry.nearest import nearest
    from mtlscale.config.run.batch_checks import check_batches
    from mtlscale.config.run.changed_settings import changed, differences
    from mtlscale.config.run.run import RESULTS_VERSION, Run, no_result
    from mtlscale.config.search.trials import (
        belongs,
        budget_of,
        check_metric,
        default_space,
        space_of,
        trials,
        whole_number,
    )
    from mtlscale.config.settings.metric_selection import check_delta, entering, fingerprint_with, suite_delta
    from mtlscale.config.settings.models import (
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
        method_name,
    )
    from mtlscale.config.settings.search_space import COMMON, PARTS, Dimension, Knobs, SearchSpec, split_path
    from mtlscale.config.tasks import LOSSES, MISSING_CLASS, SPLITS, UNKNOWN_CATEGORY, Task, TaskSuite
    from mtlscale.config.validation import place_of_key

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
    "UNKNOWN_CATEGORY",
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
    "Outline",
    "PgdSpec",
    "ResourceSpec",
    "Run",
    "SearchSpec",
    "Task",
    "TaskSuite",
    "TrackingSpec",
    "TrainingSpec",
    "UserError",
    "belongs",
    "budget_of",
    "build",
    "changed",
    "check_batches",
    "check_delta",
    "check_metric",
    "component",
    "data_settings",
    "default_space",
    "defaults_file",
    "differences",
    "entering",
    "experiment_from",
    "extensions",
    "find_experiment",
    "fingerprint_with",
    "from_plugin",
    "knob",
    "load_experiment",
    "load_plugin",
    "loaded",
    "method_name",
    "names",
    "nearest",
    "no_result",
    "parse_override",
    "place_of_key",
    "plugin_error",
    "plugin_file",
    "read_outline",
    "read_settings",
    "shipped",
    "source_hash",
    "space_of",
    "split_path",
    "suite_delta",
    "trials",
    "whole_number",
    "without_secrets",
]

__getattr__ = lazily(__name__)
