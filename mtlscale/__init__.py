"""mtlscale: a Ray-distributed benchmark runner for multi-task learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtlscale.components import UserError
    from mtlscale.execution.runner import run
    from mtlscale.experiment import Experiment, load_experiment
    from mtlscale.results import Results

__version__ = "0.1.0"
__all__ = ["Experiment", "Results", "UserError", "load_experiment", "run"]

_HOMES = {
    "Experiment": "mtlscale.experiment",
    "Results": "mtlscale.results",
    "UserError": "mtlscale.components",
    "load_experiment": "mtlscale.experiment",
    "run": "mtlscale.execution.runner",
}


def __getattr__(name: str) -> Any:
    # torch, ray and mlflow take seconds to import; they are imported where they are used.
    if name not in _HOMES:
        raise AttributeError(f"module 'mtlscale' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
