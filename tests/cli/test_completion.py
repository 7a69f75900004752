"""What a shell completes, and that nothing heavy is imported for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtlscale.config import names, shipped

HEAVY = ("torch", "ray", "mlflow", "torchvision", "pandas", "numpy", "scipy", "matplotlib", "pyarrow")


def completed(*words: str, cwd: Path, **environment: str) -> list[str]:
    """What bash is offered behind these words, asked as its completion asks."""
    code = (
        "import sys\nfrom mtlscale.cli import app\n"
        "try:\n    app(prog_name='mtlscale')\n"
        f"finally:\n    print('heavy', *[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)\n"
    )
    asked = {
        "_MTLSCALE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("mtlscale", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **asked, **environment},
        timeout=60,
    )
    assert done.stderr.splitlines()[-1] == "heavy", done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ru",), ["run"]),
        (("run", "quickst"), [name for name in shipped() if name.startswith("quickst")]),
        (("run", "quickstart", "--only", "get"), ["getmtl"]),
        (("prepare", "newsg"), [name for name in (*names("datasets"), *shipped()) if name.startswith("newsg")]),
        (("list", "bal"), ["balancers"]),
        (("list", "balancers", "getmtl"), [name for name in names("balancers") if name.startswith("getmtl")]),
    ],
)
def test_names_are_completed(words: tuple[str, ...], expected: list[str], tmp_path: Path) -> None:
    assert completed(*words, cwd=tmp_path) == expected


def test_runs_and_files_are_completed(tmp_path: Path) -> None:
    for run_id in ("abc1", "abc2", "b"):
        (tmp_path / "home" / "runs" / run_id).mkdir(parents=True)
    assert completed("show", "ab", cwd=tmp_path, MTLSCALE_HOME=str(tmp_path / "home")) == ["abc1", "abc2"]
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "mine.txt").write_text("")
    assert completed("run", "min", cwd=tmp_path) == ["mine.yaml"]
