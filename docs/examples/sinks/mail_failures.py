"""A sink that writes a line about each run that fails, where a mail program finds it."""

from __future__ import annotations

from pathlib import Path

from mtlscale.records import RunEnded


class FailureFile:
    """Appends one line for each run that has not finished."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, event: object) -> None:
        match event:
            case RunEnded(_, record) if record.status != "finished":
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(f"{record.dataset} · {record.method} · seed {record.seed}: {record.error}\n")
