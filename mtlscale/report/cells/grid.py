"""Tables for a terminal of any width: nothing is cut off; columns without room stand in a block below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from mtlscale.report.cells.number_format import EMPTY
from mtlscale.report.cells.sheet import Column, Sheet, TableCell

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

GAP = 2  # between columns
LONG = 0.4  # share of the width; a longer name takes a line of its own
_STYLES = {"best": "bold", "far": "bold", "gain": "green", "loss": "red"}  # of marks
_SHORTEST = 16  # least width in cells of a column of prose, unless its texts are shorter


@dataclass(frozen=True)
class Grid:
    """Table that rich prints in as many blocks as the width requires, each with the names of the rows.

    A name that is longer than `longest_name` takes a line of its own; None leaves that to the width.
    """

    sheet: Sheet
    longest_name: int | None = None

    @property
    def names(self) -> Sequence[Column]:
        return self.sheet.columns[: self.sheet.names]

    @property
    def fields(self) -> Sequence[Column]:
        return self.sheet.columns[self.sheet.names :]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        if self.sheet.title:
            yield Text(self.sheet.title, style="bold")
        yield from self.table(console, width)

    def width(self, limit: int | None = None) -> int:
        """Return the width in cells of all columns side by side."""
        room = 10**6 if limit is None else limit
        names = sum(width + GAP for width in self._names(room))
        return names + sum(_min_width(column) + GAP for column in self.fields) - GAP

    def names_width(self, limit: int) -> int:
        """Return the width in cells of the columns of names."""
        return sum(width + GAP for width in self._names(limit)) - GAP

    def table(self, console: Console, width: int) -> Iterator[Text]:
        """Yield the lines of all blocks."""
        for number, block in enumerate(self.blocks(width)):
            if number:
                yield Text()
            yield from self._render_lines(console, block, width)

    def blocks(self, width: int) -> Iterator[list[Column]]:
        """Yield the columns side by side as far as they fit; a block has one at least."""
        room = width - sum(name_width + GAP for name_width in self._names(width))
        block: list[Column] = []
        for column in self.fields:
            if block and sum(_min_width(member) + GAP for member in (*block, column)) - GAP > room:
                yield block
                block = []
            block.append(column)
        if block or not self.fields:
            yield block

    def _names(self, width: int) -> list[int]:
        """Return the widths of the names' columns; a longer text in the last takes a line of its own."""
        *front, last_column = self.names
        widths = [_natural(column) for column in front]
        room = int(LONG * width) if self.longest_name is None else self.longest_name
        most = max(_SHORTEST, room - sum(width + GAP for width in widths))
        short = [length for length in map(cell_len, last_column.texts) if length <= most]
        return [*widths, min(most, max([cell_len(last_column.header), *short]))]

    def _render_lines(self, console: Console, block: Sequence[Column], width: int) -> Iterator[Text]:
        names = self._names(width)
        columns = [*self.names, *block]
        widths = [*names, *_shares(block, width - sum(name_width + GAP for name_width in names))]
        yield _line([Text(column.header, style="bold") for column in columns], columns, widths)
        yield Text("─" * (sum(widths) + GAP * (len(widths) - 1)), style="dim")

        last_name = len(self.names) - 1
        for row in zip(*(column.cells for column in columns), strict=True):
            cells = [_text(cell) for cell in row]
            if cell_len(cells[last_name].plain) > widths[last_name]:
                front = widths[:last_name]
                for line in _wrapped(console, cells[: last_name + 1], [*front, width - sum(front) - GAP * last_name]):
                    yield _line(line, self.names, [*front, 0])
                cells = [*(Text() for _ in self.names), *cells[last_name + 1 :]]
            for line in _wrapped(console, cells, widths):
                yield _line(line, columns, widths)


def _text(cell: TableCell) -> Text:
    """Return the text of a cell: the best is bold, tested differences are green and red; size alone has no colour."""
    if cell.text == EMPTY:
        return Text(cell.text, style="dim")
    return Text(cell.text, style=" ".join(_STYLES[mark] for mark in cell.mark.split() if mark in _STYLES))


def _natural(column: Column) -> int:
    """Return the width in cells without wrapping."""
    lines = (line for text in column.texts for line in text.split("\n"))
    return max(cell_len(column.header), *map(cell_len, lines), 0)


def _min_width(column: Column) -> int:
    """Return the width in cells below which words, or a text that is no prose, would be broken."""
    natural = _natural(column)
    if not column.prose:
        return natural
    words = (word for text in column.texts for word in text.split())
    return min(natural, max(cell_len(column.header), _SHORTEST, *map(cell_len, words), 0))


def _shares(block: Sequence[Column], room: int) -> list[int]:
    """Return the widths of the columns: the room that numbers need, and for prose a share of the remaining room."""
    widths = [min(_min_width(column), room) for column in block]
    spare = room - sum(widths) - GAP * (len(block) - 1)
    growing = [index for index, column in enumerate(block) if _natural(column) > widths[index]]

    while spare > 0 and growing:
        for index in list(growing):
            if spare > 0 and widths[index] < _natural(block[index]):
                widths[index] += 1
                spare -= 1
        growing = [index for index in growing if widths[index] < _natural(block[index])]
    return widths


def _wrapped(console: Console, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[list[Text]]:
    """Yield the lines of one row, each with a text for every column."""
    wrapped = [
        list(cell.wrap(console, max(1, width), overflow="fold")) for cell, width in zip(cells, widths, strict=False)
    ]
    for number in range(max(map(len, wrapped), default=0)):
        yield [lines[number] if number < len(lines) else Text() for lines in wrapped]


def _line(cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=False):
        pad = " " * max(0, width - cell_len(cell.plain))
        parts.append(Text.assemble(pad, cell) if column.right else Text.assemble(cell, pad))
    line = Text((" " * GAP), no_wrap=True).join(parts)
    line.rstrip()
    return line
