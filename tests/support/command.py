"""The command line within this process, through its own entry point."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from mtlscale.cli import main

LABELS = {"run", "dataset", "method", "seed"}
EVENTS = {  # as docs/commands.md has them
    "prepared": {"dataset", "folder", "fingerprint", "samples"},
    "planned": {"experiment", "runs", "done", "slots"},
    "started": LABELS,
    "epoch": LABELS | {"phase", "epoch", "epochs", "of", "train_loss", "val", "seconds"},
    "finished": LABELS | {"status", "error", "chosen_epoch", "metrics", "seconds"},
    "failed": LABELS | {"error"},
    "note": {"text"},
    "done": {"experiment", "runs", "failed", "seconds", "files"},
}


@dataclass(frozen=True)
class Done:
    """How a command ended. Whatever it raised has come out of `mtlscale`, as a traceback would."""

    code: int
    stdout: str
    stderr: str


def mtlscale(*arguments: str | Path) -> Done:
    out, error = io.StringIO(), io.StringIO()
    code: object = 0
    given = patch.object(sys, "argv", ["mtlscale", *map(str, arguments)])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), given:
        try:
            main()
        except SystemExit as end:
            code = end.code
    return Done(code if isinstance(code, int) else 0 if code is None else 1, out.getvalue(), error.getvalue())


def refused(*arguments: str | Path) -> str:
    """The one line of a command that ends with status 2."""
    done = mtlscale(*arguments)
    assert done.code == 2, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("mtlscale: "), done.stderr
    return lines[0].removeprefix("mtlscale: ")
