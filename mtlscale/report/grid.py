"""Tables for a terminal of any width: nothing is cut off, columns that find no room stand in a block below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

GAP = 2  # between columns
LONG = 0.4  # of the width: a longer name takes a line of its own
_SHORTEST = 16  # cells of a column of prose, unless it has less to say


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column: a text per row, lines apart by "\\n"."""

    header: str
    texts: Sequence[str | Text]
    right: bool = False  # numbers
    prose: bool = False  # wrapped between words where there is little room; other texts stay in one piece
    detail: bool = False  # left out first, where not all columns fit side by side
    styles: Sequence[str] = ()  # of the rows, "" for none

    def cell(self, row: int) -> Text:
        text = self.texts[row]
        found = text.copy() if isinstance(text, Text) else Text(text)
        if self.styles and self.styles[row]:
            found.stylize(self.styles[row])
        return found

    @property
    def natural(self) -> int:
        """Cells that it takes without wrapping."""
        lines = (line for text in self.texts for line in str(text).split("\n"))
        return max(cell_len(self.header), *map(cell_len, lines), 0)

    @property
    def least(self) -> int:
        """Cells below which words, or a text that is no prose, would be broken."""
        if not self.prose:
            return self.natural
        words = (word for text in self.texts for word in str(text).split())
        return min(self.natural, max(cell_len(self.header), _SHORTEST, *map(cell_len, words), 0))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows with names and columns; printed by rich in as many blocks as the width asks for, each with the names.

    `names` may be several columns, the last of which takes a line of its own where it is long. `hint`: how to see the
    details that found no room, said where some were left out; "" keeps them, in further blocks.
    """

    names: Sequence[Field]
    fields: Sequence[Field]
    title: str = ""
    hint: str = ""
    styles: Sequence[str] = field(default=())  # of whole rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        if self.title:
            yield Text(self.title, style="bold")
        yield from self.table(console, width)
        if gone := self.left_out(width):
            yield Text(f"Not shown for want of room: {', '.join(one.header for one in gone)}. {self.hint}", style="dim")

    def width(self, most: int | None = None) -> int:
        """Cells that all columns side by side take."""
        room = 10**6 if most is None else most
        names = sum(width + GAP for width in self._names(room))
        return names + sum(one.least + GAP for one in self.fields) - GAP

    def left_out(self, width: int) -> list[Field]:
        """The details that do not fit beside the rest; those behind go first."""
        gone: list[Field] = []
        for one in reversed([one for one in self.fields if one.detail]):
            if not self.hint or self._without(gone).width(width) <= width:
                break
            gone.insert(0, one)
        return gone

    def table(self, console: Console, width: int) -> Iterator[Text]:
        """The lines of all blocks."""
        shown = self._without(self.left_out(width))
        for number, block in enumerate(shown.blocks(width)):
            if number:
                yield Text()
            yield from shown._lines(console, block, width)

    def blocks(self, width: int) -> Iterator[list[Field]]:
        """The columns side by side as far as they fit; a block has one at least."""
        room = width - sum(one + GAP for one in self._names(width))
        block: list[Field] = []
        for one in self.fields:
            if block and sum(other.least + GAP for other in (*block, one)) - GAP > room:
                yield block
                block = []
            block.append(one)
        if block or not self.fields:
            yield block

    def _without(self, gone: Sequence[Field]) -> Grid:
        return replace(self, fields=[one for one in self.fields if not any(one is other for other in gone)])

    def _names(self, width: int) -> list[int]:
        """The widths of the names' columns; those that are longer than the last take a line of their own."""
        *front, last = self.names
        widths = [one.natural for one in front]
        most = max(_SHORTEST, int(LONG * width) - sum(width + GAP for width in widths))
        short = [cell_len(str(text)) for text in last.texts if cell_len(str(text)) <= most]
        return [*widths, min(most, max([cell_len(last.header), *short]))]

    def _lines(self, console: Console, block: Sequence[Field], width: int) -> Iterator[Text]:
        names = self._names(width)
        columns = [*self.names, *block]
        widths = [*names, *_shares(block, width - sum(one + GAP for one in names))]
        yield _line([Text(one.header, style="bold") for one in columns], columns, widths)
        yield Text("─" * (sum(widths) + GAP * (len(widths) - 1)), style="dim")
        for row in range(len(self.names[-1].texts)):
            cells = [one.cell(row) for one in columns]
            style = self.styles[row] if self.styles else ""
            place = len(self.names) - 1
            if cell_len(cells[place].plain) > widths[place]:
                alone = [*cells[: place + 1], *(Text() for _ in block)]
                for line in _wrapped(console, alone, [*widths[:place], width - sum(widths[:place]) - GAP * place]):
                    yield _styled(_line(line, self.names, [*widths[:place], 0]), style)
                cells = [*(Text() for _ in self.names), *cells[place + 1 :]]
            for line in _wrapped(console, cells, widths):
                yield _styled(_line(line, columns, widths), style)


def _shares(block: Sequence[Field], room: int) -> list[int]:
    """Widths of the columns: what numbers need, and for prose a share of the rest."""
    widths = [min(one.least, room) for one in block]
    spare = room - sum(widths) - GAP * (len(block) - 1)
    growing = [index for index, one in enumerate(block) if one.natural > widths[index]]
    while spare > 0 and growing:
        for index in list(growing):
            if spare > 0 and widths[index] < block[index].natural:
                widths[index] += 1
                spare -= 1
        growing = [index for index in growing if widths[index] < block[index].natural]
    return widths


def _wrapped(console: Console, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[list[Text]]:
    """The lines of one row, a text of each column in each."""
    wrapped = [
        list(cell.wrap(console, max(1, width), overflow="fold")) for cell, width in zip(cells, widths, strict=False)
    ]
    for number in range(max(map(len, wrapped), default=0)):
        yield [lines[number] if number < len(lines) else Text() for lines in wrapped]


def _line(cells: Sequence[Text], columns: Sequence[Field], widths: Sequence[int]) -> Text:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=False):
        pad = " " * max(0, width - cell_len(cell.plain))
        parts.append(Text.assemble(pad, cell) if column.right else Text.assemble(cell, pad))
    line = Text((" " * GAP), no_wrap=True).join(parts)
    line.rstrip()
    return line


def _styled(line: Text, style: str) -> Text:
    if style:
        line.stylize(style)
    return line
