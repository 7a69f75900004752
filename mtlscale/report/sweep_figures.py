"""Pictures of a search: budget curves, slices, parallel coordinates and which settings matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.report.curves import GREY, colors
from mtlscale.spec import Dimension

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

FEWEST = 4  # trials from which it is worth asking what mattered


def budget_curves(trials: pd.DataFrame) -> pd.DataFrame:
    """[trials spent, methods]: the best score of the first 1, 2, … trials; NaN beyond a method's last."""
    curves = {
        str(method): group.sort_values("trial")["score"].cummax().ffill().reset_index(drop=True)
        for method, group in trials.groupby("method", sort=False)
    }
    table = pd.DataFrame(curves)
    table.index = pd.RangeIndex(1, len(table) + 1, name="trials")
    return table


def importance(trials: pd.DataFrame, space: dict[str, Dimension]) -> dict[str, float]:
    """Share of each setting in the variance of the score (fANOVA or PED-ANOVA, as Optuna computes it), most important
    first; empty where there are too few finished trials, all are equally good, or Optuna is not installed."""
    done = trials.dropna(subset="score")
    varied = [path for path in space if done[path].map(str).nunique() > 1]
    if len(done) < FEWEST or not varied or done["score"].nunique() < 2:
        return {}
    try:
        import optuna
    except ImportError:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    distributions = {path: _distribution(space[path]) for path in varied}
    for row in done.to_dict("records"):
        values = {path: _value(space[path], row[path]) for path in varied}
        study.add_trial(optuna.create_trial(params=values, distributions=distributions, value=row["score"]))
    return dict(optuna.importance.get_param_importances(study))


def _distribution(dimension: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if dimension.choices is not None:
        return CategoricalDistribution(range(len(dimension.choices)))
    return FloatDistribution(dimension.low, dimension.high, log=dimension.scale == "log")


def _value(dimension: Dimension, value: Any) -> Any:
    return dimension.choices.index(value) if dimension.choices is not None else float(value)


def budget_figure(trials: pd.DataFrame) -> Figure:
    from plotly.graph_objects import Figure

    curves = budget_curves(trials)
    shades = colors(list(curves.columns), None)
    figure = Figure(layout={"template": "none", "height": 380, "margin": _MARGIN, "hovermode": "x unified"})
    for method, shade in shades.items():
        figure.add_scatter(
            x=curves.index.tolist(),
            y=[None if np.isnan(value) else float(value) for value in curves[method]],
            name=method,
            mode="lines",
            line={"color": shade, "width": 2, "shape": "hv"},
        )
    figure.update_xaxes(title="trials spent", automargin=True)
    figure.update_yaxes(title="best validation score", automargin=True)
    return figure


def parallel_figure(trials: pd.DataFrame, space: dict[str, Dimension], names: dict[str, str]) -> Figure:
    """One line per trial through its settings to its score."""
    from plotly.graph_objects import Figure

    done = trials.dropna(subset="score")
    axes: list[dict[str, Any]] = []
    for path, dimension in space.items():
        if dimension.choices is not None:
            places = [dimension.choices.index(value) for value in done[path]]
            texts = [str(choice) for choice in dimension.choices]
            axes.append({"values": places, "tickvals": list(range(len(texts))), "ticktext": texts})
        elif dimension.scale == "log":
            logs = np.log10(done[path].astype(float))
            ticks = np.linspace(np.log10(dimension.low), np.log10(dimension.high), 4)
            axes.append({"values": logs, "tickvals": ticks, "ticktext": [f"{10**tick:.2g}" for tick in ticks]})
        else:
            axes.append({"values": done[path].astype(float)})
        axes[-1]["label"] = names[path]
    axes.append({"values": done["score"], "label": "score"})
    line = {"color": done["score"], "colorscale": "Viridis", "showscale": True}
    figure = Figure(layout={"template": "none", "height": 340, "margin": {"l": 60, "r": 40, "t": 50, "b": 24}})
    figure.add_parcoords(dimensions=axes, line=line)
    return figure


def slice_figure(
    trials: pd.DataFrame, space: dict[str, Dimension], names: dict[str, str], matters: dict[str, float]
) -> Figure:
    """The score against each setting alone; the most important first."""
    from plotly.subplots import make_subplots

    paths = sorted(space, key=lambda path: -matters.get(path, 0.0))
    done = trials.dropna(subset="score")
    columns = min(3, len(paths))
    rows = -(-len(paths) // columns)
    titles = [names[path] + (f" · {matters[path]:.0%}" if path in matters else "") for path in paths]
    figure = make_subplots(rows, columns, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.3 / rows)
    for index, path in enumerate(paths):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        dimension = space[path]
        categorical = dimension.choices is not None
        figure.add_scatter(
            x=done[path].map(str) if categorical else done[path],
            y=done["score"],
            mode="markers",
            marker={"size": 6, "opacity": 0.7, "color": "#4c78a8"},
            customdata=done["trial"],
            hovertemplate="trial %{customdata}: %{y:.4g} at %{x}<extra></extra>",
            showlegend=False,
            **place,
        )
        kind = "category" if categorical else dimension.scale
        figure.update_xaxes(type=kind, automargin=True, **place)
    figure.update_layout(template="none", height=60 + 240 * rows, margin=_MARGIN)
    return figure


def drawing(trials: dict[str, pd.DataFrame], space: dict[str, dict[str, Dimension]], names: dict[str, str]) -> Drawing:
    """Budget curves of all methods, then a row of slices for each: for a README or a paper. trials: method -> rows."""
    from matplotlib.figure import Figure as Drawing

    widest = max(1, *(len(dimensions) for dimensions in space.values()))
    shades = colors(list(trials), None)
    drawing = Drawing(figsize=(2.6 * max(3, widest), 3.0 + 1.9 * len(trials)), layout="constrained")
    grid = drawing.add_gridspec(len(trials) + 1, widest, height_ratios=[1.5, *[1.0] * len(trials)])
    top = drawing.add_subplot(grid[0, :])
    curves = budget_curves(pd.concat(trials.values()))
    for method, shade in shades.items():
        top.step(curves.index, curves[method], where="post", label=method, color=shade)
    top.set_xlabel("trials spent")
    top.set_ylabel("best validation score")
    lowest, highest = np.nanquantile(curves.to_numpy(), [0.1, 1.0])
    if highest > lowest:
        top.set_ylim(lowest - 0.1 * (highest - lowest), highest + 0.1 * (highest - lowest))
    top.legend(fontsize=7, ncols=2, frameon=False)
    for row, (method, rows) in enumerate(trials.items(), start=1):
        done = rows.dropna(subset="score")
        for column, (path, dimension) in enumerate(space[method].items()):
            axes = drawing.add_subplot(grid[row, column])
            if dimension.choices is not None:
                values = [dimension.choices.index(value) for value in done[path]]
                axes.set_xticks(range(len(dimension.choices)), [str(choice) for choice in dimension.choices])
            else:
                values = done[path].tolist()
            axes.scatter(values, done["score"].tolist(), s=9, alpha=0.7, color=shades[method])
            if dimension.choices is None:
                axes.set_xscale(dimension.scale)
                axes.xaxis.set_major_formatter("{x:g}")
            best = int(np.argmax(done["score"].to_numpy()))
            axes.scatter([values[best]], [done["score"].max()], s=28, facecolors="none", edgecolors=GREY)
            axes.set_title(names[path], fontsize=8)
            axes.tick_params(labelsize=6)
            if column == 0:
                axes.set_ylabel(method, fontsize=8)
    return drawing


_MARGIN = {"l": 10, "r": 16, "t": 36, "b": 40}
