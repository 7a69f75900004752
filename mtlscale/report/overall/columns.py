"""The table across data sets, and its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_letters

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import EMPTY, counted, points
from mtlscale.report.cells.sheet import Column, Sheet, TableCell, method_column, number_column
from mtlscale.report.overall.multi_dataset import BETTER, OPEN, SAME, SURE, WORSE, Overall
from mtlscale.report.overall.takeaway import sentence

_ORDER = {BETTER: 3.0, SAME: 2.0, OPEN: 1.0, WORSE: 0.0}
_MARKS = {BETTER: ("gain", "better"), WORSE: ("loss", "worse")}


def across(result: Overall, notes: Sequence[str] = ()) -> Sheet:
    """Return the table across data sets."""
    return Sheet(
        title=f"All {len(result.datasets)} data sets",
        key="all",
        caption=f"Methods over {len(result.datasets)} data sets",
        columns=[method_column(result.rows.index), *columns(result)],
        numbers=result.rows.reset_index(),
        text=sentence(result),
        notes=(*result.notes, *notes),
        label="All data sets together",
    )


def columns(result: Overall) -> list[Column]:
    """Return every column that has values, in order: quality, cost."""
    rows, base, ref, within = result.rows, result.baseline, result.reference, points(result.rope)
    rank_help = f"mean rank over {counted(len(result.ranks), 'data set')}, 1 is best"
    wins_help = "comparisons with another method on a data set; ties half"
    candidates = [
        number_column("rank", rows["mean_rank"], ".2f", help=rank_help, higher=False),
        _groups(result),
        number_column("wins %", rows["wins"], ".0f", help=wins_help, higher=True),
        _gain(result),
        number_column("worst Δ %", rows["worst"], "+.2f", help=f"the lowest Δ over {base} of any task", higher=True),
        _worst_task(rows),
        _verdicts(result),
        *_probabilities(result, within),
        _shares(rows["datasets"], [len(result.datasets)] * len(rows), "data sets", "finished on, of all"),
        _shares(rows["finished"], rows["runs"].tolist(), "runs", "finished of planned"),
        _fronts(rows),
    ]

    costs = (
        ("parameters", "params ×", "number of parameters"),
        ("memory", "MB ×", "peak memory"),
        ("seconds", "s/run ×", "seconds of a run's last phase"),
        ("search", "+ search ×", "seconds of the phases before, a search say, where there are any"),
        ("total", "= total ×", "seconds of all phases together"),
    )
    for name, header, quantity in costs:
        if name != "total" or rows["search"].notna().any():
            help = f"{quantity}, as a ratio to {ref}: geometric mean over data sets"
            candidates.append(number_column(header, rows[name], ".2f", help=help, block="cost"))

    return [column for column in candidates if any(text != EMPTY for text in column.texts)]


def letters(cliques: Sequence[Sequence[str]], methods: Sequence[str]) -> dict[str, str]:
    """Return method -> its group letters; methods that share a letter are not told apart.

    Each clique has a letter, and so has each method that is in no clique.
    """
    singles = [(method,) for method in methods if not any(method in clique for clique in cliques)]
    groups = sorted([*cliques, *singles], key=lambda group: [methods.index(method) for method in group])
    marks = [
        ascii_letters[number] if number < len(ascii_letters) else f"({number + 1})" for number in range(len(groups))
    ]

    return {
        method: "".join(mark for mark, group in zip(marks, groups, strict=True) if method in group)
        for method in methods
    }


def _groups(result: Overall) -> Column:
    marks = {} if np.isnan(result.friedman.p) else letters(result.cliques, list(map(str, result.ranks.columns)))
    texts = [marks.get(str(method), EMPTY) for method in result.rows.index]
    help = f"methods that share a letter are not told apart by ranks (Nemenyi, {result.critical_difference:.3g} apart)"
    return Column(header="group", help=help, cells=list(map(TableCell, texts, result.rows["mean_rank"])))


def _gain(result: Overall) -> Column:
    rows, average = result.rows, result.quality == "average"
    measure = f"points over {result.reference}" if average else f"gain over {result.baseline}"
    help = f"mean over data sets of the {measure}, ± half its 95 % interval over data sets"
    header = f"− {result.reference}" if average else "Δ %"
    return number_column(header, rows["gain"], "+.2f", rows["gain_ci"], help=help, higher=True)


def _worst_task(rows: pd.DataFrame) -> Column:
    cells = [
        TableCell(f"{task}, {dataset}" if task else EMPTY, value)
        for task, dataset, value in rows[["worst_task", "worst_dataset", "worst"]].itertuples(index=False)
    ]
    return Column(header="on task", help="the task with the lowest Δ, and its data set", cells=cells)


def _verdicts(result: Overall) -> Column:
    verdicts = result.rows["verdict"]
    cells = [TableCell(text or EMPTY, _ORDER.get(text), *_MARKS.get(text, ())) for text in verdicts]
    test_text = f"Bayesian signed-rank test, ±{points(result.rope)} as equivalent"
    help = f"what has a probability of {SURE:g} or more ({test_text})"
    return Column(header=f"vs {result.reference}", help=help, cells=cells)


def _probabilities(result: Overall, within: str) -> Iterator[Column]:
    sizes = {
        "better": f"more than {within} over",
        "same": f"at most {within} from",
        "worse": f"more than {within} below",
    }
    for name, size in sizes.items():
        help = f"probability of {size} {result.reference}"
        values, higher = result.rows[name], name != "worse"
        yield number_column(f"P {name}", values, ".2f", help=help, higher=higher, emphasis=False)


def _shares(counts: pd.Series[int], of: Sequence[int], header: str, help: str) -> Column:
    cells = [TableCell(f"{count}/{total}", float(count)) for count, total in zip(counts, of, strict=True)]
    return Column(header=header, help=help, cells=cells, higher=True)


def _fronts(rows: pd.DataFrame) -> Column:
    """Return the column of Pareto fronts among the compared methods, on the compared data sets."""
    cells = []
    for time, size in zip(rows["front_total"], rows["front_parameters"], strict=True):
        names = [name for name, on_front in (("time", time), ("params", size)) if on_front]
        cells.append(TableCell(", ".join(names) or EMPTY, float(len(names))))
    help = "on the Pareto front: no ranked method gains more in as little time, or with as few parameters"
    return Column(block="cost", header="front", help=help, cells=cells, higher=True)
