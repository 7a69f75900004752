"""The first view of MLflow's pages.

MLflow 3 opens every experiment on traces of language models, whatever its tags say, unless the browser was told
otherwise before. So its description begins with a link to the methods, and a shared view has their columns.
"""

from __future__ import annotations

import json

VIEW = "methods"  # the name of the shared view in links
_COLUMNS = (  # quality first
    "test.mean",
    "test.mean_interval",
    "delta",
    "delta_interval",
    "mean_rank",
    "eta",
    "val.mean",
    "val.mean_interval",
    "seconds",
    "parameters",
    "seeds_failed",
    "place",
)


def route(experiment_id: str) -> str:
    """Return the path of the table of methods, behind the server's address."""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"


def experiment_tags() -> dict[str, str]:
    """Return the tags of training runs, and of a view of the rows alone: data set by data set, best first."""
    columns = [f"metrics.`{column}`" for column in _COLUMNS]
    view = {
        "searchFilter": "tags.`mtlscale.kind` = 'row'",
        "orderByKey": "metrics.`place`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": [*columns, "duration"],  # MLflow shows it always; of a row it is not the method's time
        "columnWidths": {},
    }

    return {
        "mlflow.experimentKind": "custom_model_development",  # for MLflow's pages without a choice of workflow
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view),
    }


def note(experiment_id: str, description: str) -> str:
    """Return the description that stands above every page of the experiment."""
    return " · ".join(part for part in (f"[Methods compared]({route(experiment_id)})", description) if part)
