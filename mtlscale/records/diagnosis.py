"""The result of a data set's diagnosis: the groups of tasks that belong together."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = 1  # raise when the form of the file changes

Rows = list[list[float | None]]


@dataclass(frozen=True)
class Matrix:
    """The matrix with a number for each pair of tasks, None where a pair has none.

    `about` explains the numbers to the reader.
    """

    title: str
    about: str
    values: Rows


@dataclass(frozen=True)
class Diagnosis:
    """Matrices by name, and the conclusions from one of them, `summary`.

    * `similarity`: the summary made symmetric; `margin`: by how much it may be off, None where that is unknown.
    * `merges`: the dendrogram, (node, node, mean similarity between them, tasks below); tasks come first, then the
      merges in their order.
    * `groups` and `two_groups`: positions of tasks.
    * `verdict`: whether the groups are more than a guess.
    * `across`: the effect of steps on tasks of other groups in batches that the groups were not chosen by, and its
      margin.
    * `left_out`: name of something left out -> the reason.
    """

    dataset: str
    fingerprint: str
    tasks: tuple[str, ...]
    settings: dict[str, Any]
    matrices: dict[str, Matrix]
    summary: str
    similarity: Rows
    margin: Rows
    merges: list[tuple[int, int, float, int]]
    groups: list[list[int]]
    two_groups: list[list[int]]
    sentence: str
    verdict: str = ""
    across: list[float | None] | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the diagnosis as JSON, with names of tasks instead of positions."""
        named_groups = {part: self.named(getattr(self, part)) for part in ("groups", "two_groups")}
        return json.dumps({"schema": SCHEMA, **asdict(self), **named_groups}, indent=1, allow_nan=False) + "\n"

    def named(self, groups: list[list[int]]) -> list[list[str]]:
        return [[self.tasks[task] for task in group] for group in groups]
