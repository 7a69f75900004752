"""Charts of a table's scores: means with intervals, gains by task, gain bars, quality against cost, the leaderboard."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import decimals, signed
from mtlscale.report.charts.chart import (
    DOTTED,
    MOST_LINES,
    Axis,
    Bars,
    Chart,
    ChartText,
    Dots,
    HeatMap,
    Level,
    Mark,
    Panel,
)
from mtlscale.report.charts.colors import GREY, LineStyle, LineStyles
from mtlscale.report.charts.label_placement import FAR_FLOOR, without_far_floor
from mtlscale.report.charts.trade_off import trade_off
from mtlscale.report.stats.pareto import pareto
from mtlscale.report.tables.caveats import colour_key, legend
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

MOST_ROWS = 30  # methods in a chart
MOST_INCHES = 26.0  # of height: 3,900 pixels
FEWEST_ROWS = 4  # of each data set, where there are so many that rows get scarce
ROW_PIXELS, ROW_INCHES = 26, 0.34
MOST_NUMBERS = 20  # tasks that leave room for numbers in a heat map of the page's width
_SIGN_COLORS = {1: "#2f8f4e", -1: "#c8443c"}
_PLAIN = "#44608a"
_HEAT = "In the metric's own unit. Blue is better and red worse where paired tests of the task, corrected, find that."


def score_column(table: Table) -> str:
    """Return the column that the table's scores are in."""
    return "average" if table.rows["average"].notna().any() else table.order


def score_name(table: Table, score: str) -> str:
    """Return the name of a column of scores."""
    if score == "delta_i":
        return f"Δ over {table.baseline}, %"
    return f"{table.split.capitalize()} {next(iter(table.main_metrics.values()))}"


def score_chart(table: Table, score: str, styles: LineStyles) -> Chart:
    """Return each method's score with its interval, single runs as small dots."""
    rows = _best_rows(table, score)
    return Chart(
        panels=[_score_panel(table, score, rows, [styles[str(method)] for method in rows.index])],
        title=score_name(table, score),
        note=f"Mean and 95 % interval over seeds; small dots are single runs.{_best_of(table)}",
        height=0.9 + ROW_INCHES * len(rows),
        row=ROW_PIXELS,
    )


def _score_panel(table: Table, score: str, rows: pd.DataFrame, looks: Sequence[LineStyle], title: str = "") -> Panel:
    names = [str(method) for method in rows.index]
    look_of = dict(zip(names, looks, strict=True))
    widths = rows.get(f"{score}_ci", rows[score] * np.nan)

    marks: list[Mark] = []
    if score in table.runs:
        singles = table.runs[table.runs["method"].isin(names)].dropna(subset=score)
        marks.append(
            Dots(
                x=singles[score], y=singles["method"], looks=[look_of[method] for method in singles["method"]],
                names=[f"seed {seed}" for seed in singles["seed"]], size=3.5, opacity=0.45, aside=True,
                hover="{y}, {name}: {x:.4g}",
            )
        )  # fmt: skip
    marks.append(Dots(x=rows[score], y=names, looks=looks, x_error=widths, hover="{y}: {x:.4g}"))
    if table.reference is not None:
        marks.append(Level(at=float(table.rows[score][table.reference]), axis="x", look=DOTTED))

    limits: tuple[float | None, float | None] = (None, None)
    if (shown_range := without_far_floor(rows[score], widths.fillna(0.0))) is not None:
        limits, at_left = shown_range, rows[score][FAR_FLOOR] < shown_range[0]
        side = ("left", "◂") if at_left else ("right", "▸")
        marks.append(ChartText(x=side[0], y=FAR_FLOOR, text=side[1], anchor="left" if at_left else "right"))

    ticks = {name: table.name(name) for name in names}
    return Panel(marks=marks, title=title, x=Axis(limits=limits), y=Axis(names=names, ticks=ticks))


