"""A run's model in MLflow's own format, which its registry, `mlflow models predict` and `mlflow.pyfunc` take."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.records import Home

if TYPE_CHECKING:
    from mtlscale.exported import Description

_LOADER = "mtlscale.exported.pyfunc"
_NEEDS = ("mtlscale", "torch", "numpy", "pyarrow", "scipy")  # of the versions that a run has noted
_ALSO = ("pandas", "safetensors")


def log_model(client: Any, experiment_id: str, mine: str, home: Home, run_id: str, labels: Mapping[str, str]) -> str:
    """Export a finished run and keep it as a model of MLflow's run `mine`: its URI, `models:/…`.

    Raises `UserError` for a run whose model or data are gone.
    """
    from mlflow import pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    from mtlscale.exported import export, read_description

    with tempfile.TemporaryDirectory() as folder:
        exported = export(home, run_id, Path(folder, "exported"))
        description = read_description(exported)
        name = re.sub(r"[^\w-]+", "-", f"{labels['method']}-{labels['dataset']}")
        made = client.create_logged_model(
            experiment_id,
            name=name,
            source_run_id=mine,
            tags={"mtlscale.run_id": run_id},
            params={**labels, "seed": str(description.run.seed)},
            model_type=description.input.kind,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is a signature, and no input to give as an example
            pyfunc.save_model(
                str(Path(folder, "model")),
                loader_module=_LOADER,
                data_path=str(exported),
                mlflow_model=Model(run_id=mine, model_id=made.model_id),
                signature=signature(description),
                pip_requirements=_requirements(description),
            )
        client.log_model_artifacts(made.model_id, str(Path(folder, "model")))
        client.finalize_logged_model(made.model_id, "READY")
        client.log_outputs(mine, [LoggedModelOutput(made.model_id, step=0)])
    return f"models:/{made.model_id}"


def signature(description: Description) -> Any:
    """The columns that the model reads: features by name, `text`, `image` (bytes), or `input` as lists of numbers; and
    `task` where each task has inputs of its own."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    told, suite = description.input, description.suite
    if told.kind == "vector" and told.features:
        columns = [ColSpec(DataType.double, name) for name in told.features]
    elif told.kind == "tokens" and (told.words is not None or told.tokenizer):
        columns = [ColSpec(DataType.string, "text"), ColSpec(DataType.string, "second", required=False)]
    elif told.kind == "image":
        columns = [ColSpec(DataType.binary, "image")]
    else:
        number = DataType.long if told.kind == "tokens" else DataType.double
        columns = [ColSpec(Array(number), "input")]
    if suite.inputs == "per_task" and len(suite.tasks) > 1:
        columns.append(ColSpec(DataType.string, "task"))
    return ModelSignature(inputs=Schema(columns))


def _requirements(description: Description) -> list[str]:
    """What the model was trained with; builds for an accelerator have the same number."""
    versions = description.run.versions
    pinned = [f"{name}=={versions[name].partition('+')[0]}" for name in _NEEDS if name in versions]
    return [*pinned, *_ALSO]
