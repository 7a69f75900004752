"""mtlscale: a Ray-distributed benchmark runner for multi-task learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from mtlscale.version import __version__

if TYPE_CHECKING:
    from mtlscale.config import Experiment, UserError, load_experiment
    from mtlscale.execution.comparison import compare
    from mtlscale.execution.planning.result_sources import load_records
    from mtlscale.execution.runner import run
    from mtlscale.inference import ExportedModel, load_model
    from mtlscale.report.results import Results
    from mtlscale.training.task_balancer import TaskBalancer

__all__ = [
    "Experiment",
    "ExportedModel",
    "Results",
    "TaskBalancer",
    "UserError",
    "__version__",
    "compare",
    "load_experiment",
    "load_model",
    "load_records",
    "run",
]

__getattr__ = lazily(__name__)
