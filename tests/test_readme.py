"""README.md is true: its experiment runs, its commands and methods exist, its BibTeX entry is the citation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import typer
import yaml

import mtlscale
from mtlscale.cli import app
from mtlscale.config.registry.components import component, names

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
        ("first.yaml", {"stl", "equal", "mgda", "getmtl", "uncertainty"}, ("training.epochs=1",)),
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


def test_the_leaderboard_shown_has_the_rows_of_the_file_above_it() -> None:
    file, board = re.findall(r"```(?:yaml|text)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[:2]
    rows = re.findall(r"^([\w-]+) .* (\d+/\d+)$", board, re.MULTILINE)
    content = yaml.safe_load(file)
    assert {method for method, _ in rows} == {*content["methods"], "constant", "linear"}
    assert {runs for _, runs in rows} == {f"{len(content['seeds'])}/{len(content['seeds'])}"}


def test_its_table_of_methods_has_them_all_with_the_years_of_their_papers() -> None:
    text = README.read_text(encoding="utf-8").partition("## The methods")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"`(\w+)` \(([^)]*)\)", text))
    kinds = ("balancers", "architectures", "objectives")
    sources = {name: component(kind, name).source for kind in kinds for name in names(kind, plugins=False)}
    assert shown.keys() == sources.keys()
    for name, source in sources.items():
        years = re.findall(r"\b(?:19|20)\d\d\b", shown[name])
        assert set(years) <= set(re.findall(r"\b(?:19|20)\d\d\b", source)), name
        assert years or shown[name] == "own" or shown[name] in source, name


def test_its_entry_for_bibtex_is_the_citation() -> None:
    fields = dict(re.findall(r"(\w+) += \{+(.*?)\}+,", README.read_text(encoding="utf-8")))
    citation = yaml.safe_load((README.parent / "CITATION.cff").read_text(encoding="utf-8"))
    assert fields["author"] == citation["authors"][0]["name"]
    assert {key: fields[key] for key in ("title", "version", "license")} == {
        key: citation[key] for key in ("title", "version", "license")
    }
