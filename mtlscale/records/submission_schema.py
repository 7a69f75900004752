"""Contributed results: a folder with an experiment, its records without epochs, and their provenance.

<folder>/experiment.yaml   the experiment, with the overrides it was run with; plugins beside it
<folder>/records.jsonl     one record a line, without data that identify the machine or its user
<folder>/results.json      `Provenance`
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtlscale.config import UserError
from mtlscale.records.record import RunRecord

EXPERIMENT, RECORDS, RESULTS = "experiment.yaml", "records.jsonl", "results.json"


@dataclass(frozen=True)
class Problem:
    """The description of a mistake in contributed results: the folder's file, the line, and the reason."""

    file: str
    line: int | None
    why: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.why}"


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
    return (folder / RESULTS).is_file() and (folder / RECORDS).is_file()


def read_lines(folder: Path) -> tuple[list[tuple[int, RunRecord]], list[Problem]]:
    """Return (line, record) of the readable records, and the problems of all other lines.

    Raises:
        UserError: If the file is missing.
    """
    records: list[tuple[int, RunRecord]] = []
    problems: list[Problem] = []
    line_of_run: dict[str, int] = {}

    for number, line in enumerate(_bytes(folder / RECORDS).splitlines(), 1):
        try:
            record = RunRecord.model_validate_json(line)
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


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); contributed results have {EXPERIMENT}, {RECORDS} and {RESULTS}"
        ) from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _line_of(content: bytes, error: ValidationError) -> int | None:
    """Return the approximate line of the first problem's key."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        match = re.search(r"line (\d+)", str(problem["msg"]))
        return int(match[1]) if match else None

    key = next((part for part in reversed(problem["loc"]) if isinstance(part, str)), None)
    lines = content.decode("utf-8", "replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if key is not None and json.dumps(key) in line), None)
