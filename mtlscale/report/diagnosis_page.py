"""The page of a diagnosis: heat maps of its matrices, and the dendrogram of the groups that follow from one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import Diagnosis, Matrix, write_atomically
from mtlscale.report.charts.colors import GREY
from mtlscale.report.charts.plotly_canvas import grid, label, new_plot
from mtlscale.report.formats.glossary import DIAGNOSIS
from mtlscale.report.formats.pages import drawing, rendered
from mtlscale.report.stats.traces import shortened

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
    about = f"average linkage of {summary.title}, mean of both directions; joined where it is above 0"
    drawn = [("Dendrogram", f"{about}.", dendrogram_plot(diagnosis))]
    ordered_matrices = [summary, *(matrix for matrix in diagnosis.matrices.values() if matrix is not summary)]
    drawn += [(matrix.title, f"{matrix.about}.", heat_plot(diagnosis, matrix, order)) for matrix in ordered_matrices]

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
        drawings=[
            drawing(f"figure-{number}", title, caption, figure, wide=True)
            for number, (title, caption, figure) in enumerate(drawn)
        ],
        provenance={"data": diagnosis.fingerprint, **diagnosis.settings, "seconds": f"{diagnosis.seconds:.1f}"},
        words=DIAGNOSIS,
    )


def two_groups(diagnosis: Diagnosis) -> str:
    """Say which two groups are the best, or that two are no better than one."""
    groups = diagnosis.named(diagnosis.two_groups)
    if len(groups) == 1:
        return "Two groups would be no better than one."
    return f"Two groups at most: {' | '.join(', '.join(group) for group in groups)}."


def heat_plot(diagnosis: Diagnosis, matrix: Matrix, order: Sequence[int]) -> Figure:
    """Draw a matrix with tasks in the order of the dendrogram, so that groups are blocks.

    The diagonal is left out, as the effect of a task on itself would hide the others.
    """
    table = as_table(matrix)
    off_diagonal = np.where(np.eye(len(table), dtype=bool), np.nan, table)[np.ix_(order, order)]
    low, high = bounds(off_diagonal)

    names = [label(shortened(diagnosis.tasks[task], LONGEST)) for task in order]
    figure = new_plot(160 + 26 * max(6, len(names)))
    figure.add_heatmap(
        z=grid(off_diagonal),
        x=names,
        y=names,
        zmin=low,
        zmax=high,
        colorscale="RdBu" if low < 0 else "Blues",
        colorbar={"exponentformat": "power", "thickness": 14},
        xgap=1,
        ygap=1,
        hovertemplate="%{y}, %{x}: %{z:.3g}<extra></extra>",
    )

    figure.update_xaxes(tickangle=-60 if len(names) > 8 else 0, tickmode="array", tickvals=names, showgrid=False)
    figure.update_yaxes(autorange="reversed", tickmode="array", tickvals=names, showgrid=False)
    return figure


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


def dendrogram_plot(diagnosis: Diagnosis) -> Figure:
    """Draw the tasks below each other, joined the further to the right the less alike they are.

    The dotted line is 0: tasks that join left of it are a group.
    """
    from scipy.cluster.hierarchy import dendrogram

    linked, top = _linked(diagnosis)
    tree = dendrogram(linked, no_plot=True)
    figure = new_plot(100 + 22 * max(5, len(diagnosis.tasks)))

    start = top * 1.02  # the first merge would stand at the very edge
    for ys, xs in zip(tree["icoord"], tree["dcoord"], strict=True):
        joined = max(xs) < top
        figure.add_scatter(
            x=[top - x if x > 0 else start for x in xs] if max(xs) > 0 else [start, top, top, start],
            y=ys,
            mode="lines",
            line={"color": JOINED if joined else GREY, "width": 2},
            hovertemplate=f"{top - max(xs):.3g}<extra></extra>",
        )

    names = [label(shortened(diagnosis.tasks[task], LONGEST)) for task in tree["leaves"] or ()]
    title = {"text": "mean similarity between what is joined", "standoff": 6}
    figure.update_xaxes(autorange="reversed", title=title, exponentformat="power")
    ticks = [5 + 10 * position for position in range(len(names))]
    # From top to bottom, as in the heat maps.
    edges = [10 * len(names), 0]
    figure.update_yaxes(tickvals=ticks, ticktext=names, showgrid=False, range=edges)
    figure.add_vline(x=0, line={"color": GREY, "dash": "dot", "width": 1})
    return figure


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
