"""Published numbers beside ours: which methods of a leaderboard a published table has, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.metrics import FIGURES, higher_is_better, relative_gain
from mtlscale.report.cells.number_format import EMPTY, with_width
from mtlscale.report.cells.sheet import Column, Sheet, text_column
from mtlscale.report.columns.frame import of_same_seed
from mtlscale.report.report_section import HTML, MARKDOWN, REPORT, WIDE, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.stats import statistics
from mtlscale.report.tables.published import PublishedTable
from mtlscale.report.tables.table import Table

FAR = 1.5  # difference in points above which a reason is due
_COMPLEMENT = {"pixel_error": "pixel_accuracy", "pixel_accuracy": "pixel_error"}  # to 100
_SCORE_NAMES = {
    "average": "mean",
    "delta_i": "Δ_I %",
    "taskwise": "mean improvement %",
    "total_error": "total error %",
}


@section("comparisons", order=5, formats=(WIDE, MARKDOWN, REPORT, HTML))
def comparisons(view: View) -> Iterator[ReportSection]:
    """Yield the tables of each data set."""
    for dataset, table in view.tables.items():
        if sheets := [comparison.sheet for comparison in compared(table, view.published.get(dataset, ()))]:
            yield ReportSection(dataset=dataset, tables=sheets)


@dataclass(frozen=True)
class Comparison:
    """Comparison of a published table with the leaderboard's methods that it has, in the leaderboard's order."""

    published: PublishedTable
    columns: tuple[Column, ...]
    far: tuple[str, ...]  # labels of methods that are more than FAR from the published figure
    opposite: tuple[str, ...] = ()  # sentences on methods that lie on the other side of the baseline than published

    @property
    def sheet(self) -> Sheet:
        return Sheet(title=f"Beside {self.published.source}", columns=self.columns, legend=self.legend())

    def legend(self) -> str:
        """Return the legend: the columns, methods that changed sides, and reasons for large differences."""
        table = self.published
        parts = [
            _score_text(table),
            table.note,
            *self.opposite,
            f"(!) marks differences of more than {FAR:g} points: {', '.join(self.far)}." if self.far else "",
            f"Reasons: {table.reasons}" if self.far and table.reasons else "",
        ]
        return " ".join(part.strip() for part in parts if part)


def _score_text(table: PublishedTable) -> str:
    if table.score == "average" and table.columns:
        return f"Published is the mean of the column over the {len(table.tasks or table.columns)} tasks."
    if table.score == "delta_i":
        return f"Δ_I of both over the published columns: {', '.join(table.columns)}."
    return f"Published is the printed {_SCORE_NAMES[table.score].removesuffix(' %')}."


def compared(table: Table, published: Iterable[PublishedTable]) -> list[Comparison]:
    """Return the comparisons of a leaderboard with those of some published tables that it can be compared with."""
    comparisons = (compare(table, paper) for paper in published)
    return [comparison for comparison in comparisons if comparison is not None]


def compare(table: Table, published: PublishedTable) -> Comparison | None:
    """Compare a leaderboard with a published table; return None where tasks, metrics or methods differ."""
    our_scores = _ours(table, published)
    labels = [label for label in table.rows.index[table.rows["finished"] > 0] if label in published.methods]
    if our_scores is None or not labels:
        return None

    methods = [published.methods[label] for label in labels]
    scores = [published.value(label) for label in labels]
    ours, rows = our_scores.loc[labels], table.rows.loc[labels]
    differences = [mean - score for mean, score in zip(ours["mean"], scores, strict=True)]

    by_task = published.score == "average" and bool(published.columns)
    figure = "" if by_task else f" {_SCORE_NAMES[published.score]}"
    columns = [
        ("method", list(map(str, labels))),
        ("published as", [method.name for method in methods]),
        (f"ours{figure}", list(map(with_width, ours["mean"], ours["width"]))),
        (f"published{figure}", [with_width(score, m.deviation) for score, m in zip(scores, methods, strict=True)]),
    ]

    if by_task:
        columns.append(("printed avg", [with_width(method.printed_average) for method in methods]))
    marks = ["far" if abs(difference) > FAR else "" for difference in differences]
    texts = [EMPTY if np.isnan(difference) else f"{difference:+.2f}" for difference in differences]
    columns.append(("difference", [f"{text} (!)" if mark else text for text, mark in zip(texts, marks, strict=True)]))
    if by_task:
        gaps = rows[list(published.columns)].to_numpy(float) - np.array([method.values for method in methods])
        widest = [(gap[place], published.places[place][0]) for gap in gaps for place in [int(np.abs(gap).argmax())]]
        columns.append(("largest on a task", [f"{size:+.2f} {task}" for size, task in widest]))

    if any(method.parameters is not None for method in methods):
        columns.append(("ours, M parameters", [f"{count / 1e6:.2f}" for count in rows["parameters"]]))
        columns.append(("published", [with_width(method.parameters) for method in methods]))
    for name, measure in FIGURES.items():
        if name in rows and any(name in method.figures for method in methods):
            columns.append((f"ours, {measure.header}", list(map(with_width, rows[name]))))
            columns.append(("published", [with_width(method.figures.get(name)) for method in methods]))

    return Comparison(
        published,
        tuple(text_column(header, texts, marks, right=place > 1) for place, (header, texts) in enumerate(columns)),
        tuple(str(label) for label, mark in zip(labels, marks, strict=True) if mark),
        _opposite(our_scores["mean"], published, labels, table.baseline),
    )


def _ours(table: Table, published: PublishedTable) -> pd.DataFrame | None:
    """Compute the published columns' figure for our methods, mean and width; None if it cannot be computed."""
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
            complement = _COMPLEMENT.get(metric, "")
            if f"{task}.{metric}" in runs:
                columns[task, metric] = runs[f"{task}.{metric}"]
            elif f"{task}.{complement}" in runs:
                columns[task, metric] = 100.0 - runs[f"{task}.{complement}"]
            else:
                return None

    values = pd.DataFrame(columns)
    references = of_same_seed(values, runs["seed"], runs["method"] == table.baseline)
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
    """Describe each method that is better than the baseline on one side and worse on the other."""
    if baseline not in published.methods or baseline not in ours.index:
        return ()

    up = published.score in ("delta_i", "taskwise") or higher_is_better(published.metric)
    sentences = []

    for label in labels:
        our_gain = (ours[label] - ours[baseline]) * (1 if up else -1)
        published_gain = (published.value(label) - published.value(baseline)) * (1 if up else -1)
        if our_gain * published_gain < 0:
            words = [f"{abs(gain):.2f} {'better' if gain > 0 else 'worse'}" for gain in (our_gain, published_gain)]
            sentences.append(f"{label} is {words[0]} than {baseline} here and {words[1]} in {published.source}.")

    return tuple(sentences)
