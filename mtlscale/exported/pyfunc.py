"""An exported model as MLflow's `python_function`: `loader_module="mtlscale.exported.pyfunc"` on the folder.

MLflow is not imported here; it calls `_load_pyfunc`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mtlscale.exported.model import ExportedModel, load_model
from mtlscale.exported.predictions import Prediction
from mtlscale.spec import UserError

if TYPE_CHECKING:
    import pandas as pd

TRUST = "MTLSCALE_TRUST_PLUGINS"  # environment variable: 1 runs the code that a folder brings along
TASK = "task"  # the column that says which task a row is of


class PythonFunction:
    """Data frames in, data frames out, a row of one for each row of the other.

    With a column `task`, where each task has inputs of its own, a row is predicted by that task alone and the columns
    are `label` and `score`; without one by all tasks, and the columns are `<task>` and, of classes, `<task>.score`. A
    score is the probability of the label.
    """

    def __init__(self, model: ExportedModel) -> None:
        self.model = model

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """params: `task`, the name of the one that is meant."""
        import pandas as pd

        inputs = model_input if isinstance(model_input, pd.DataFrame) else pd.DataFrame(model_input)
        if TASK in inputs.columns and self.model.suite.inputs == "per_task" and TASK not in self._features():
            return self._by_row(inputs)
        wanted = (params or {}).get("task")
        found = self.model.predict(inputs, list(self.model.tasks) if wanted is None else str(wanted))
        columns: dict[str, Any] = {}
        for name, prediction in found.items():
            columns |= _columns(prediction, name, f"{name}.score")
        return pd.DataFrame(columns, index=inputs.index)

    def _by_row(self, inputs: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        if inputs[TASK].isna().any():
            raise UserError(f"a row has no {TASK}; name the one it is of")
        parts = []
        for name, rows in inputs.groupby(TASK, sort=False):
            found = self.model.predict(rows.drop(columns=TASK), str(name))[str(name)]
            parts.append(pd.DataFrame(_columns(found, "label", "score"), index=rows.index))
        return pd.concat(parts).loc[inputs.index]

    def _features(self) -> list[str]:
        return self.model.description.input.features


def _columns(prediction: Prediction, label: str, score: str) -> dict[str, Any]:
    """The labels, of maps and of many to a sample nested lists; and the probabilities of those that are classes."""
    labels = prediction.labels if prediction.labels.ndim == 1 else list(prediction.labels.tolist())
    sure = prediction.confidence
    return {label: labels} | ({} if sure is None else {score: sure})


def _load_pyfunc(path: str) -> PythonFunction:
    return PythonFunction(load_model(path, trust_plugins=os.environ.get(TRUST) == "1"))
