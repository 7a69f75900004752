"""Contributed results: a folder with an experiment, its records without epochs, and their provenance.

<folder>/experiment.yaml   the experiment, with the overrides it was run with; plugins beside it
<folder>/records.jsonl     one record a line, without data that identify the machine or its user; packed where they are
                           many: records.jsonl.gz
<folder>/results.json      `Provenance`
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtlscale.config import UserError
from mtlscale.records.files import write_atomically
from mtlscale.records.record import RunRecord

EXPERIMENT, RECORDS, RESULTS = "experiment.yaml", "records.jsonl", "results.json"
PACKED = f"{RECORDS}.gz"
_PACKED_BYTES = 1 << 20  # of records, from which they are packed
MOST_BYTES = 128 << 20  # of one file of a folder; a record without epochs takes about 4 kB
MOST_LINES = 20_000  # of the records, so that reading a folder takes no more than about 1 GB
MOST_ENTRIES = 1_000  # files in a folder
_LONGEST = 400  # characters of a message


@dataclass(frozen=True)
class Problem:
    """The description of a mistake in contributed results: the folder's file, the line, and the reason."""

    file: str
    line: int | None
    why: str

    def __str__(self) -> str:
        """Return one line, whatever the contributor has written into names and values."""
        text = f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.why}"
        shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
        return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} …"


class StatedRow(BaseModel):
    """The leaderboard row as the contributor stated it; None for numbers that do not exist."""

    model_config = ConfigDict(extra="forbid")

    runs: int
    average: float | None = None
    average_ci: float | None = None
    delta: float | None = None
    delta_ci: float | None = None
    verdict: str = ""


