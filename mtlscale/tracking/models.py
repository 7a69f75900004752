"""Models of runs in MLflow's own format, for its registry, `mlflow models predict` and `mlflow.pyfunc`."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.records import Home

if TYPE_CHECKING:
    from mtlscale.inference import Description

_LOADER = "mtlscale.inference.pyfunc"
_NEEDS = ("mtlscale", "torch", "numpy", "pyarrow", "scipy")  # pinned to the versions that the run has noted
_ALSO = ("pandas", "safetensors")


def log_model(client: Any, experiment_id: str, mine: str, home: Home, run_id: str, labels: Mapping[str, str]) -> str:
    """Export a finished run, log it as a model of MLflow's run `mine`, and return the model's URI, `models:/…`.

    Raises:
        UserError: The run's model or data are gone.
    """
    from mlflow import pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    from mtlscale.inference import export, read_description

    with tempfile.TemporaryDirectory() as folder:
        exported = export(home, run_id, Path(folder, "exported"))
        description = read_description(exported)
        name = re.sub(r"[^\w-]+", "-", f"{labels['method']}-{labels['dataset']}")

        logged = client.create_logged_model(
            experiment_id,
            name=name,
            source_run_id=mine,
            tags={"mtlscale.run_id": run_id},
            params={**labels, "seed": str(description.run.seed)},
            model_type=description.input.kind,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow misses an input example; the signature replaces it
            pyfunc.save_model(
                str(Path(folder, "model")),
                loader_module=_LOADER,
                data_path=str(exported),
                mlflow_model=Model(run_id=mine, model_id=logged.model_id),
                signature=signature(description),
                pip_requirements=_requirements(description),
            )

        client.log_model_artifacts(logged.model_id, str(Path(folder, "model")))
        client.finalize_logged_model(logged.model_id, "READY")
        client.log_outputs(mine, [LoggedModelOutput(logged.model_id, step=0)])
    return f"models:/{logged.model_id}"


def signature(description: Description) -> Any:
    """Return the columns that the model reads.

    They are features by name, `text`, `image` (bytes), or `input` as lists of numbers; and `task` if each task has
    inputs of its own.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    model_input, suite = description.input, description.suite
    if model_input.kind == "vector" and model_input.features:
        columns = [ColSpec(DataType.double, name) for name in model_input.features]
    elif model_input.kind == "tokens" and (model_input.words is not None or model_input.tokenizer):
        columns = [ColSpec(DataType.string, "text"), ColSpec(DataType.string, "second", required=False)]
    elif model_input.kind == "image":
        columns = [ColSpec(DataType.binary, "image")]
    else:
        number = DataType.long if model_input.kind == "tokens" else DataType.double
        columns = [ColSpec(Array(number), "input")]

    if suite.inputs == "per_task" and len(suite.tasks) > 1:
        columns.append(ColSpec(DataType.string, "task"))
    return ModelSignature(inputs=Schema(columns))


def _requirements(description: Description) -> list[str]:
    """Pin the packages that the model was trained with; builds for an accelerator share the version number."""
    versions = description.run.versions
    pinned = [f"{name}=={versions[name].partition('+')[0]}" for name in _NEEDS if name in versions]
    return [*pinned, *_ALSO]
