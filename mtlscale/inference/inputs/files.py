"""Readers of files to predict: tables, lines of text and pictures, in parts that fit into memory."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mtlscale.config import UserError
from mtlscale.data.format.manifest import MANIFEST
from mtlscale.data.tables.raw_files import LATIN_1, WINDOWS, decoded, is_hidden, suffix_of, unpacked
from mtlscale.data.tables.table_format import SUFFIXES, TableFormat, is_table_file

if TYPE_CHECKING:
    import pyarrow as pa

STDIN = "-"
PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".ppm", ".tif", ".tiff", ".webp")
CHUNK_SIZE = 4096  # rows of a table, or lines, in a part; pictures come in batches
TASK = "task"  # the column of a table that names the task of each row


@dataclass
class InputChunk:
    """Part of the inputs, in the form that `Reader.some` takes.

    `names` say how messages and results call each input; `task` is the task of all of them, if the file names one.
    """

    inputs: Any
    names: Sequence[Any]
    column: str  # of the names: row, line or path
    task: str | None = None


def is_prepared(path: Path) -> bool:
    """Return whether a path is the folder of a prepared set."""
    return (path / MANIFEST).is_file()


def input_chunks(
    named: Sequence[str], kind: str, form: TableFormat, texts: Collection[str], *, by_task: bool, batch: int
) -> Iterator[InputChunk]:
    """Read the inputs in files or folders, or lines of text on standard input for `-`.

    Args:
        named: One file or folder, several pictures, or `-`.
        form: How tables are written.
        texts: Columns of tables that are read as texts, whatever their cells look like.
        by_task: Split tables with a column `task`, so that the rows of a part belong to one task.
        batch: Number of pictures in a part.

    Raises:
        UserError: The inputs are nothing that a network of this kind reads.
    """
    if len(named) > 1:
        return _pictures([Path(name) for name in named], kind, batch)
    if named[0] == STDIN:
        return _text_lines(sys.stdin, "standard input", kind, batch)

    path = Path(named[0])
    if path.is_dir():
        return _folder(path, kind, batch)
    if not path.is_file():
        raise UserError(f"{path} does not exist; name a prepared set, a table, pictures, or a .txt file with texts")

    if is_table_file(path):
        return _table(path, form, texts, by_task)
    if path.suffix.lower() in PICTURES:
        return _pictures([path], kind, batch)
    if suffix_of(path.name) == ".txt":
        return _file_of_lines(path, kind, batch)

    raise UserError(
        f"{path} is none of {', '.join((*SUFFIXES, '.txt', *PICTURES))}; name one of these, or a prepared set's folder"
    )


def _cut(items: Iterable[Any], size: int) -> Iterator[list[tuple[int, Any]]]:
    """Yield lists of up to `size` items with their numbers, counted from 1."""
    numbered = iter(enumerate(items, 1))
    while chunk := list(itertools.islice(numbered, size)):
        yield chunk


def _folder(path: Path, kind: str, batch: int) -> Iterator[InputChunk]:
    pictures = sorted(
        file
        for file in path.rglob("*")
        if file.suffix.lower() in PICTURES and file.is_file() and not is_hidden(file.relative_to(path).as_posix())
    )
    if not pictures:
        raise UserError(f"{path} is no prepared set (no {MANIFEST}) and holds no picture ({', '.join(PICTURES)})")
    return _pictures(pictures, kind, batch)


def _pictures(paths: Sequence[Path], kind: str, batch: int) -> Iterator[InputChunk]:
    if kind != "image":
        raise UserError(f"{paths[0]} is a picture, the model reads {kind}s; name a table or a prepared set")
    for chunk in _cut(paths, batch):
        names = [str(path) for _, path in chunk]
        yield InputChunk([path for _, path in chunk], names, "path")


def _file_of_lines(path: Path, kind: str, batch: int) -> Iterator[InputChunk]:
    text, encoding = decoded(str(path), unpacked(str(path), path))
    if encoding in (LATIN_1, WINDOWS):
        raise UserError(f"{path} is not UTF-8; convert it")
    yield from _text_lines(io.StringIO(text), str(path), kind, batch)


def _text_lines(file: TextIO, name: str, kind: str, batch: int) -> Iterator[InputChunk]:
    """Read one text per line, or a pair of texts with a tab between; for image models, one path per line."""
    if kind == "vector":
        raise UserError(f"{name} has lines of text, the model reads vectors; name a table (.csv, .parquet)")

    try:
        lines = (line.rstrip("\r\n") for line in file)
        if kind == "image":
            yield from _pictures([Path(line) for line in lines if line], kind, batch)
            return
        for chunk in _cut(lines, CHUNK_SIZE):
            texts = [tuple(line.split("\t", 1)) if "\t" in line else line for _, line in chunk]
            yield InputChunk(texts, [number for number, _ in chunk], "line")
    except UnicodeDecodeError:
        raise UserError(f"{name} is not UTF-8; convert it") from None


def _table(path: Path, form: TableFormat, texts: Collection[str], by_task: bool) -> Iterator[InputChunk]:
    first = 0
    for table, numbers in _read_file(path, form, texts):
        rows = [number + 1 for number in numbers]
        first += len(table)
        if by_task and TASK in table.column_names:
            yield from _of_tasks(table, rows)
        elif len(table):
            yield InputChunk(table, rows, "row")
    if not first:
        raise UserError(f"{path} has no row; there is nothing to predict")


def _read_file(path: Path, form: TableFormat, texts: Collection[str]) -> Iterator[tuple[pa.Table, Sequence[int]]]:
    """Yield the rows of a file in parts, and their numbers from 0."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mtlscale.data.tables.arrow_types import plain_table
    from mtlscale.data.tables.table_file import PARQUET, ROW, emptied, first_line, read_table

    with path.open("rb") as file:
        is_parquet = file.read(len(PARQUET)) == PARQUET
    if not is_parquet:
        read = read_table(path, form, where=str(path), texts=texts)
        if read.problems:
            raise UserError(f"{path}: {' '.join(read.problems[0])}; mend it")
        for start in range(0, len(read.table), CHUNK_SIZE):
            chunk = read.table.slice(start, CHUNK_SIZE)
            yield chunk.drop_columns([ROW]), chunk[ROW].to_pylist()
        return

    try:
        with pq.ParquetFile(path) as parquet:
            first = 0
            for batch in parquet.iter_batches(CHUNK_SIZE):
                yield (
                    emptied(plain_table(pa.Table.from_batches([batch])), form.missing),
                    range(first, first + len(batch)),
                )
                first += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from None


def _of_tasks(table: pa.Table, rows: Sequence[int]) -> Iterator[InputChunk]:
    """Yield the rows of each task, in the order in which the tasks first appear."""
    tasks = table[TASK].to_pylist()
    for task in dict.fromkeys(tasks):
        indices = [index for index, row_task in enumerate(tasks) if row_task == task]
        if task is None:
            raise UserError(f"row {rows[indices[0]]} has no {TASK}; name the one it is of")
        yield InputChunk(table.take(indices).drop_columns(TASK), [rows[index] for index in indices], "row", str(task))
