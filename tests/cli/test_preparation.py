"""What a preparation says while it goes on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mtlscale.cli.output.preparation import PreparationBar, described


def test_rows_rates_and_bytes_are_said() -> None:
    assert described(1200, 5000, 30_000_000, 6.0) == "1,200 of 5,000 rows, 200 rows/s, 30.0 MB, 5.0 MB/s"
    assert described(0, 5000, 0, 0.0) == "0 of 5,000 rows"
    assert described(700, 0, 2_000_000, 2.0) == "700 rows, 350 rows/s, 2.0 MB, 1.0 MB/s"


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 3), (1000.0, 0)])
def test_a_log_has_a_line_now_and_then(seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtlscale.cli.output.preparation._LINE_SECONDS", seconds)
    screen = io.StringIO()
    with PreparationBar(Console(file=screen, width=60), "amazon") as bar:
        for step in (("read", 700, 0, 2_000_000), ("encode", 0, 900, 0), ("encode", 900, 900, 4_000_000)):
            bar(*step)
    told = screen.getvalue().splitlines()
    assert len(told) == lines
    if lines:
        assert told[0] == "preparing amazon: read, 700 rows, 2.0 MB"
        assert told[-1] == "preparing amazon: encode, 900 of 900 rows, 4.0 MB"
