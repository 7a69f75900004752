"""The first view of MLflow's pages.

MLflow 3 opens every experiment on traces of language models, whatever its tags say, unless the browser was told
otherwise before. So its description begins with a link to the methods, and a shared view has their columns.
"""

from __future__ import annotations

import json

VIEW = "methods"  # the name of the shared view in links
_COLUMNS = (
    "delta",
    "delta_interval",
    "eta",
    "mean_rank",
    "parameters",
    "place",
    "seconds",
    "seeds_failed",
    "test.mean",
    "test.mean_interval",
    "val.mean",
    "val.mean_interval",
)


def route(experiment_id: str) -> str:
    """Return the path of the table of methods, behind the server's address."""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"


def experiment_tags() -> dict[str, str]:
    """Return the tags of training runs, and of a view of the rows alone, best first."""
    view = {
        "searchFilter": "tags.`mtlscale.kind` = 'row'",
        "orderByKey": "metrics.`place`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [f"metrics.`{column}`" for column in _COLUMNS],
    }

    return {
        "mlflow.experimentKind": "custom_model_development",  # for MLflow's pages without a choice of workflow
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view),
    }


def note(experiment_id: str, description: str) -> str:
    """Return the description that stands above every page of the experiment."""
    return " · ".join(part for part in (f"[Methods compared]({route(experiment_id)})", description) if part)
