"""The notebook runs from its first cell to its last, and shows what a run of today gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NUMBER = re.compile(r"-?\d+\.\d+")
ROOT = Path(__file__).parents[1]
CELLS = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def test_every_cell_was_run_in_its_order() -> None:
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])


@pytest.mark.slow
@pytest.mark.ray
def test_it_trains_compares_and_draws(tmp_path: Path) -> None:
    """All cells in one process, as a kernel runs them; the leaderboard is the one that the notebook shows."""
    [shown] = [
        "".join(output["data"]["text/html"])
        for cell in CELLS
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    program = tmp_path / "cells.py"
    end = "open('board.html', 'w').write(results._repr_html_())\nfigure.savefig('figure.png')\n"
    program.write_text("\n".join([*CODE, end]), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "MTLSCALE_HOME"}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True,
        env=environment | {"MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "figure.png").stat().st_size > 5_000

    found = figures((tmp_path / "board.html").read_text())
    assert found == pytest.approx(figures(shown), abs=3)  # another machine's arithmetic


def figures(page: str) -> list[float]:
    """The decimal numbers of a page's sentence and table, but for the seconds, which depend on what else runs."""
    rows = [re.findall(r"<t[hd].*?</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", page)]
    [seconds] = [place for place, cell in enumerate(rows[0]) if cell.endswith(">seconds</th>")]
    cells = [cell for row in rows for place, cell in enumerate(row) if place != seconds]
    return [float(number) for text in (page.partition("<table>")[0], *cells) for number in NUMBER.findall(text)]
