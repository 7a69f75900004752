"""The study of covariance similarity against improvement: tables and chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report.cells.sheet import Sheet, text_sheet
from mtlscale.report.charts.chart import DOTTED, Axis, Chart, Dots, Level, Line, Mark, Panel
from mtlscale.report.charts.colors import LineStyle, LineStyles
from mtlscale.report.report_section import ReportSection
from mtlscale.report.stats.frames import by_dataset
from mtlscale.report.stats.traces import shortened
from mtlscale.report.studies.similarity import Pair, correlation_rows, mean_score, number, sentence, turned


def similarity_study(
    records: Sequence[RunRecord], pairs_by_method: dict[str, list[Pair]], reference: str, styles: LineStyles
) -> ReportSection:
    """Return the study of gain against covariance similarity."""
    correlations = [
        (method, *row) for method, method_pairs in pairs_by_method.items() for row in correlation_rows(method_pairs)
    ]
    explanation = (
        f"Of a method's covariance similarity with its gain over {reference}, over the pairs. In brackets the 95 % "
        "interval of drawing pairs with replacement; pairs share tasks, so that it is, if anything, too narrow."
    )
    header = ("method", "similarity", "Pearson", "Spearman")
    return ReportSection.of_chart(
        similarity_chart(pairs_by_method, reference, styles),
        [sentence(method, reference, method_pairs) for method, method_pairs in pairs_by_method.items()],
        [
            _score_table(records, pairs_by_method),
            text_sheet("Correlation with the gain", explanation, header, tuple(correlations)),
        ],
    )


def _score_table(records: Sequence[RunRecord], pairs_by_method: dict[str, list[Pair]]) -> Sheet:
    """Return a row for each pair: every method's score, and the similarities of methods that turn embeddings."""
    methods = list(dict.fromkeys(record.method for record in records))
    turning = {
        method: {pair.dataset: pair for pair in method_pairs}
        for method, method_pairs in pairs_by_method.items()
        if turned(method_pairs)
    }

    rows = []
    for dataset, runs in by_dataset(records).items():
        finished = [run for run in runs if run.status == "finished"]
        means = {method: [abs(mean_score(run)) for run in finished if run.method == method] for method in methods}

        if any(dataset in method_pairs for method_pairs in turning.values()):
            similar = [
                number(getattr(method_pairs[dataset], when)) if dataset in method_pairs else "–"
                for method_pairs in turning.values()
                for when in ("before", "after")
            ]
            mean_texts = [f"{np.mean(values):.2f}" if values else "–" for values in means.values()]
            rows.append((dataset, *mean_texts, *similar))

    header = ("pair", *methods, *(f"{method}: {when}" for method in turning for when in ("before", "after")))
    explanation = (
        "Main metric on test, mean over both tasks and the seeds, and the covariance similarity of the tasks' embedded "
        "training samples before and after they are turned."
    )
    return text_sheet("Pairs of tasks", explanation, header, tuple(rows))


def similarity_chart(pairs_by_method: dict[str, list[Pair]], reference: str, styles: LineStyles) -> Chart:
    """Return a panel per method: gain against the score before (rings) and after (dots), a line for each pair."""
    panels = []
    for method, method_pairs in pairs_by_method.items():
        look = LineStyle(styles[method].color)
        before, after, gains = ([getattr(pair, name) for pair in method_pairs] for name in ("before", "after", "gain"))
        names = [pair.dataset for pair in method_pairs]
        hover = "{name}, %s: {x:.3f}, {y:+.3g}"
        moves = turned(method_pairs)

        marks: list[Mark] = [Level(at=0.0, look=DOTTED)]
        if moves:
            x = [end for pair in method_pairs for end in (pair.before, pair.after, None)]
            y = [end for pair in method_pairs for end in (pair.gain, pair.gain, None)]
            marks.append(Line(x=x, y=y, look=look, width=0.7, hover=""))
            marks.append(
                Dots(x=after, y=gains, looks=look, legend="after", names=names, size=5.5, hover=hover % "after")
            )
        labels = [shortened(name, 20) for name in names]
        marks.append(
            Dots(x=before, y=gains, looks=look, legend="before", names=names, labels=labels, size=5.5, hollow=True,
                 hover=hover % "before")
        )  # fmt: skip
        x_axis = Axis(title="covariance similarity of the embeddings")
        panels.append(Panel(marks=marks, title=f"{method} over {reference}, mean of both tasks", x=x_axis))

    return Chart(
        panels=panels,
        title="Covariance similarity and improvement",
        file="similarity",
        columns=2,
        width=5.6 * min(2, len(panels)) + 1.0,
        height=0.8 + 3.6 * -(-len(panels) // 2),
        legend="below",
    )
