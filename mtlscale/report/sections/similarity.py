"""Covariance similarity of tasks against improvement: tasks with similar embeddings may gain from each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import signed
from mtlscale.report.cells.sheet import Sheet, text_sheet
from mtlscale.report.charts.chart import DOTTED, Axis, Chart, Dots, Level, Line, Mark, Panel
from mtlscale.report.charts.colors import LineStyle, LineStyles
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.stats.frames import by_dataset
from mtlscale.report.stats.traces import MOST_METHODS, shortened

KEY = "covariance_similarity"  # of a record's structure: {"before": [T, T], "after": [T, T]}
MOST_ROWS = 45  # of a method: pairs of ten tasks
FEWEST = 4  # pairs of which there is a correlation to speak of
_DRAWS = 2000  # of the bootstrap


@dataclass(frozen=True)
class Pair:
    """Two tasks that form a data set, with a method's similarity scores and its gain over another method.

    Similarity scores are means over seeds. The gain is in units of the main metric with the better sign, the mean over
    both tasks and the seeds that both methods have.
    """

    dataset: str
    before: float
    after: float
    gain: float


@dataclass(frozen=True)
class Correlation:
    """The correlation of a score with the gain; its 95 % interval is from drawing pairs with replacement."""

    value: float
    low: float
    high: float


@section("similarity", order=20, formats=(REPORT, HTML))
def similarity(view: View) -> Iterator[ReportSection]:
    """Yield the study of gain against covariance similarity, where data sets are pairs of aligned tasks."""
    reference = view.reference
    if reference is not None and (pairs_by_method := pairs(view.records, reference)):
        yield similarity_study(view.records, pairs_by_method, reference, view.looks)


def scores(record: RunRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the scores [T, T] before and after, of a run that measured both; NaN where a score is undefined."""
    matrices = record.structure.get(KEY)
    if record.status != "finished" or not isinstance(matrices, dict) or not {"before", "after"} <= matrices.keys():
        return None
    before, after = (np.array(matrices[when], dtype=float) for when in ("before", "after"))
    return before, after


