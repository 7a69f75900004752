"""What is written never ends a command: terminals, pipes and logs that lack signs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = "print('84.1 ± 0.3 · Δ − é 温度 \\udcff …'); print('≈ ⠋', file=sys.stderr)"
CODE = f"import sys; from mtlscale.cli.output.streams import make_tolerant; make_tolerant(); {SAYS}"


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("ascii", "84.1 ~ 0.3 - D - e ?? ? ."),
        ("iso-8859-1", "84.1 ± 0.3 · D - é ?? ? ."),
        ("cp1252", "84.1 ± 0.3 · D - é ?? ? …"),
        ("utf-8", "84.1 ± 0.3 · Δ − é 温度 ? …"),
    ],
)
def test_signs_that_an_encoding_lacks_are_written_otherwise(encoding: str, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=os.environ | {"PYTHONIOENCODING": encoding}, capture_output=True
    )
    assert done.returncode == 0 and done.stdout.decode(encoding).rstrip("\n") == line


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
    ],
)
@pytest.mark.parametrize("command", [["list", "methods"], ["list", "datasets"], ["run", "quickstart", "--dry-run"]])
def test_commands_print_to_every_terminal(environment: dict[str, str], command: list[str], tmp_path: Path) -> None:
    where = os.environ | environment | {"MTLSCALE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "mtlscale.cli", *command], env=where, capture_output=True)
    assert done.returncode == 0 and done.stdout and b"Traceback" not in done.stderr
