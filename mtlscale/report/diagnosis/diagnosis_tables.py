"""The tables of a diagnosis in the terminal: its matrices where they fit 80 columns, else the pairs at both ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.records import Diagnosis, Matrix
from mtlscale.report.cells.grid import Grid
from mtlscale.report.cells.sheet import Sheet, text_column, text_sheet
from mtlscale.report.diagnosis.diagnosis_page import as_table, two_groups

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_TASKS = 10  # tasks with a column each
_NAME, _PAIRS = 14, 4


def tables(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """Yield what the terminal prints, in order."""
    from rich.text import Text

    for matrix in diagnosis.matrices.values():
        yield _matrix(diagnosis, matrix) if len(diagnosis.tasks) <= MOST_TASKS else _ends(diagnosis, matrix)
    for name, why in diagnosis.left_out.items():
        yield Text(f"no {name}: {why}")

    groups = diagnosis.named(diagnosis.groups)
    yield Text("suggested groups:" if len(groups) > 1 else "suggested groups: one, of all tasks")
    for number, group in enumerate(groups if len(groups) > 1 else (), 1):
        yield Text(f"  {number}. {', '.join(group)}")

    yield Text(two_groups(diagnosis))
    yield Text(f"{diagnosis.sentence} {diagnosis.verdict}", style="bold")


def power_of(values: np.ndarray) -> int:
    """Return the power of ten that small numbers are divided by, 0 for others.

    The largest then has a digit before its point.
    """
    magnitudes = np.abs(values[np.isfinite(values)])
    largest = float(magnitudes.max(initial=0.0))
    return 0 if largest >= 0.01 or largest == 0 else int(np.floor(np.log10(largest)))


def _matrix(diagnosis: Diagnosis, matrix: Matrix) -> Grid:
    values = as_table(matrix)
    power = power_of(values[~np.eye(len(values), dtype=bool)])
    columns = [text_column("", [f"{number} {_short(task)}" for number, task in enumerate(diagnosis.tasks, 1)])]
    for number, column in enumerate(values.T, 1):
        columns.append(text_column(str(number), [_cell(value / 10.0**power) for value in column], right=True))
    return Grid(Sheet(title=f"{matrix.title}{_unit(power)}", columns=columns))


def _ends(diagnosis: Diagnosis, matrix: Matrix) -> Grid:
    """Return the pairs with the largest and the smallest numbers."""
    values = as_table(matrix)
    symmetric = (values + values.T) / 2
    pairs = [
        (float(symmetric[i, j]), i, j) for j in range(len(symmetric)) for i in range(j) if np.isfinite(symmetric[i, j])
    ]
    pairs.sort(reverse=True)

    power = power_of(np.array([value for value, _, _ in pairs]))
    rows = [
        (_cell(value / 10.0**power), *(_short(diagnosis.tasks[task], 2 * _NAME) for task in (i, j)))
        for value, i, j in (pairs if len(pairs) <= 2 * _PAIRS else [*pairs[:_PAIRS], *pairs[-_PAIRS:]])
    ]
    title = f"{matrix.title}{_unit(power)}: both ends of {len(pairs)} pairs"
    return Grid(text_sheet(title, "", ("value", "task", "other task"), rows))


def _unit(power: int) -> str:
    return f", times 1e{power}" if power else ""


def _cell(value: float) -> str:
    if not np.isfinite(value):
        return "."
    if abs(value) >= 9.95:
        return f"{value:.0f}" if abs(value) < 1000 else f"{value:.0e}"
    return f"{value:.1f}" if abs(value) >= 1.005 else f"{value:.2f}".replace("-0.00", "0.00").replace("0.", ".", 1)


def _short(name: str, limit: int = _NAME) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
