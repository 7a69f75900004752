"""LaTeX tables for a paper, which need booktabs and otherwise only the standard classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mtlscale.report.formats.legend import failures, legend
from mtlscale.report.tables.columns import MOST_TASKS, LeaderboardColumn, by_block, columns
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "→": r"$\to$",
    "∞": r"$\infty$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "·": r"$\cdot$",
    "°": r"$^\circ$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "\n": " ",
}
_GREEK = (  # from α on; no letter of its own for omicron and the final sigma
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi - pi rho - sigma tau upsilon phi chi psi "
    "omega"
)
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
_SPECIAL |= {chr(0x3B1 + offset): f"$\\{name}$" for offset, name in enumerate(_GREEK.split()) if name != "-"}
_SPECIAL |= {letter: f"$\\{name}$" for letter, name in zip("ΓΔΘΛΞΠΣΦΨΩ", _CAPITALS.split(), strict=True)}
_ROW = r" \\"
_MAX_COLUMNS = 6  # columns at usual width; tables with more are scaled down to the width of the text


def escaped(text: object) -> str:
    """Escape a text for running text and cells, so that no mark of TeX takes effect."""
    return "".join(_SPECIAL.get(letter, letter) for letter in str(text))


def latex(table: Table) -> str:
    """Return a `table` for quality, one for many tasks and one for cost, best method first.

    Comments name the runs that did not finish.
    """
    quality, tasks, cost = by_block(columns(table))
    few_tasks = len(tasks) <= MOST_TASKS

    names = [table.name(method) for method in table.rows.index]
    captions = (
        (takeaway(table), legend(table)),
        (f"{table.dataset}, by task.", ""),
        (f"{table.dataset}: what the methods cost.", ""),
    )

    blocks = ([*tasks, *quality], [], cost) if few_tasks else (quality, tasks, cost)
    parts = ["\n".join(floating(names, block, *words)) for block, words in zip(blocks, captions, strict=True) if block]

    comments = [
        f"% did not finish: {_one_line(f'{method}, seed {seed}: {status}: {error}')}"
        for method, seed, status, error in failures(table)
    ]
    return "\n".join([*comments, "\n\n".join(parts), ""])


def floating(
    names: Sequence[str], block: Sequence[LeaderboardColumn], caption: str, below: str = "", first: str = "method"
) -> Iterator[str]:
    """Yield the lines of a `table` with these columns beside the names of their rows, no wider than the text."""
    wide = len(block) > _MAX_COLUMNS
    yield r"\begin{table}"
    yield r"  \centering\small"
    yield rf"  \caption{{{escaped(caption)}}}"

    if wide:
        yield r"  \resizebox{\linewidth}{!}{%"
    yield rf"  \begin{{tabular}}{{l{'r' * len(block)}}}"

    yield r"    \toprule"
    yield "    " + " & ".join(escaped(text) for text in (first, *(column.header for column in block))) + _ROW
    yield r"    \midrule"

    for row, name in enumerate(names):
        cells = (_cell(column, row) for column in block)
        yield "    " + " & ".join((escaped(name), *cells)) + _ROW

    yield r"    \bottomrule"
    yield r"  \end{tabular}" + ("}" if wide else "")
    if below:
        yield rf"  \par\smallskip\raggedright\footnotesize {escaped(below)}"
    yield r"\end{table}"


def preamble() -> str:
    """Return the comment that says which packages to load."""
    return r"% needs \usepackage{booktabs,graphicx}"


def _cell(column: LeaderboardColumn, row: int) -> str:
    text = escaped(column.texts[row])
    return rf"\textbf{{{text}}}" if row in column.best else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
