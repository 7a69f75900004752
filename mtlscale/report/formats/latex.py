"""LaTeX tables for a paper, which need booktabs and otherwise only the standard classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mtlscale.report.formats.sheet import Sheet, TableCell
from mtlscale.report.tables.caveats import failures
from mtlscale.report.tables.sheets import sheets

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
_MAX_COLUMNS = 6  # columns at usual width; tables with more are scaled down to the width of the text


def escaped(text: object) -> str:
    """Escape a text for running text and cells, so that no mark of TeX takes effect."""
    return "".join(_SPECIAL.get(letter, letter) for letter in str(text))


def latex(table: Table) -> str:
    """Return a `table` for quality, one for many tasks and one for cost, best method first.

    Comments name the runs that did not finish.
    """
    comments = [
        f"% did not finish: {_one_line(f'{method}, seed {seed}: {status}: {error}')}"
        for method, seed, status, error in failures(table)
    ]
    return "\n".join([*comments, "\n".join(map(floating, sheets(table)))])


def floating(sheet: Sheet) -> str:
    """Return a `table` no wider than the text."""
    wide = len(sheet.columns) - sheet.names > _MAX_COLUMNS
    caption = ": ".join(filter(None, (sheet.title, sheet.text)))
    below = sheet.legend or " ".join(f"{note}." for note in sheet.notes)
    lines = [
        r"\begin{table}",
        r"  \centering\small",
        rf"  \caption{{{escaped(caption)}}}",
        *([r"  \resizebox{\linewidth}{!}{%"] if wide else []),
        rf"  \begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in sheet.columns)}}}",
        r"    \toprule",
        _line(map(escaped, sheet.header)),
        r"    \midrule",
        *(_line(map(_cell, row)) for row in sheet.rows),
        r"    \bottomrule",
        r"  \end{tabular}" + ("}" if wide else ""),
        *([rf"  \par\smallskip\raggedright\footnotesize {escaped(below)}"] if below else []),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def preamble() -> str:
    """Return the comment that says which packages to load."""
    return r"% needs \usepackage{booktabs,graphicx}"


def _line(texts: Iterable[str]) -> str:
    return f"    {' & '.join(texts)} \\\\"


def _cell(cell: TableCell) -> str:
    text = escaped(cell.text)
    return rf"\textbf{{{text}}}" if "best" in cell.mark else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
