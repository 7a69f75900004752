"""LaTeX tables for a paper, which need booktabs and otherwise only the standard classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from mtlscale.report.cells.blocks import arranged
from mtlscale.report.cells.sheet import Sheet, TableCell
from mtlscale.report.report_section import ReportSection

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
    "∠": r"$\angle$",
    "√": r"$\surd$",
    "≠": r"$\ne$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "²": r"$^2$",
    "³": r"$^3$",
    "µ": r"$\mu$",
    "§": r"\S{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
    "[": "{[}",  # after a line's end it would begin an argument
    "*": "{*}",
}
_ACCENTS = {  # combining mark -> command
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c",
}  # fmt: skip
_GREEK = (  # from α on; no letter of its own for omicron and the final sigma
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi - pi rho - sigma tau upsilon phi chi psi "
    "omega"
)
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
_SPECIAL |= {chr(0x3B1 + offset): f"$\\{name}$" for offset, name in enumerate(_GREEK.split()) if name != "-"}
_SPECIAL |= {letter: f"$\\{name}$" for letter, name in zip("ΓΔΘΛΞΠΣΦΨΩ", _CAPITALS.split(), strict=True)}
_MAX_COLUMNS = 6  # columns at usual width; tables with more are scaled down to the width of the text


def escaped(text: object) -> str:
    """Escape a text for running text and cells: no mark of TeX takes effect, and pdflatex knows every letter.

    Letters that it does not know are written by their number, as U+4E2D.
    """
    letters = " ".join(unicodedata.normalize("NFC", str(text)).split())
    return "".join(map(_letter, letters))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter.isascii() and letter.isprintable():
        return letter
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        return rf"\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"U+{ord(letter):04X}"


def latex(sections: Sequence[ReportSection], label: str = "") -> str:
    """Return one `table` after the other, each with a label; comments name the packages and runs without an end.

    Args:
        sections: The sections: texts as comments, then their tables.
        label: The label of a single table, and what those of several begin with.
    """
    parts = [r"% needs \usepackage{booktabs,graphicx}"]
    for section in sections:
        parts += [f"% did not finish: {escaped(': '.join(failure))}" for failure in section.failures]

    sheets = [[part for sheet in section.tables for part in arranged(sheet, details=False)] for section in sections]
    labels = iter(_labels([sheet for of_section in sheets for sheet in of_section], label))
    for section, of_section in zip(sections, sheets, strict=True):
        titles = [] if section.dataset or not section.title else [section.title]
        parts += [f"% {escaped(text)}" for text in (*titles, *section.sentences)]
        parts += [floating(sheet, next(labels)) for sheet in of_section]
    return "\n".join(parts)


def _labels(sheets: Sequence[Sheet], label: str) -> list[str]:
    """Return a label for each table, no two alike."""
    if label and len(sheets) == 1:
        return [label]
    labels: list[str] = []
    for sheet in sheets:
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", sheet.key or sheet.title).strip("-") or "table"
        name = f"{label}-{slug}" if label else f"tab:{slug}"
        labels.append(f"{name}-{len(labels)}" if name in labels else name)
    return labels


def floating(sheet: Sheet, label: str) -> str:
    """Return a `table` no wider than the text."""
    wide = len(sheet.columns) - sheet.names > _MAX_COLUMNS
    caption = sheet.caption or sheet.title or sheet.text.removesuffix(".")
    below = sheet.legend or " ".join(f"{_sentence(note)}." for note in sheet.notes)
    lines = [
        *([f"% {escaped(sheet.text)}"] if sheet.text else []),
        r"\begin{table}",
        r"  \centering\small",
        rf"  \caption{{{escaped(caption)}}}",
        rf"  \label{{{label}}}",
        *([r"  \resizebox{\linewidth}{!}{%"] if wide else []),
        rf"  \begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in sheet.columns)}}}",
        r"    \toprule",
        _line(map(escaped, sheet.header)),
        r"    \midrule",
        *(_line(map(_cell, row)) for row in sheet.rows),
        r"    \bottomrule",
        r"  \end{tabular}" + ("}" if wide else ""),
        *([rf"  \par\smallskip\raggedright\footnotesize {escaped(_sentence(below))}"] if below else []),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _line(texts: Iterable[str]) -> str:
    return f"    {' & '.join(texts)} \\\\"


def _cell(cell: TableCell) -> str:
    text = escaped(cell.text)
    return rf"\textbf{{{text}}}" if "best" in cell.mark else text
