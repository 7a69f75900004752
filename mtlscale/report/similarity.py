"""Whether tasks whose embeddings are alike gain from each other: covariance similarity against improvement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import RunRecord
from mtlscale.report.canvas import new_figure, style
from mtlscale.report.colors import GREY, Looks, looks
from mtlscale.report.frames import by_dataset
from mtlscale.report.layout import signed
from mtlscale.report.plotly_canvas import cell, label, panel_grid
from mtlscale.report.traces import MOST_METHODS, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

KEY = "covariance_similarity"  # of a record's structure: {"before": [T, T], "after": [T, T]}
MOST_ROWS = 45  # of a method: pairs of ten tasks
FEWEST = 4  # pairs of which there is a correlation to speak of
_DRAWS = 2000  # of the bootstrap


@dataclass(frozen=True)
class Pair:
    """Two tasks that are a data set: a method's similarity scores, mean over seeds, and what it gains over another
    method, in units of the main metric with the better sign, mean over both tasks and the seeds that both have."""

    dataset: str
    before: float
    after: float
    gain: float


@dataclass(frozen=True)
class Correlation:
    """Of a score with the gain over pairs; its 95 % interval from drawing pairs with replacement."""

    value: float
    low: float
    high: float


def scores(record: RunRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """[T, T] before and after of a run that measured both, NaN where one is undefined."""
    found = record.structure.get(KEY)
    if record.status != "finished" or not isinstance(found, dict) or not {"before", "after"} <= found.keys():
        return None
    before, after = (np.array(found[when], dtype=float) for when in ("before", "after"))
    return before, after


def similarity_rows(records: Sequence[RunRecord]) -> Iterator[tuple[str, ...]]:
    """Of one data set: method, two tasks, their score before and after, and seeds; methods that turn nothing are left
    out."""
    of_method: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
    names: dict[str, Sequence[str]] = {}
    for record in records:
        if (found := scores(record)) is not None and not np.array_equal(*found, equal_nan=True):
            of_method.setdefault(record.method, []).append(found)
            names[record.method] = record.structure.get("tasks") or list(record.main_metrics)
    for method, tables in of_method.items():
        before, after = np.mean([one for one, _ in tables], axis=0), np.mean([other for _, other in tables], axis=0)
        places = list(itertools.combinations(range(len(before)), 2))
        for i, j in places[:MOST_ROWS]:
            both = f"{names[method][i]}, {names[method][j]}"
            yield method, both, number(before[i, j]), number(after[i, j]), str(len(tables))
        if len(places) > MOST_ROWS:
            yield method, f"{len(places) - MOST_ROWS} more", "–", "–", str(len(tables))


def pairs(records: Sequence[RunRecord], reference: str) -> dict[str, list[Pair]]:
    """Method -> a pair for every data set of two tasks with one main metric on which it measured their similarity."""
    found: dict[str, list[Pair]] = {}
    for dataset, runs in by_dataset(records).items():
        done = {(run.method, run.seed): run for run in runs if run.status == "finished"}
        measured: dict[str, list[tuple[float, float, float]]] = {}
        for (method, seed), run in done.items():
            tables, other = scores(run), done.get((reference, seed))
            if tables is None or other is None or len(run.main_metrics) != 2 or method == reference:
                continue
            if math.isfinite(gain := mean_score(run) - mean_score(other)):
                measured.setdefault(method, []).append((float(tables[0][0, 1]), float(tables[1][0, 1]), gain))
        for method, values in measured.items():
            before, after, gain = np.mean(values, axis=0).tolist()
            found.setdefault(method, []).append(Pair(dataset, before, after, gain))
    return {method: of for method, of in list(found.items())[:MOST_METHODS] if len(of) >= FEWEST}


def mean_score(record: RunRecord, split: str | None = None) -> float:
    """The mean over tasks of the main metric, on test where there is one, larger is better; NaN where tasks have
    different ones."""
    metric = record.shared_metric
    if metric is None:
        return math.nan
    values = record.metrics.get(split or ("test" if record.metrics.get("test") else "val"), {})
    sign = 1.0 if record.higher_is_better[metric] else -1.0
    return sign * float(np.mean([values.get(task, {}).get(metric, math.nan) for task in record.main_metrics]))


def correlation(kind: str, x: Sequence[float], y: Sequence[float]) -> Correlation | None:
    """kind: "pearson" or "spearman". None where one side does not vary."""
    from scipy import stats

    def measure(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the correlation of each row of `a` with that of `b`; Spearman's is Pearson's of ranks."""
        if kind == "spearman":
            a, b = stats.rankdata(a, axis=-1), stats.rankdata(b, axis=-1)
        return np.asarray(stats.pearsonr(a, b, axis=-1).statistic)

    left, right = np.array(x, dtype=float), np.array(y, dtype=float)
    if np.ptp(left) <= 1e-12 or np.ptp(right) <= 1e-12 or not np.isfinite([left, right]).all():
        return None
    drawn = np.random.default_rng(0).integers(len(left), size=(_DRAWS, len(left)))
    varied = (np.ptp(left[drawn], axis=1) > 1e-12) & (np.ptp(right[drawn], axis=1) > 1e-12)
    values = measure(left[drawn[varied]], right[drawn[varied]])
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    return Correlation(float(measure(left, right)), low, high)


