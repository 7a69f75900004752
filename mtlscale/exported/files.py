"""What somebody named to be predicted: tables, lines of text, pictures, in parts that fit into memory."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mtlscale.data.manifest import MANIFEST
from mtlscale.spec import UserError

if TYPE_CHECKING:
    import pyarrow as pa

STDIN = "-"
TABLES = (".parquet", ".csv", ".tsv")
PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".ppm", ".tif", ".tiff", ".webp")
PART = 4096  # rows of a table, or lines, at a time; pictures a batch at a time
TASK = "task"  # the column of a table that says which task a row is of


@dataclass
class Part:
    """Some of the inputs: what `ExportedModel.read` takes, how messages and results call each of them, and the task
    that all of them are of, where they say so themselves."""

    inputs: Any
    names: Sequence[Any]
    column: str  # of the names: row, line or path
    task: str | None = None


def is_prepared(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def parts(named: Sequence[str], kind: str, *, by_task: bool, batch: int) -> Iterator[Part]:
    """The inputs in files or folders, or `-`: lines of text on standard input. `UserError` where they are nothing that
    a network of this kind of input reads.

    by_task: rows of tables with a column `task` are of that task alone; batch: pictures at a time.
    """
    if len(named) > 1:
        return _pictures([Path(name) for name in named], kind, batch)
    if named[0] == STDIN:
        return _lines(sys.stdin, "standard input", kind, batch)
    path = Path(named[0])
    if path.is_dir():
        return _folder(path, kind, batch)
    if not path.is_file():
        raise UserError(f"{path} does not exist; name a prepared set, a table, pictures, or a .txt file with texts")
    if path.suffix in TABLES:
        return _table(path, by_task)
    if path.suffix.lower() in PICTURES:
        return _pictures([path], kind, batch)
    if path.suffix == ".txt":
        return _file_of_lines(path, kind, batch)
    raise UserError(
        f"{path} is none of {', '.join((*TABLES, '.txt', *PICTURES))}; name one of these, or a prepared set's folder"
    )


def _cut(items: Iterable[Any], size: int) -> Iterator[list[tuple[int, Any]]]:
    """So many at a time, counted from 1."""
    numbered = iter(enumerate(items, 1))
    while some := list(itertools.islice(numbered, size)):
        yield some


def _folder(path: Path, kind: str, batch: int) -> Iterator[Part]:
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in PICTURES and file.is_file())
    if not found:
        raise UserError(f"{path} is no prepared set (no {MANIFEST}) and holds no picture ({', '.join(PICTURES)})")
    return _pictures(found, kind, batch)


def _pictures(paths: Sequence[Path], kind: str, batch: int) -> Iterator[Part]:
    if kind != "image":
        raise UserError(f"{paths[0]} is a picture, the model reads {kind}s; name a table or a prepared set")
    for some in _cut(paths, batch):
        names = [str(path) for _, path in some]
        yield Part([path for _, path in some], names, "path")


def _file_of_lines(path: Path, kind: str, batch: int) -> Iterator[Part]:
    with path.open(encoding="utf-8") as file:
        yield from _lines(file, str(path), kind, batch)


def _lines(file: TextIO, name: str, kind: str, batch: int) -> Iterator[Part]:
    """A text to a line, of a pair with a tab between; or, of pictures, a path."""
    if kind == "vector":
        raise UserError(f"{name} has lines of text, the model reads vectors; name a table (.csv, .parquet)")
    try:
        lines = (line.rstrip("\r\n") for line in file)
        if kind == "image":
            yield from _pictures([Path(line) for line in lines if line], kind, batch)
            return
        for some in _cut(lines, PART):
            texts = [tuple(line.split("\t", 1)) if "\t" in line else line for _, line in some]
            yield Part(texts, [number for number, _ in some], "line")
    except UnicodeDecodeError:
        raise UserError(f"{name} is not UTF-8; convert it") from None


def _table(path: Path, by_task: bool) -> Iterator[Part]:
    first = 0
    for table in _read(path):
        rows = range(first + 1, first + len(table) + 1)
        first += len(table)
        if by_task and TASK in table.column_names:
            yield from _of_tasks(table, rows)
        elif len(table):
            yield Part(table, rows, "row")
    if not first:
        raise UserError(f"{path} has no row; there is nothing to predict")


def _read(path: Path) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(PART):
                    yield pa.Table.from_batches([batch])
        else:
            how = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
            whole = csv.read_csv(path, parse_options=how, convert_options=csv.ConvertOptions(strings_can_be_null=True))
            yield from (whole.slice(start, PART) for start in range(0, len(whole), PART))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _of_tasks(table: pa.Table, rows: range) -> Iterator[Part]:
    """The rows of each task, in the order in which tasks first come."""
    tasks = table[TASK].to_pylist()
    for task in dict.fromkeys(tasks):
        places = [place for place, other in enumerate(tasks) if other == task]
        if task is None:
            raise UserError(f"row {rows[places[0]]} has no {TASK}; name the one it is of")
        yield Part(table.take(places).drop_columns(TASK), [rows[place] for place in places], "row", str(task))
