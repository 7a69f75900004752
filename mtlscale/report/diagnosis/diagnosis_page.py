"""The page of a diagnosis: heat maps of its matrices, and the dendrogram of the groups that follow from one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import Diagnosis, Matrix, write_atomically
from mtlscale.report.charts.chart import DOTTED, Axis, Chart, Level, Line, Mark, Panel
from mtlscale.report.charts.colors import GREY, LineStyle
from mtlscale.report.charts.heatmaps import square_map
from mtlscale.report.formats.glossary import DIAGNOSIS
from mtlscale.report.formats.pages import drawings, rendered
from mtlscale.report.stats.traces import shortened

JOINED = "#4c78a8"
LONGEST = 26  # letters of a task's name
EXTREME = 99  # percentile of the pairs that has the darkest colour, as have all beyond it


def write_diagnosis(diagnosis: Diagnosis, folder: Path, trial: str | None = None) -> dict[str, Path]:
    """Write `diagnosis.json`, `diagnosis.html` and, where groups are to be tried, the experiment `groups.yaml`."""
    files = {name: folder / f"diagnosis.{name}" for name in ("json", "html")}
    write_atomically(files["json"], diagnosis.to_json().encode())
    write_atomically(files["html"], page(diagnosis, trial).encode())

    (folder / "groups.yaml").unlink(missing_ok=True)  # of an earlier diagnosis
    if trial is not None:
        files["trial"] = folder / "groups.yaml"
        write_atomically(files["trial"], trial.encode())

    return files


def page(diagnosis: Diagnosis, trial: str | None = None) -> str:
    """Return the HTML of the page, which needs no other file."""
    order, summary = leaves(diagnosis), diagnosis.matrices[diagnosis.summary]
    ordered_matrices = [summary, *(matrix for matrix in diagnosis.matrices.values() if matrix is not summary)]
    charts = [dendrogram_chart(diagnosis), *(heat_chart(diagnosis, matrix, order) for matrix in ordered_matrices)]

    return rendered(
        "diagnosis.html",
        title=f"{diagnosis.dataset}: which tasks belong together · mtlscale",
        dataset=diagnosis.dataset,
        chips=[f"{len(diagnosis.tasks)} tasks", f"encoder {diagnosis.settings.get('encoder', {}).get('name', '')}"],
        sentence=diagnosis.sentence,
        verdict=diagnosis.verdict,
        groups=[", ".join(group) for group in diagnosis.named(diagnosis.groups)],
        two_groups=two_groups(diagnosis),
        trial=trial,
        left_out=diagnosis.left_out,
        drawings=drawings("figure", charts, wide=True),
        provenance={"data": diagnosis.fingerprint, **diagnosis.settings, "seconds": f"{diagnosis.seconds:.1f}"},
        words=DIAGNOSIS,
    )


def two_groups(diagnosis: Diagnosis) -> str:
    """Say which two groups are the best, or that two are no better than one."""
    groups = diagnosis.named(diagnosis.two_groups)
    if len(groups) == 1:
        return "Two groups would be no better than one."
    return f"Two groups at most: {' | '.join(', '.join(group) for group in groups)}."


def heat_chart(diagnosis: Diagnosis, matrix: Matrix, order: Sequence[int]) -> Chart:
    """Return a matrix with tasks in the order of the dendrogram, so that groups are blocks."""
    table = as_table(matrix)
    low, high = bounds(np.where(np.eye(len(table), dtype=bool), np.nan, table))
    tasks, values = [diagnosis.tasks[task] for task in order], table[np.ix_(order, order)]
    panel = square_map(values, tasks, LONGEST, low=low, high=high, colors="redblue" if low < 0 else "blues")
    height = 2.0 + 0.34 * max(6, len(tasks))
    return Chart(panels=[panel], title=matrix.title, note=f"{matrix.about}.", height=height)


def leaves(diagnosis: Diagnosis) -> list[int]:
    """Return the tasks in the order of the dendrogram."""
    from scipy.cluster.hierarchy import dendrogram

    return list(dendrogram(_linked(diagnosis)[0], no_plot=True)["leaves"] or ())


def _linked(diagnosis: Diagnosis) -> tuple[NDArray[np.float64], float]:
    """Return scipy's linkage of the distances from the largest similarity, and that similarity."""
    top = max(0.0, *(merge[2] for merge in diagnosis.merges))
    linked = np.array([(a, b, max(0.0, top - value), size) for a, b, value, size in diagnosis.merges], dtype=float)
    linked[:, 2] = np.maximum.accumulate(linked[:, 2])
    return linked, top


def dendrogram_chart(diagnosis: Diagnosis) -> Chart:
    """Return the tasks below each other, joined the further to the right the less alike they are.

    The dotted line is 0: tasks that join left of it are a group.
    """
    from scipy.cluster.hierarchy import dendrogram

    linked, top = _linked(diagnosis)
    tree = dendrogram(linked, no_plot=True)
    summary = diagnosis.matrices[diagnosis.summary]

    marks: list[Mark] = []
    start = top * 1.02  # the first merge would stand at the very edge
    for ys, xs in zip(tree["icoord"], tree["dcoord"], strict=True):
        look = LineStyle(JOINED if max(xs) < top else GREY)
        x = [top - x if x > 0 else start for x in xs] if max(xs) > 0 else [start, top, top, start]
        marks.append(Line(x=x, y=ys, look=look, hover=f"{top - max(xs):.3g}"))
    marks.append(Level(at=0.0, axis="x", look=DOTTED))

    names = [shortened(diagnosis.tasks[task], LONGEST) for task in tree["leaves"] or ()]
    ticks = {5 + 10 * position: name for position, name in enumerate(names)}
    x_axis = Axis(title="mean similarity between what is joined", reverse=True)
    # From top to bottom, as in the heat maps.
    y_axis = Axis(ticks=ticks, grid=False, limits=(0.0, 10.0 * len(names)), reverse=True)
    return Chart(
        panels=[Panel(marks=marks, x=x_axis, y=y_axis)],
        title="Dendrogram",
        note=f"average linkage of {summary.title}, mean of both directions; joined where it is above 0.",
        height=1.3 + 0.29 * max(5, len(names)),
    )


def as_table(matrix: Matrix) -> NDArray[np.float64]:
    """Return the values of a matrix as an array [T, T]."""
    return np.array(matrix.values, dtype=float)


def bounds(off: NDArray[np.float64]) -> tuple[float, float]:
    """Return the smallest and the largest value of the colour scale.

    With negative numbers it lies about 0 and leaves out the few largest; else it is the range of the finite numbers.
    """
    finite = off[np.isfinite(off)]
    if not len(finite):
        return 0.0, 1.0
    if finite.min() < 0:
        size = float(np.percentile(np.abs(finite), EXTREME)) or float(np.abs(finite).max())
        return -size, size
    return float(finite.min()), float(finite.max())