def turned(of: Sequence[Pair]) -> bool:
    """Whether the method moved any embedding at all."""
    return any(abs(pair.after - pair.before) > 1e-9 for pair in of)


def correlation_rows(of: Sequence[Pair]) -> Iterator[tuple[str, str, str]]:
    """What, Pearson's and Spearman's with the gain, of the scores that a method has."""
    gains = [pair.gain for pair in of]
    columns = {"before": [pair.before for pair in of]}
    if turned(of):
        columns |= {"after": [pair.after for pair in of], "change": [pair.after - pair.before for pair in of]}
    for what, values in columns.items():
        yield what, told(correlation("pearson", values, gains)), told(correlation("spearman", values, gains))


def told(of: Correlation | None) -> str:
    if of is None:
        return "–"
    value, low, high = (signed(one, "+.2f") for one in (of.value, of.low, of.high))
    return f"{value} ({low} to {high})"


def sentence(method: str, reference: str, of: Sequence[Pair]) -> str:
    """What came out for one method."""
    better, mean = sum(pair.gain > 0 for pair in of), float(np.mean([pair.gain for pair in of]))
    parts = [
        f"{method} is better than {reference} on {better} of {len(of)} pairs, by {signed(mean, '+.2f')} on average"
    ]
    if turned(of):
        parts.append(f"the similarity grows on {sum(pair.after > pair.before for pair in of)} of them")
    found = correlation("pearson", [pair.before for pair in of], [pair.gain for pair in of])
    if found is not None and (found.low > 0 or found.high < 0):
        more = "larger" if found.value > 0 else "smaller"
        parts.append(f"the gain is {more} where the similarity before is larger (Pearson's r {told(found)})")
    elif found is not None:
        parts.append(f"the similarity before does not tell where the gain is large (Pearson's r {told(found)})")
    return f"{'; '.join(parts)}."


def number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def similarity_figure(found: dict[str, list[Pair]], reference: str, shown: Looks | None = None) -> Drawing:
    """A panel for each method: its gain against the score before (rings) and after (dots), a line for each pair."""
    shown = shown or looks(list(found))
    with style():
        figure = new_figure(7.5, 0.6 + 3.4 * len(found))
        panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
        for panel, (method, of) in zip(panels, found.items(), strict=True):
            shade = shown[method].color
            before, after, gains = ([getattr(pair, what) for pair in of] for what in ("before", "after", "gain"))
            panel.axhline(0.0, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
            if turned(of):
                for x, end, y in zip(before, after, gains, strict=True):
                    panel.plot([x, end], [y, y], color=shade, linewidth=0.8, alpha=0.5, zorder=1)
                panel.scatter(after, gains, s=26, color=shade, label="after", zorder=3)
            panel.scatter(before, gains, s=26, facecolors="white", edgecolors=shade, label="before", zorder=2)
            for pair in of:
                place: Any = (max(pair.before, pair.after), pair.gain)
                panel.annotate(
                    shortened(pair.dataset, 20), place, textcoords="offset points", xytext=(5, 3), fontsize=6.5
                )
            panel.set_title(f"{method} over {reference}, mean of both tasks, against their covariance similarity")
            panel.legend(frameon=False, fontsize=8)
        panels[-1].set_xlabel("covariance similarity of the embeddings")
    return figure


def similarity_plot(found: dict[str, list[Pair]], reference: str, shown: Looks | None = None) -> Figure:
    """The same for the page."""
    titles = [f"{method} over {reference}" for method in found]
    figure = panel_grid(titles, across=2, height=320, over="covariance similarity")
    shown = shown or looks(list(found))
    for place, (method, of) in enumerate(found.items()):
        shade = shown[method].color
        at = cell(place, len(found), 2)
        names, gains = [label(pair.dataset) for pair in of], [pair.gain for pair in of]
        whens = {"before": "circle-open", "after": "circle"} if turned(of) else {"before": "circle-open"}
        for when, symbol in whens.items():
            figure.add_scatter(
                x=[getattr(pair, when) for pair in of],
                y=gains,
                text=names,
                mode="markers",
                marker={"size": 9, "color": shade, "symbol": symbol},
                hovertemplate=f"%{{text}}, {when}: %{{x:.3f}}, %{{y:+.3g}}<extra></extra>",
                **at,
            )
    figure.update_layout(showlegend=False)
    return figure