class Provenance(BaseModel):
    """The origin of contributed results: contributor, experiment, hardware, code and data, and the stated results."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    experiment: str
    by: str = Field(min_length=1)  # the contributors' chosen name
    note: str = ""
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")  # of the last run
    results_version: int  # of the training loop
    revisions: list[str]
    hardware: list[str]
    versions: dict[str, list[str]]  # library -> versions that runs had
    plugins: dict[str, str]  # file beside the experiment -> its sha256
    data: dict[str, str]  # name of the prepared data -> their fingerprint
    records: str  # sha256 of the records' file
    leaderboard: dict[str, dict[str, StatedRow]]  # data set -> method


def records_of_results(folder: Path) -> list[RunRecord]:
    """Return the records of contributed results.

    Raises:
        UserError: For the first line that is no record.
    """
    lines, problems = read_lines(folder)
    if problems:
        raise UserError(f"{folder / str(problems[0])}; mtlscale validate-results {folder} says all")
    return [record for _, record in lines]


def is_results(folder: Path) -> bool:
    """Return whether a folder has the form of contributed results."""
    return (folder / RESULTS).is_file() and any((folder / name).is_file() for name in (RECORDS, PACKED))


def read_lines(folder: Path) -> tuple[list[tuple[int, RunRecord]], list[Problem]]:
    """Return (line, record) of the readable records, and the problems of all other lines.

    Raises:
        UserError: If the file is missing.
    """
    records: list[tuple[int, RunRecord]] = []
    problems: list[Problem] = []
    line_of_run: dict[str, int] = {}

    for number, line in enumerate(_lines(folder), 1):
        try:
            record = _record(line)
        except ValidationError as error:
            problems.append(Problem(RECORDS, number, _first_problem(error)))
            continue

        first_line = line_of_run.setdefault(record.run_id, number)
        if first_line != number:
            problems.append(Problem(RECORDS, number, f"run {record.run_id} stands in line {first_line} already"))
            continue
        records.append((number, record))

    if not records and not problems:
        problems.append(Problem(RECORDS, None, "there is no record"))
    return records, problems


def write_records(folder: Path, content: bytes) -> None:
    """Write the content of a records file, packed if it is large."""
    if len(content) > _PACKED_BYTES:
        write_atomically(folder / PACKED, gzip.compress(content, mtime=0))
    else:
        write_atomically(folder / RECORDS, content)


def records_content(folder: Path) -> bytes:
    """Return the content of a records file, packed or not, of a bounded size.

    Raises:
        UserError: If the file is missing, too large, or damaged.
    """
    path = folder / PACKED
    if (folder / RECORDS).exists() or not path.exists():
        return _bytes(folder / RECORDS)
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(_bytes(path))).read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be unpacked ({error})") from None
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MiB; contribute several experiments")
    return content


def read_provenance(folder: Path) -> Provenance | Problem:
    """Return the folder's provenance, or the first problem in it.

    Raises:
        UserError: If the file is missing.
    """
    content = _bytes(folder / RESULTS)
    try:
        return Provenance.model_validate_json(content)
    except ValidationError as error:
        return Problem(RESULTS, _line_of(content, error), _first_problem(error))


def records_hash(content: bytes) -> str:
    """Return the hash of a records file; it does not depend on the kind of line ends."""
    return hashlib.sha256(b"\n".join(content.splitlines())).hexdigest()


def in_lines(records: Iterable[RunRecord]) -> bytes:
    """Return the content of a records file."""
    return b"".join(record.model_dump_json().encode() + b"\n" for record in records)


_PATH = re.compile(r"(?<![\w.:/])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"/\\,;:()]+[/\\])+(?=[^\s'\"/\\,;:()])")


def redacted(record: RunRecord, names: Iterable[str] = ()) -> RunRecord:
    """Return a record without epochs, and with paths cut to their last part.

    Args:
        record: The record of a run.
        names: Names of machines and users, which are removed from the texts on hardware and errors.
    """
    texts = {field: _without(_cut(getattr(record, field) or ""), names) for field in ("hardware", "error")}
    texts["error"] = texts["error"] or None  # type: ignore[assignment]

    spec = _plain(record.spec)
    return record.model_copy(update={**texts, "spec": spec, "epochs": [], "trial": _plain(record.trial)})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> str:
    return _PATH.sub("", text)


def _without(text: str, names: Iterable[str]) -> str:
    for name in names:
        text = re.sub(rf"\b{re.escape(name)}\b", "…", text)
    return text


def check_files(folder: Path) -> None:
    """Check that a folder has files alone, so that reading it reads nothing elsewhere.

    Raises:
        UserError: For a link, a device or the like, and for far too many files.
    """
    for count, path in enumerate(folder.rglob("*") if folder.is_dir() else (), 1):
        if path.is_symlink():
            raise UserError(f"{path} is a link; put the file itself into the folder")
        if not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is no file; remove it from the folder")
        if count > MOST_ENTRIES:
            raise UserError(f"{folder} holds more than {MOST_ENTRIES:,} files; results have {EXPERIMENT}, {RECORDS}, …")


def _bytes(path: Path) -> bytes:
    """Return the content of a file, which is no link and of a bounded size."""
    try:
        # A pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{path} is no file; contributed results have {EXPERIMENT}, {RECORDS} and {RESULTS}")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        reason = "it is a link" if path.is_symlink() else error.strerror
        raise UserError(
            f"{path} cannot be read ({reason}); contributed results have {EXPERIMENT}, {RECORDS} and {RESULTS}"
        ) from None
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MiB; contribute several experiments")
    return content


def _lines(folder: Path) -> list[bytes]:
    """Return the lines of a records file of a bounded length."""
    content = records_content(folder)
    count = max(content.count(b"\n"), content.count(b"\r"))
    if count > MOST_LINES:
        raise UserError(
            f"{folder / RECORDS} has {count:,} lines, more than {MOST_LINES:,}; contribute several experiments"
        )
    return content.splitlines()


_NON_FINITE = ("NaN", "Infinity", "-Infinity")  # numbers that JSON lacks, as records write them


def _record(line: bytes) -> RunRecord:
    """Parse a record's line strictly: a number is no text, except for NaN and infinities."""
    try:
        return RunRecord.model_validate_json(line, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        if not all(problem["type"] == "float_type" and problem["input"] in _NON_FINITE for problem in problems):
            raise
    return RunRecord.model_validate_json(line)


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    problem = next((problem for problem in problems if problem["input"] not in _NON_FINITE), problems[0])
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _line_of(content: bytes, error: ValidationError) -> int | None:
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        match = re.search(r"line (\d+)", str(problem["msg"]))
        return int(match[1]) if match else None

    key = next((part for part in reversed(problem["loc"]) if isinstance(part, str)), None)
    lines = content.decode("utf-8", "replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if key is not None and json.dumps(key) in line), None)
