"""Contributed results: a folder with an experiment, its records without epochs, and where they came from.

<folder>/experiment.yaml   the experiment, with the overrides it was run with; plugins beside it
<folder>/records.jsonl     one record a line, without what tells the machine or its user
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

from mtlscale.records.record import RunRecord
from mtlscale.spec import UserError

EXPERIMENT, RECORDS, RESULTS = "experiment.yaml", "records.jsonl", "results.json"


@dataclass(frozen=True)
class Problem:
    """What is wrong with contributed results: in which of the folder's files, in which line, and why."""

    file: str
    line: int | None
    why: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.why}"


class StatedRow(BaseModel):
    """A row of the leaderboard as it was stated; None where there is no such number."""

    model_config = ConfigDict(extra="forbid")

    runs: int
    average: float | None = None
    average_ci: float | None = None
    delta: float | None = None
    delta_ci: float | None = None
    verdict: str = ""


class Provenance(BaseModel):
    """Who contributed results, of what, computed by what, and what they say."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    experiment: str
    by: str = Field(min_length=1)  # as they want to be named
    note: str = ""
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")  # of the last run
    results_version: int  # of the training loop
    revisions: list[str]
    hardware: list[str]
    versions: dict[str, list[str]]  # library -> those that runs had
    plugins: dict[str, str]  # file beside the experiment -> its sha256
    data: dict[str, str]  # name of the prepared data -> their fingerprint
    records: str  # sha256 of their file
    leaderboard: dict[str, dict[str, StatedRow]]  # data set -> method


def records_of_results(folder: Path) -> list[RunRecord]:
    """The records of contributed results. `UserError` for the first line that is none."""
    lines, problems = read_lines(folder)
    if problems:
        raise UserError(f"{folder / str(problems[0])}; mtlscale validate-results {folder} says all")
    return [record for _, record in lines]


def is_results(folder: Path) -> bool:
    """Whether a folder has the form of contributed results."""
    return (folder / RESULTS).is_file() and (folder / RECORDS).is_file()


def read_lines(folder: Path) -> tuple[list[tuple[int, RunRecord]], list[Problem]]:
    """(line, record) of those that can be read, and what is wrong with the others. `UserError` without the file."""
    found: list[tuple[int, RunRecord]] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(_bytes(folder / RECORDS).splitlines(), 1):
        try:
            record = RunRecord.model_validate_json(line)
        except ValidationError as error:
            problems.append(Problem(RECORDS, number, _first(error)))
            continue
        first = seen.setdefault(record.run_id, number)
        if first != number:
            problems.append(Problem(RECORDS, number, f"run {record.run_id} stands in line {first} already"))
            continue
        found.append((number, record))
    if not found and not problems:
        problems.append(Problem(RECORDS, None, "there is no record"))
    return found, problems


def read_provenance(folder: Path) -> Provenance | Problem:
    """What the folder says of itself, or the first thing that is wrong with it. `UserError` without the file."""
    content = _bytes(folder / RESULTS)
    try:
        return Provenance.model_validate_json(content)
    except ValidationError as error:
        return Problem(RESULTS, _line_of(content, error), _first(error))


def records_hash(content: bytes) -> str:
    """The same however the file's lines end."""
    return hashlib.sha256(b"\n".join(content.splitlines())).hexdigest()


def in_lines(records: Iterable[RunRecord]) -> bytes:
    """The content of their file."""
    return b"".join(record.model_dump_json().encode() + b"\n" for record in records)


_PATH = re.compile(r"(?<![\w.:/])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"/\\,;:()]+[/\\])+(?=[^\s'\"/\\,;:()])")


def redacted(record: RunRecord, names: Iterable[str] = ()) -> RunRecord:
    """The record without epochs, and with paths cut to their last part. names: of machines and users, which are left
    out of what was said of hardware and errors."""
    said = {what: _without(_cut(getattr(record, what) or ""), names) for what in ("hardware", "error")}
    said["error"] = said["error"] or None  # type: ignore[assignment]
    spec = _plain(record.spec)
    return record.model_copy(update={**said, "spec": spec, "epochs": [], "trial": _plain(record.trial)})


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


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _line_of(content: bytes, error: ValidationError) -> int | None:
    """About where in the text the first problem's key stands."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        found = re.search(r"line (\d+)", str(problem["msg"]))
        return int(found[1]) if found else None
    key = next((part for part in reversed(problem["loc"]) if isinstance(part, str)), None)
    lines = content.decode("utf-8", "replace").splitlines()
    return next((n for n, line in enumerate(lines, 1) if key is not None and json.dumps(key) in line), None)
