"""Tables in a terminal: nothing is cut off, whatever the width."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from mtlscale.report.cells.grid import Grid
from mtlscale.report.cells.sheet import Sheet, text_column

WORDS = st.text(st.sampled_from("abcß中±%_ "), max_size=60).map(lambda text: " ".join(text.split()))


def table(headers: list[str], rows: list[Any], **settings: dict[str, Any]) -> Grid:
    """Return a table of texts; `settings` are those of columns by their header."""
    texts = {header: [row[index] for row in rows] for index, header in enumerate(headers)}
    return Grid(Sheet(columns=[text_column(name, of, **settings.get(name, {})) for name, of in texts.items()]))


def printed(grid: Grid, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(grid)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(20, 160))
def test_no_line_is_longer_than_the_terminal_and_no_letter_is_lost(rows: list[tuple[str, ...]], width: int) -> None:
    lines = printed(table(["name", "what", "value"], rows, what={"prose": True}, value={"right": True}), width)
    assert max(map(cell_len, lines)) <= width
    text = "".join(lines).replace(" ", "")
    for letter in "ß±%_":
        cells = [cell for row in rows for cell in row[1:]]
        assert text.count(letter) >= sum(cell.count(letter) for cell in cells)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_names_and_numbers_stay_in_one_piece(width: int) -> None:
    names = ["stl", "a_method_with_a_name_of_36_characters", "equal"]
    headers = ["name", *(f"column{index}" for index in range(9))]
    rows = [[name, *(f"{index}.25 ± 0.125" for index in range(9))] for name in names]
    lines = printed(table(headers, rows), width)
    assert max(map(cell_len, lines)) <= width
    for text in (*names, *headers, *rows[0][1:]):
        assert any(text in line for line in lines), text
    assert "…" not in "".join(lines)


def test_a_name_longer_than_is_asked_takes_a_line_of_its_own() -> None:
    rows = [["a_name_of_24_characters_x", "1.5"], ["short", "2.5"]]
    grid = replace(table(["name", "value"], rows), longest_name=20)
    lines = printed(grid, 80)
    assert lines[2:] == ["a_name_of_24_characters_x", "         1.5".removeprefix("  "), "short  2.5"]
    assert "a_name_of_24_characters_x  1.5" in printed(replace(grid, longest_name=30), 80)


def test_markup_in_names_is_no_markup() -> None:
    assert any("[bold]x[/bold]" in line for line in printed(table(["n", "[red]"], [["[bold]x[/bold]", "1"]]), 80))
