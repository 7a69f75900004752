"""The first experiment of README.md runs, for one epoch, and the one that is tuned; its commands are there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import typer

import mtlscale
from mtlscale.cli import app

README = Path(__file__).parents[1] / "README.md"
ONE_WORKER = ("resources.cpus_per_worker=4",)  # of `local_ray`: four of them import torch four times
EXAMPLES = README.parent / "docs" / "examples"


def write_examples(folder: Path) -> None:
    """The fenced blocks that begin with a file name."""
    for name, body in re.findall(r"```\w+\n# (\w+\.(?:py|yaml))\n(.*?)```", README.read_text(), re.DOTALL):
        (folder / name).write_text(body)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "methods", "fewer"),
    [
        ("first.yaml", {"stl", "equal", "mgda", "getmtl", "weighted"}, ("training.epochs=1",)),
        pytest.param("tuned.yaml", {"stl", "equal", "getmtl"}, (), marks=pytest.mark.slow),  # half a minute
    ],
)
def test_the_examples_run(
    name: str, methods: set[str], fewer: tuple[str, ...], tmp_path: Path, local_ray: None
) -> None:
    write_examples(tmp_path)
    shutil.copy(EXAMPLES / "tuned.yaml", tmp_path)
    assert mtlscale.load_experiment(tmp_path / name).training.epochs > 1  # as printed
    experiment = mtlscale.load_experiment(tmp_path / name, ("tracking.enabled=false", *ONE_WORKER, *fewer))
    results = mtlscale.run(experiment, home=tmp_path / "home")
    assert {r.method for r in results.records} == methods | {"constant", "linear"}
    assert {r.status for r in results.records} == {"finished"}, [r.error for r in results.records]
    assert all(method in results.leaderboard().to_markdown() for method in methods)


def test_its_commands_are_there() -> None:
    text = README.read_text(encoding="utf-8")
    table = text.split("## The commands")[1].split("\n## ")[0]
    named = re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)))
    known = set(typer.main.get_command(app).commands)
    assert len(named) > 10 and set(named) - {"mtlscale"} <= known
    assert set(re.findall(r"^mtlscale ([a-z-]+)", text, re.MULTILINE)) <= known
