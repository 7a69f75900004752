"""Tables on a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console

from mtlscale.cli.output.grid import grid


def test_what_is_copied_is_not_folded_where_others_are_long() -> None:
    job, message, command = (
        "raysubmit_QdXThuNidkqpsbVj",
        "stopped " * 12,
        "python -m mtlscale.cli run " + "/folder" * 20,
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(grid(("job", "status", "command"), [(job, message, command)], whole=("job",)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert job in text and max(map(len, text.splitlines())) <= 80
    console.file = io.StringIO()
    console.print(grid(("job", "status", "command"), [(job, message, command)]))
    assert job not in console.file.getvalue()
