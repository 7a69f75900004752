"""mtlscale: a Ray-distributed benchmark runner for multi-task learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from mtlscale.version import __version__

if TYPE_CHECKING:
    from mtlscale.execution.places import load_records
    from mtlscale.execution.runner import run
    from mtlscale.exported import ExportedModel, load_model
    from mtlscale.report.results import Results
    from mtlscale.spec import Experiment, UserError, load_experiment

__all__ = [
    "Experiment",
    "ExportedModel",
    "Results",
    "UserError",
    "__version__",
    "load_experiment",
    "load_model",
    "load_records",
    "run",
]

__getattr__ = lazily(
    __name__,
    {
        "mtlscale.execution.places": ["load_records"],
        "mtlscale.execution.runner": ["run"],
        "mtlscale.exported": ["ExportedModel", "load_model"],
        "mtlscale.report.results": ["Results"],
        "mtlscale.spec": ["Experiment", "UserError", "load_experiment"],
    },
)