def similarity_rows(records: Sequence[RunRecord]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one data set: method, two tasks, their score before and after, and seeds.

    Methods that leave the embeddings as they are have no rows.
    """
    of_method: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
    names: dict[str, Sequence[str]] = {}
    for record in records:
        if (matrices := scores(record)) is not None and not np.array_equal(*matrices, equal_nan=True):
            of_method.setdefault(record.method, []).append(matrices)
            names[record.method] = record.structure.get("tasks") or list(record.main_metrics)

    for method, tables in of_method.items():
        before, after = (
            np.mean([before_scores for before_scores, _ in tables], axis=0),
            np.mean([after_scores for _, after_scores in tables], axis=0),
        )

        index_pairs = list(itertools.combinations(range(len(before)), 2))
        for i, j in index_pairs[:MOST_ROWS]:
            task_pair = f"{names[method][i]}, {names[method][j]}"
            yield method, task_pair, number(before[i, j]), number(after[i, j]), str(len(tables))
        if len(index_pairs) > MOST_ROWS:
            yield method, f"{len(index_pairs) - MOST_ROWS} more", "–", "–", str(len(tables))


def pairs(records: Sequence[RunRecord], reference: str) -> dict[str, list[Pair]]:
    """Return method -> a pair for every data set of two tasks with one main metric where it measured similarity."""
    pairs_by_method: dict[str, list[Pair]] = {}
    for dataset, runs in by_dataset(records).items():
        finished = {(run.method, run.seed): run for run in runs if run.status == "finished"}
        measured: dict[str, list[tuple[float, float, float]]] = {}
        for (method, seed), run in finished.items():
            tables, reference_run = scores(run), finished.get((reference, seed))
            if tables is None or reference_run is None or len(run.main_metrics) != 2 or method == reference:
                continue
            if math.isfinite(gain := mean_score(run) - mean_score(reference_run)):
                measured.setdefault(method, []).append((float(tables[0][0, 1]), float(tables[1][0, 1]), gain))

        for method, values in measured.items():
            before, after, gain = np.mean(values, axis=0).tolist()
            pairs_by_method.setdefault(method, []).append(Pair(dataset, before, after, gain))

    return {
        method: method_pairs
        for method, method_pairs in list(pairs_by_method.items())[:MOST_METHODS]
        if len(method_pairs) >= FEWEST
    }


def mean_score(record: RunRecord, split: str | None = None) -> float:
    """Return the mean over tasks of the main metric, larger is better; NaN where tasks have different ones.

    Args:
        record: The run.
        split: The split of the scores; None: test where there is one, else validation.
    """
    metric = record.shared_metric
    if metric is None:
        return math.nan
    values = record.metrics.get(split or ("test" if record.metrics.get("test") else "val"), {})
    sign = 1.0 if record.higher_is_better[metric] else -1.0
    return sign * float(np.mean([values.get(task, {}).get(metric, math.nan) for task in record.main_metrics]))


def correlation(kind: str, x: Sequence[float], y: Sequence[float]) -> Correlation | None:
    """Return the "pearson" or "spearman" correlation of two samples with its interval; None where one does not vary."""
    from scipy import stats

    def measure(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the correlation of each row of `a` with that of `b`; Spearman's is Pearson's of ranks."""
        if kind == "spearman":
            a, b = stats.rankdata(a, axis=-1), stats.rankdata(b, axis=-1)
        return np.asarray(stats.pearsonr(a, b, axis=-1).statistic)

    x_values, y_values = np.array(x, dtype=float), np.array(y, dtype=float)
    if np.ptp(x_values) <= 1e-12 or np.ptp(y_values) <= 1e-12 or not np.isfinite([x_values, y_values]).all():
        return None

    drawn = np.random.default_rng(0).integers(len(x_values), size=(_DRAWS, len(x_values)))
    varied = (np.ptp(x_values[drawn], axis=1) > 1e-12) & (np.ptp(y_values[drawn], axis=1) > 1e-12)
    values = measure(x_values[drawn[varied]], y_values[drawn[varied]])

    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    return Correlation(float(measure(x_values, y_values)), low, high)


def turned(pairs: Sequence[Pair]) -> bool:
    """Return whether the method moved any embedding at all."""
    return any(abs(pair.after - pair.before) > 1e-9 for pair in pairs)


def correlation_rows(pairs: Sequence[Pair]) -> Iterator[tuple[str, str, str]]:
    """Yield (score, Pearson's, Spearman's correlation with the gain) of the scores that a method has."""
    gains = [pair.gain for pair in pairs]
    columns = {"before": [pair.before for pair in pairs]}
    if turned(pairs):
        columns |= {"after": [pair.after for pair in pairs], "change": [pair.after - pair.before for pair in pairs]}
    for score_name, values in columns.items():
        yield (
            score_name,
            format_correlation(correlation("pearson", values, gains)),
            format_correlation(correlation("spearman", values, gains)),
        )


def format_correlation(correlation: Correlation | None) -> str:
    """Format a correlation with its interval."""
    if correlation is None:
        return "–"
    value, low, high = (signed(quantity, "+.2f") for quantity in (correlation.value, correlation.low, correlation.high))
    return f"{value} ({low} to {high})"


def sentence(method: str, reference: str, pairs: Sequence[Pair]) -> str:
    """Return the conclusion for one method."""
    better, mean = sum(pair.gain > 0 for pair in pairs), float(np.mean([pair.gain for pair in pairs]))
    parts = [
        f"{method} is better than {reference} on {better} of {len(pairs)} pairs, by {signed(mean, '+.2f')} on average"
    ]

    if turned(pairs):
        parts.append(f"the similarity grows on {sum(pair.after > pair.before for pair in pairs)} of them")

    pearson = correlation("pearson", [pair.before for pair in pairs], [pair.gain for pair in pairs])
    if pearson is not None and (pearson.low > 0 or pearson.high < 0):
        direction = "larger" if pearson.value > 0 else "smaller"
        parts.append(
            f"the gain is {direction} where the similarity before is larger (Pearson's r {format_correlation(pearson)})"
        )
    elif pearson is not None:
        parts.append(
            f"the similarity before does not tell where the gain is large (Pearson's r {format_correlation(pearson)})"
        )
    return f"{'; '.join(parts)}."


def number(value: float) -> str:
    """Format a score in three decimals; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.3f}"


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