def gain_bars(table: Table, styles: LineStyles) -> Chart:
    """Return each method's Δ with its interval."""
    rows = _best_rows(table, "delta_i")
    names = [str(method) for method in rows.index]
    bars = Bars(
        at=names, length=rows["delta_i"], colors=[styles[name].color for name in names], error=rows["delta_i_ci"],
        lying=True, hover="{at}: {length:+.3g} %",
    )  # fmt: skip
    return Chart(
        panels=[Panel(marks=[bars], x=Axis(title="%"), y=Axis(names=names))],
        title=score_name(table, "delta_i"),
        note=f"Mean within each task, then over tasks.{_best_of(table)}",
        height=0.9 + ROW_INCHES * len(rows),
        row=ROW_PIXELS,
    )


def gain_map(table: Table, against: str) -> Chart:
    """Return each method's gain on each task in the metric's own unit, coloured where tests find it."""
    rows = _best_rows(table, table.main_column(table.tasks[0]))
    return Chart(
        panels=[_gain_panel(table, against, rows, MOST_NUMBERS)],
        title=f"Difference to {against} by task",
        note=f"{_HEAT}{_best_of(table)}",
        height=1.15 + ROW_INCHES * len(rows),
        row=ROW_PIXELS,
    )


def _gain_panel(table: Table, against: str, rows: pd.DataFrame, most_numbers: int) -> Panel:
    gains, scaled = (frame.loc[rows.index].to_numpy() for frame in table.task_gains(against))
    digits = decimals(pd.Series(gains.flatten()), figures=2, least=1)
    texts = [[signed(gain, f"+.{digits}f") for gain in row] for row in gains]
    heat = HeatMap(
        values=scaled, shown=gains, texts=texts if len(table.tasks) <= most_numbers else (), low=-1.1, high=1.1,
        hover="{row}, {column}: {value:+.4g}",
    )  # fmt: skip
    return Panel(marks=[heat], x=Axis(names=table.tasks), y=Axis(names=[str(method) for method in rows.index]))


def cost_chart(table: Table, score: str, styles: LineStyles) -> Chart:
    """Return the score against the seconds of a whole run, with the Pareto front."""
    rows = table.rows.dropna(subset=[score, "total_seconds"])
    times, scores = rows["total_seconds"], rows[score]
    gains = scores * (1.0 if table.higher(score) else -1.0)
    front = pareto(times.to_numpy(float), gains.to_numpy(float))

    wide = len(times) > 0 and times.min() > 0 and times.max() > 10 * times.min()
    shown_range = without_far_floor(scores, rows[f"{score}_ci"])
    panel = trade_off(
        pd.DataFrame({"x": times, "y": scores, "front": front}),
        styles,
        Axis(title="seconds per run", log=wide, limits=(None if wide else 0, None)),
        Axis(title=score_name(table, score), limits=shown_range or (None, None)),
        special=rows.index.isin([table.baseline, table.reference]),
        heights=scores if shown_range is None else scores.clip(*shown_range),
        hover="{name}: {y:.4g} in {x:.3g} s",
    )
    note = f"{score_name(table, score)} against the seconds a whole run takes, its search included; dashed: the Pareto "
    return Chart(panels=[panel], title="Quality and cost", note=f"{note}front.", height=4.6)


