"""Tables of a paper compile with pdflatex, whatever the names in them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mtlscale.report.cells.sheet import Sheet, text_column
from mtlscale.report.columns.registry import definitions
from mtlscale.report.formats.latex import escaped, latex
from mtlscale.report.report_section import ReportSection
from mtlscale.report.tables.caveats import Failure

NAMES = (
    "a_b & 100 % #1 {x} $y$ ^2 ~ \\textbf",
    '[first] * second <c> |d| "quoted"',
    "Preis (€) für Öl, naïve café, žluťoučký kůň, łódź, Straße, ångström",
    "数据 ٣ данные 🙂 \u200b\x00\x07",
    "ά ὀ ς ο ϑ Δ η κ π Ω",
    "± − × ≈ ≤ ≥ ≠ → ← ∞ ▲ ▼ · ° – — … ∠ √ ² ³ µ § ’ ‘ “ ” ½ ™",
    "ends with a backslash \\",
    "% comment\nand a line",
    *(one.title for one in definitions().values()),
)


def tables() -> str:
    columns = [text_column("method", NAMES), text_column(NAMES[0], NAMES[::-1])]
    sheets = [Sheet(title=name, text=name, notes=[name], columns=columns) for name in NAMES]
    return latex([ReportSection(tables=sheets, failures=[Failure(NAMES[0], "failed", NAMES[-1])])])


def test_only_letters_that_pdflatex_knows() -> None:
    assert tables().isascii()
    assert escaped("数 é ∠") == r"U+6570 \'{e} $\angle$"


def test_labels_differ() -> None:
    columns = [text_column("method", ["a"])]
    twins = [Sheet(title=title, columns=columns) for title in ("a b", "a-b", "数")]
    labels = [line for line in latex([ReportSection(tables=twins)]).splitlines() if "label" in line]
    assert len(set(labels)) == 3


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_tables_compile(tmp_path: Path) -> None:
    preamble = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "paper.tex").write_text(f"{preamble}\n{tables()}\n\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
