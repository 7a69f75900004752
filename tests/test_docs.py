"""The documents are true: what they link to and name exists, what they show runs."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mtlscale.data import load_prepared
from mtlscale.execution.prepare import prepare
from mtlscale.spec import load_experiment
from mtlscale.training import train

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md")),
]
FOLDERS = "mtlscale|pipelines|tests|docs|experiments|benchmarks|cluster"
EXTENDING = ROOT / "docs" / "extending.md"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def blocks(page: Path) -> list[str]:
    return re.findall(r"```\w*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() and ROOT in (target, *target.parents), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_names_of_the_code_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", prose(page)):
        for path in re.findall(rf"(?<![\w/.<])(?:{FOLDERS})/[\w./-]*\w", code):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"\bmtlscale(?:\.[a-zA-Z_]\w*)+", text)):
        resolve(name)


def resolve(name: str) -> Any:
    """The module, or what is in one, of this dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, last = name.rpartition(".")
        return getattr(resolve(parent), last)


def test_picture_and_page_show_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    _, picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8").split("<!-- the rooms -->")
    shown = re.findall(r'<text class="room" x="\d+" y="\d+">(\w+)</text>', picture)
    packages = [name for layer in layers[:-1] for name in layer.split(" | ")]
    assert [name for name in shown if name != "pipelines"] == packages  # from top to bottom
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert all(f"`mtlscale/{name}" in page for layer in layers for name in layer.split(" | "))


def test_the_files_of_the_page_on_extending_run(tmp_path: Path) -> None:
    for block in blocks(EXTENDING):
        if named := re.match(r"# (\w+\.(?:py|yaml))\n", block):
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    experiment = load_experiment(tmp_path / "mine.yaml", ("training.epochs=1",))
    data = load_prepared(prepare("digits", {}, None, tmp_path / "home"))
    records = [train(run, data) for run in experiment.runs({"digits": data.manifest.fingerprint})]
    assert [record.method for record in records] == [
        *("stl", "equal", "running_mean", "small_features"),
        *("constant", "linear"),  # the floors
    ]
    assert {record.status for record in records} == {"finished"}
    for record in records:
        found = record.metrics["test"]["digit0"]
        assert 50 <= found["balanced_accuracy"] <= 100 and found["balanced_accuracy"] != found["accuracy"]
    losses = [record.epochs[0].train_loss["digit0"] for record in records[1:4]]
    assert len(set(losses)) == len(losses)  # every method does something of its own


def test_the_experiment_with_an_example_runs_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [block for block in blocks(EXTENDING) if "train(run, data)" in block]
    told: list[tuple[str, float]] = []
    program = block.replace('bilevel.yaml")', 'bilevel.yaml", ("training.epochs=1",))').replace('"outputs"', "home")
    assert program.count("training.epochs=1") == program.count("Path(home)") == 1
    monkeypatch.chdir(ROOT)
    exec(program, {"home": tmp_path, "print": lambda method, found: told.append((method, found["accuracy"]))})
    assert [method for method, _ in told] == ["stl", "equal", "gated", "gated+mgda", "constant", "linear"]
    assert all(accuracy > 50 for method, accuracy in told if method != "constant")


def test_lines_shown_of_the_examples_are_theirs() -> None:
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "examples").glob("*.py")]
    known = {line.strip() for text in files for line in text.splitlines()}
    shown = [block for block in blocks(EXTENDING) if block.startswith(("def", "class"))]
    assert len(shown) == 3
    for block in shown:
        lines = {re.sub(r"  # of the .*", "", line).strip() for line in block.splitlines()}
        assert lines <= known, lines - known
