"""Published tables: files of them, as printed, and the values that follow from their entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtlscale.config import UserError, nearest
from mtlscale.metrics import FIGURES, higher_is_better

Score = Literal["average", "delta_i", "taskwise", "total_error"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedMethod(_Model):
    """The entries of a method in a published table."""

    name: str  # as printed
    values: tuple[float, ...] = ()  # by column; empty in a table that prints a figure alone
    score: float | None = None  # the table's figure, as printed
    printed_average: float | None = None  # need not be the mean of the values
    deviation: float | None = None  # of the figure, over seeds
    safeness: float | None = None  # η in percent
    figures: dict[str, float] = Field(default_factory=dict)  # of an `evaluation`, such as pgd_accuracy
    parameters: float | None = None  # in millions
    speed: float | None = None  # over that of the baseline
    points: dict[str, int] = Field(default_factory=dict)  # branch points that were found, by task


class PublishedTable(_Model):
    """The published table of one data set.

    Attributes:
        columns: The contents of its values, `task.metric`; a table of one metric names `metric` and `tasks` instead, a
            table without values the metric at most.
        entries: The relation of values to the baseline's, which are absolute: by themselves ("absolute"), minus the
            baseline's ("differences"), or gained on them, positive is better ("gains").
        score: The figure that methods are compared by; its unit is `unit` (a fraction or percent).
        mended: Label -> column -> the value that a misprint should have.
    """

    source: str
    dataset: str  # name of the pipeline
    label: str = ""  # of the data set in an experiment with several of one pipeline; "": any
    metric: str = ""
    tasks: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    entries: Literal["absolute", "differences", "gains"] = "absolute"
    baseline: str = "stl"  # label
    score: Score = "average"
    unit: Literal["percent", "fraction"] = "percent"
    mended: dict[str, dict[str, float]] = Field(default_factory=dict)
    methods: dict[str, PublishedMethod]  # by our label
    note: str = ""
    reasons: str = ""  # why ours may differ

    @model_validator(mode="before")
    @classmethod
    def _one_metric(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("tasks") and value.get("metric") and not value.get("columns"):
            return {**value, "columns": [f"{task}.{value['metric']}" for task in value["tasks"]]}
        return value

    @model_validator(mode="after")
    def _complete(self) -> PublishedTable:
        contents = f"{len(self.tasks)} tasks" if self.tasks else f"{len(self.columns)} columns"
        for label, method in self.methods.items():
            if method.values and len(method.values) != len(self.columns):
                raise ValueError(f"{label} has {len(method.values)} values for {contents}")
            if not method.values and method.score is None:
                raise ValueError(f"{label} has neither values nor a score")

        if self.entries != "absolute" and not getattr(self.methods.get(self.baseline), "values", ()):
            raise ValueError(f"entries: {self.entries} need the values of {self.baseline}")

        for column in self.columns:
            higher_is_better(column.partition(".")[2])
        for name in (name for method in self.methods.values() for name in method.figures):
            if name not in FIGURES:
                raise ValueError(f"unknown figure {name!r}; {nearest(name, list(FIGURES))}")

        return self

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """The (task, metric) of each column."""
        return tuple((task, metric) for task, _, metric in (column.partition(".") for column in self.columns))

    def absolute(self, label: str) -> dict[str, dict[str, float]]:
        """Return task -> metric -> value of a method that has values, misprints mended."""
        values = np.array(self.methods[label].values)
        if self.entries != "absolute" and label != self.baseline:
            signs = [1 if higher_is_better(metric) else -1 for _, metric in self.places]
            base = [value for task_values in self.absolute(self.baseline).values() for value in task_values.values()]
            values = np.array(base) + values * (signs if self.entries == "gains" else 1)

        mended_values: dict[str, dict[str, float]] = {}
        for column, (task, metric), value in zip(self.columns, self.places, values, strict=True):
            mended_values.setdefault(task, {})[metric] = self.mended.get(label, {}).get(column, float(value))

        return mended_values

    def value(self, label: str) -> float:
        """Return the figure that the method is compared by; improvements in percent.

        Where the table has values, it is their mean: printed averages need not be that.
        """
        method = self.methods[label]
        if method.values and self.score == "average":
            return float(np.mean(method.values))
        assert method.score is not None
        return 100.0 * method.score if self.unit == "fraction" else method.score


class Published(_Model):
    """The tables of a file; `note` and `reasons` apply to every table that has none of its own.

    A file of one table may leave `tables` out and hold the table itself.
    """

    tables: tuple[PublishedTable, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _shared(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError("a file of published numbers is a mapping with `tables`, or with `source` and `methods`")

        tables = value.get("tables")
        if tables is None:
            return {"tables": [value]}

        common = {key: value[key] for key in ("source", "note", "reasons") if key in value}
        if isinstance(tables, list | tuple):
            tables = [{**common, **table} if isinstance(table, Mapping) else table for table in tables]
        return {**{key: entry for key, entry in value.items() if key not in common}, "tables": tables}

    def of(self, dataset: str, label: str = "") -> tuple[PublishedTable, ...]:
        """Return the tables of a data set, by its pipeline's name and, where tables name one, its label."""
        return tuple(table for table in self.tables if table.dataset == dataset and table.label in ("", label))


def read_published(path: Path) -> Published:
    """Read a file of published tables.

    Raises:
        UserError: The file cannot be read or is no valid file of published tables.
    """
    try:
        return Published.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8"
        raise UserError(f"published: {path} cannot be read ({reason}); mend the experiment's `published`") from None
    except yaml.YAMLError:
        raise UserError(f"published: {path} is not valid YAML") from None
    except UserError as error:
        raise UserError(f"published: {path}: {error}") from None

    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise UserError(f"published: {path}: {f'{location}: ' if location else ''}{problem}") from None
