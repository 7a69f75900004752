"""Published numbers beside ours: which methods of a leaderboard a published table has, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.metrics import FIGURES, higher_is_better, relative_gain
from mtlscale.report import statistics
from mtlscale.report.markdown import markdown_cell
from mtlscale.report.published import PublishedTable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtlscale.report.table import Table

FAR = 1.5  # points of difference that want a reason
_COMPLEMENT = {"pixel_error": "pixel_accuracy", "pixel_accuracy": "pixel_error"}  # to 100
_FIGURES = {
    "average": "mean",
    "delta_i": "Δ_I %",
    "taskwise": "mean improvement %",
    "total_error": "total error %",
}


@dataclass(frozen=True)
class Comparison:
    """A published table and the methods of a leaderboard that are in it, in the order of the leaderboard."""

    published: PublishedTable
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # of texts, below the header; the first two columns are names
    far: tuple[str, ...]  # labels of methods that are more than FAR from the published figure
    opposite: tuple[str, ...] = ()  # sentences: methods on the other side of the baseline than published

    def to_markdown(self) -> str:
        lines = [f"### Beside {markdown_cell(self.published.source)}", ""]
        lines += ["| " + " | ".join(self.header) + " |", "| --- | --- |" + " ---: |" * (len(self.header) - 2)]
        lines += ["| " + " | ".join(markdown_cell(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", f"<sub>{markdown_cell(self.legend())}</sub>", ""])

    def to_rich(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from mtlscale.report.grid import Field, Grid

        far = ["bold" if row[0] in self.far else "" for row in self.rows]
        fields = [
            Field(header=header, texts=[row[place] for row in self.rows], right=place > 1, styles=far)
            for place, header in enumerate(self.header)
        ]
        grid = Grid(names=fields[:1], fields=fields[1:], title=f"beside {self.published.source}")
        return Group(grid, Text(self.legend() + "\n", style="dim"))

    def legend(self) -> str:
        """What the columns are, who changed sides, and the reasons offered where a difference is large."""
        table = self.published
        parts = [
            _what(table),
            table.note,
            *self.opposite,
            f"(!) marks differences of more than {FAR:g} points: {', '.join(self.far)}." if self.far else "",
            f"Reasons: {table.reasons}" if self.far and table.reasons else "",
        ]
        return " ".join(part.strip() for part in parts if part)


def _what(table: PublishedTable) -> str:
    if table.score == "average" and table.columns:
        return f"Published is the mean of the column over the {len(table.tasks or table.columns)} tasks."
    if table.score == "delta_i":
        return f"Δ_I of both over the published columns: {', '.join(table.columns)}."
    return f"Published is the printed {_FIGURES[table.score].removesuffix(' %')}."


def compare(table: Table, published: PublishedTable) -> Comparison | None:
    """What the published table says about this leaderboard; None where tasks, metrics or methods are others."""
    ours = _ours(table, published)
    labels = [label for label in table.rows.index[table.rows["finished"] > 0] if label in published.methods]
    if ours is None or not labels:
        return None
    by_task = published.score == "average" and bool(published.columns)
    counted = any(published.methods[label].parameters is not None for label in labels)
    figure = "" if by_task else f" {_FIGURES[published.score]}"
    header: tuple[str, ...] = ("method", "published as", f"ours{figure}", f"published{figure}")
    header += ("printed avg", "difference", "largest on a task") if by_task else ("difference",)
    header += ("ours, M parameters", "published") if counted else ()
    measured = [
        n for n in FIGURES if n in table.rows and any(n in published.methods[label].figures for label in labels)
    ]
    header += tuple(title for name in measured for title in (f"ours, {FIGURES[name].header}", "published"))
    rows, far = [], []
    for label in labels:
        method, found = published.methods[label], published.figure(label)
        mean, width = ours.loc[label]
        difference = mean - found
        if abs(difference) > FAR:
            far.append(str(label))
        row = [str(label), method.name, _text(mean, width)]
        row.append(_text(found, method.deviation))
        if by_task:
            row.append(_text(method.printed_average))
        row.append("–" if np.isnan(difference) else f"{difference:+.2f}{' (!)' if abs(difference) > FAR else ''}")
        if by_task:
            gaps = table.rows.loc[label, list(published.columns)].to_numpy(float) - np.array(method.values)
            most = int(np.abs(gaps).argmax())
            row.append(f"{gaps[most]:+.2f} {published.places[most][0]}")
        if counted:
            row.append(f"{table.rows.loc[label, 'parameters'] / 1e6:.2f}")
            row.append(_text(method.parameters))
        for name in measured:
            row += [_text(table.rows.loc[label, name]), _text(method.figures.get(name))]
        rows.append(tuple(row))
    opposite = _opposite(ours["mean"], published, labels, table.baseline)
    return Comparison(published, header, tuple(rows), tuple(far), opposite)


def _text(value: float | None, width: float | None = None) -> str:
    if value is None or np.isnan(value):
        return "–"
    return f"{value:.2f}" if width is None or np.isnan(width) else f"{value:.2f} ± {width:.2f}"


def _ours(table: Table, published: PublishedTable) -> pd.DataFrame | None:
    """The published table's figure for every method of ours: columns mean and width; None where it has none.

    Figures are computed of the published columns, whatever else the leaderboard counts.
    """
    if published.tasks and set(published.tasks) != set(table.tasks):
        return None
    runs = table.runs
    if published.score in ("average", "total_error"):
        if set(table.main_metrics.values()) != {published.metric}:
            return None
        score = runs["average"] * (len(table.tasks) if published.score == "total_error" else 1)
        return _over_seeds(table, score)
    if published.baseline != table.baseline:
        return None
    if published.score == "taskwise":
        if set(table.main_metrics.values()) != {published.metric}:
            return None
        columns = {(task, published.metric): runs[table.main_column(task)] for task in table.tasks}
        if published.metric.endswith("error"):  # relative to accuracy
            columns = {(task, "accuracy"): 100.0 - values for (task, _), values in columns.items()}
    else:
        columns = {}
        for task, metric in published.places:
            other = _COMPLEMENT.get(metric, "")
            if f"{task}.{metric}" in runs:
                columns[task, metric] = runs[f"{task}.{metric}"]
            elif f"{task}.{other}" in runs:
                columns[task, metric] = 100.0 - runs[f"{task}.{other}"]
            else:
                return None
    values = pd.DataFrame(columns)
    is_base = runs["method"] == table.baseline
    base = values[is_base].set_index(runs["seed"][is_base])
    references = base.reindex(runs["seed"]).fillna(base.mean()).set_axis(values.index)
    signs = np.array([1.0 if higher_is_better(metric) else -1.0 for _, metric in columns])
    gains: pd.DataFrame = relative_gain(values, references.where(references != 0), signs)
    tasks = [task for task, _ in columns]
    shares = [1.0 / (tasks.count(task) * len(set(tasks))) for task in tasks]  # of each metric within its task
    return _over_seeds(table, gains.mul(shares).sum(axis=1, skipna=False))


def _over_seeds(table: Table, score: pd.Series[float]) -> pd.DataFrame:
    grouped = score.groupby(table.runs["method"], sort=False)
    width = statistics.half_width(grouped.std(), grouped.count())
    return pd.DataFrame({"mean": grouped.mean(), "width": width})


def _opposite(
    ours: pd.Series[float], published: PublishedTable, labels: list[str], baseline: str | None
) -> tuple[str, ...]:
    """A sentence for every method that is better than the baseline on one side and worse on the other."""
    if baseline not in published.methods or baseline not in ours.index:
        return ()
    up = published.score in ("delta_i", "taskwise") or higher_is_better(published.metric)
    sentences = []
    for label in labels:
        here = (ours[label] - ours[baseline]) * (1 if up else -1)
        there = (published.figure(label) - published.figure(baseline)) * (1 if up else -1)
        if here * there < 0:
            words = [f"{abs(gain):.2f} {'better' if gain > 0 else 'worse'}" for gain in (here, there)]
            sentences.append(f"{label} is {words[0]} than {baseline} here and {words[1]} in {published.source}.")
    return tuple(sentences)
