"""MLflow's `python_function` of an exported folder: `loader_module="mtlscale.inference.pyfunc"`.

MLflow is not imported here; it calls `_load_pyfunc`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mtlscale.config import UserError
from mtlscale.inference.model import ExportedModel, load_model
from mtlscale.inference.predictions import Prediction

if TYPE_CHECKING:
    import pandas as pd

TRUST = "MTLSCALE_TRUST_PLUGINS"  # environment variable: 1 runs the code that a folder brings along
TASK = "task"  # the column that names the task of a row


class PythonFunction:
    """Predictor that returns a data frame with one row for each row of the input.

    With a column `task`, where each task has inputs of its own, a row is predicted by that task alone and the columns
    are `label` and `score`. Without one, all tasks predict every row and the columns are `<task>` and, for classes,
    `<task>.score`. A score is the probability of the label.
    """

    def __init__(self, model: ExportedModel) -> None:
        self.model = model

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predict a data frame; `params` may name the only `task` to predict."""
        import pandas as pd

        inputs = model_input if isinstance(model_input, pd.DataFrame) else pd.DataFrame(model_input)
        if TASK in inputs.columns and self.model.suite.inputs == "per_task" and TASK not in self._features():
            return self._by_row(inputs)

        task_name = (params or {}).get("task")
        predictions = self.model.predict(inputs, list(self.model.tasks) if task_name is None else str(task_name))

        columns: dict[str, Any] = {}
        for name, prediction in predictions.items():
            columns |= _columns(prediction, name, f"{name}.score")
        return pd.DataFrame(columns, index=inputs.index)

    def _by_row(self, inputs: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        if inputs[TASK].isna().any():
            raise UserError(f"a row has no {TASK}; name the one it is of")
        parts = []
        for name, rows in inputs.groupby(TASK, sort=False):
            prediction = self.model.predict(rows.drop(columns=TASK), str(name))[str(name)]
            parts.append(pd.DataFrame(_columns(prediction, "label", "score"), index=rows.index))
        return pd.concat(parts).loc[inputs.index]

    def _features(self) -> list[str]:
        return self.model.description.input.features


def _columns(prediction: Prediction, label: str, score: str) -> dict[str, Any]:
    """Return the labels, as nested lists for maps and multi-label tasks, and the probabilities of class labels."""
    labels = prediction.labels if prediction.labels.ndim == 1 else list(prediction.labels.tolist())
    certainty = prediction.confidence
    return {label: labels} | ({} if certainty is None else {score: certainty})


def _load_pyfunc(path: str) -> PythonFunction:
    return PythonFunction(load_model(path, trust_plugins=os.environ.get(TRUST) == "1"))
