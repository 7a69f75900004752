"""Tables for a terminal of any width: nothing is cut off; columns without room stand in a block below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

GAP = 2  # between columns
LONG = 0.4  # share of the width; a longer name takes a line of its own
_SHORTEST = 16  # least width in cells of a column of prose, unless its texts are shorter


@dataclass(frozen=True, kw_only=True)
class Field:
    """Column with a text per row; a newline separates the lines of a text."""

    header: str
    texts: Sequence[str | Text]
    right: bool = False  # whether to align right, for numbers
    prose: bool = False  # whether to wrap between words where there is little room
    detail: bool = False  # whether to leave it out where not all columns fit side by side
    styles: Sequence[str] = ()  # of the rows, "" for none

    def cell(self, row: int) -> Text:
        text = self.texts[row]
        styled = text.copy() if isinstance(text, Text) else Text(text)
        if self.styles and self.styles[row]:
            styled.stylize(self.styles[row])
        return styled

    @property
    def natural(self) -> int:
        """The width in cells without wrapping."""
        lines = (line for text in self.texts for line in str(text).split("\n"))
        return max(cell_len(self.header), *map(cell_len, lines), 0)

    @property
    def min_width(self) -> int:
        """The width in cells below which words, or a text that is no prose, would be broken."""
        if not self.prose:
            return self.natural
        words = (word for text in self.texts for word in str(text).split())
        return min(self.natural, max(cell_len(self.header), _SHORTEST, *map(cell_len, words), 0))


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows with names and columns, printed by rich in as many blocks as the width requires, each with the names.

    `names` may be several columns, the last of which takes a line of its own where it is long. `hint` says how to see
    the details without room, and is printed where some are left out; "" keeps them, in further blocks.
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
        if hidden := self.left_out(width):
            yield Text(
                f"Not shown for want of room: {', '.join(column.header for column in hidden)}. {self.hint}", style="dim"
            )

    def width(self, limit: int | None = None) -> int:
        """Return the width in cells of all columns side by side."""
        room = 10**6 if limit is None else limit
        names = sum(width + GAP for width in self._names(room))
        return names + sum(column.min_width + GAP for column in self.fields) - GAP

    def left_out(self, width: int) -> list[Field]:
        """Return the details that do not fit beside the other columns; the last ones go first."""
        hidden: list[Field] = []
        for column in reversed([column for column in self.fields if column.detail]):
            if not self.hint or self._without(hidden).width(width) <= width:
                break
            hidden.insert(0, column)
        return hidden

    def table(self, console: Console, width: int) -> Iterator[Text]:
        """Yield the lines of all blocks."""
        shown = self._without(self.left_out(width))
        for number, block in enumerate(shown.blocks(width)):
            if number:
                yield Text()
            yield from shown._render_lines(console, block, width)

    def blocks(self, width: int) -> Iterator[list[Field]]:
        """Yield the columns side by side as far as they fit; a block has one at least."""
        room = width - sum(name_width + GAP for name_width in self._names(width))
        block: list[Field] = []
        for column in self.fields:
            if block and sum(member.min_width + GAP for member in (*block, column)) - GAP > room:
                yield block
                block = []
            block.append(column)
        if block or not self.fields:
            yield block

    def _without(self, gone: Sequence[Field]) -> Grid:
        return replace(self, fields=[column for column in self.fields if not any(column is hidden for hidden in gone)])

    def _names(self, width: int) -> list[int]:
        """Return the widths of the names' columns; a longer text in the last takes a line of its own."""
        *front, last_column = self.names
        widths = [column.natural for column in front]
        most = max(_SHORTEST, int(LONG * width) - sum(width + GAP for width in widths))
        short = [cell_len(str(text)) for text in last_column.texts if cell_len(str(text)) <= most]
        return [*widths, min(most, max([cell_len(last_column.header), *short]))]

    def _render_lines(self, console: Console, block: Sequence[Field], width: int) -> Iterator[Text]:
        names = self._names(width)
        columns = [*self.names, *block]
        widths = [*names, *_shares(block, width - sum(name_width + GAP for name_width in names))]
        yield _line([Text(column.header, style="bold") for column in columns], columns, widths)
        yield Text("─" * (sum(widths) + GAP * (len(widths) - 1)), style="dim")

        for row in range(len(self.names[-1].texts)):
            cells = [column.cell(row) for column in columns]
            style = self.styles[row] if self.styles else ""

            last_name = len(self.names) - 1
            if cell_len(cells[last_name].plain) > widths[last_name]:
                name_cells = [*cells[: last_name + 1], *(Text() for _ in block)]

                for line in _wrapped(
                    console, name_cells, [*widths[:last_name], width - sum(widths[:last_name]) - GAP * last_name]
                ):
                    yield _styled(_line(line, self.names, [*widths[:last_name], 0]), style)
                cells = [*(Text() for _ in self.names), *cells[last_name + 1 :]]
            for line in _wrapped(console, cells, widths):
                yield _styled(_line(line, columns, widths), style)


def _shares(block: Sequence[Field], room: int) -> list[int]:
    """Return the widths of the columns: the room that numbers need, and for prose a share of the remaining room."""
    widths = [min(column.min_width, room) for column in block]
    spare = room - sum(widths) - GAP * (len(block) - 1)
    growing = [index for index, column in enumerate(block) if column.natural > widths[index]]

    while spare > 0 and growing:
        for index in list(growing):
            if spare > 0 and widths[index] < block[index].natural:
                widths[index] += 1
                spare -= 1
        growing = [index for index in growing if widths[index] < block[index].natural]
    return widths


def _wrapped(console: Console, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[list[Text]]:
    """Yield the lines of one row, each with a text for every column."""
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