def leaderboard_charts(tables: Collection[Table]) -> list[Chart]:
    """Return a chart for each data set, best method on top: score with interval and runs, and the gain on each task."""
    least_inches = 1.5 + ROW_INCHES * FEWEST_ROWS
    shown = list(tables)[: int(MOST_INCHES // least_inches)]
    counts = _rows_each([min(len(table.rows), MOST_ROWS) for table in shown])

    hidden = len(tables) - len(shown)
    notes = ["" for _ in shown[1:]] + [f" · {hidden} more data sets" if hidden else ""]
    return [_leaderboard_chart(*parts) for parts in zip(shown, counts, notes, strict=True)]


def _rows_each(counts: Sequence[int]) -> list[int]:
    """Return each data set's number of rows: all, or as many as the longest may have for all to fit the chart."""
    for limit in range(MOST_ROWS, FEWEST_ROWS, -1):
        rows = [min(count, limit) for count in counts]
        if sum(1.5 + ROW_INCHES * count for count in rows) <= MOST_INCHES:
            return rows
    return [min(count, FEWEST_ROWS) for count in counts]


def _leaderboard_chart(table: Table, count: int, more: str) -> Chart:
    rows = table.rows.iloc[:count][::-1]
    hidden = len(table.rows) - len(rows)

    against = table.baseline or table.reference
    if against is None or not table.tasks:
        gains = say_nothing("no row to compare the tasks with")
    else:
        plain = _gain_panel(table, against, rows, MOST_LINES)
        title = f"difference to {against} by task (blue, red: better, worse, by the test)"
        many = len(table.tasks) > 2 * MOST_LINES
        x = Axis(names=table.tasks, ticks=dict.fromkeys(table.tasks, ""), title=f"{len(table.tasks)} tasks")
        y = Axis(names=plain.y.names, visible=False)
        gains = Panel(marks=plain.marks, title=title, x=x if many else plain.x, y=y, weight=1.25)

    return Chart(
        panels=[_annotated_scores(table, rows), gains],
        title=f"{table.dataset}{f' · {hidden} more methods' if hidden else ''}{more}",
        note=f"{takeaway(table)}\n{legend(table)} {colour_key(table)}",
        columns=2,
        width=11.0,
        height=1.5 + ROW_INCHES * len(rows),
    )


def _annotated_scores(table: Table, rows: pd.DataFrame) -> Panel:
    """Return the scores in the colours of the tests, with the means in figures at the right."""
    score = score_column(table)
    if not rows[score].notna().any():
        return say_nothing("no finished run")

    signs = table.signs([score], table.reference)[score].loc[rows.index]
    plain = [GREY if method == table.baseline else _PLAIN for method in rows.index]
    looks = [LineStyle(_SIGN_COLORS.get(sign, color)) for sign, color in zip(signs, plain, strict=True)]
    metrics = "/".join(dict.fromkeys(table.main_metrics.values()))
    titles = {"average": f"{table.split} {metrics}, mean over tasks", "delta_i": score_name(table, "delta_i")}
    panel = _score_panel(table, score, rows, looks, titles.get(score, "mean rank"))

    digits, texts = decimals(rows[score]), []
    for method, row in rows.iterrows():
        width = row.get(f"{score}_ci", np.nan)
        text = "no finished run" if np.isnan(row[score]) else f"{row[score]:.{digits}f}"
        text += "" if np.isnan(width) else f" ± {width:.{digits}f}"
        if 0 < row["finished"] < row["planned"]:
            text += f" ({row['finished']:.0f}/{row['planned']:.0f})"
        texts.append(ChartText(x="right", y=str(method), text=text, anchor="left", size=9))

    return Panel(marks=[*panel.marks, *texts], title=panel.title, x=panel.x, y=panel.y)


def say_nothing(why: str) -> Panel:
    """Return a panel that says why it is empty."""
    hidden = Axis(visible=False, grid=False, limits=(0.0, 1.0))
    return Panel(marks=[ChartText(x=0.5, y=0.5, text=why, color="#6b7280", size=9)], x=hidden, y=hidden)


def _best_rows(table: Table, column: str) -> pd.DataFrame:
    """Return the best rows that have a value, and those they are compared with; the best is last, drawn on top."""
    rows = table.rows.dropna(subset=column)
    always = rows.index.isin([table.baseline, table.reference])
    return rows[always | (np.arange(len(rows)) < MOST_ROWS)][::-1]


def _best_of(table: Table) -> str:
    if len(table.rows) <= MOST_ROWS:
        return ""
    return f" The best {MOST_ROWS} of {len(table.rows)} methods; the tables have all."
