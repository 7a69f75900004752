"""What a shell completes, and that nothing heavy is imported for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtlscale.config import names, shipped

HEAVY = ("torch", "ray", "mlflow", "torchvision", "pandas", "numpy", "scipy", "vl_convert", "pyarrow")


# Imports are what a process of this takes longest for: each answer is of a fork of one that has the command line's.
ANSWER = f"""
import io, json, os, sys
from mtlscale.cli import app

for line in sys.stdin:
    cwd, environment = json.loads(line)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.chdir(cwd)
        os.environ.update(environment)
        try:
            app(prog_name='mtlscale')
        except SystemExit:
            pass
        print('\\nheavy', *[m for m in {HEAVY} if m in sys.modules], flush=True)
        os._exit(0)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said]), flush=True)
"""
Completed = Callable[..., list[str]]


@pytest.fixture(scope="module")
def completed() -> Iterator[Completed]:
    """Return what bash is offered behind some words, asked as its completion asks."""
    process = subprocess.Popen([sys.executable, "-c", ANSWER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    to, answers = process.stdin, process.stdout
    assert to is not None and answers is not None

    def ask(*words: str, cwd: Path, **environment: str) -> list[str]:
        asked = {
            "_MTLSCALE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("mtlscale", *words)),
            "COMP_CWORD": str(len(words)),
        }
        to.write(json.dumps([str(cwd), {**asked, **environment}]) + "\n")
        to.flush()
        code, said = json.loads(answers.readline())
        *offered, heavy = said.splitlines()
        assert code == 0 and heavy == "heavy", said
        return " ".join(offered).split()

    yield ask
    to.close()
    assert process.wait(60) == 0
    answers.close()


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
def test_names_are_completed(words: tuple[str, ...], expected: list[str], completed: Completed, tmp_path: Path) -> None:
    assert completed(*words, cwd=tmp_path) == expected


def test_runs_and_files_are_completed(completed: Completed, tmp_path: Path) -> None:
    for run_id in ("abc1", "abc2", "b"):
        (tmp_path / "home" / "runs" / run_id).mkdir(parents=True)
    assert completed("show", "ab", cwd=tmp_path, MTLSCALE_HOME=str(tmp_path / "home")) == ["abc1", "abc2"]
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "mine.txt").write_text("")
    assert completed("run", "min", cwd=tmp_path) == ["mine.yaml"]
