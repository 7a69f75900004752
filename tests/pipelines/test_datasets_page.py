"""`docs/datasets.md` names every set, with a command that the pipeline takes."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from mtlscale.config import component, parse_override
from mtlscale.config.registry import components

DOCS = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
NAMES = components.names("datasets", plugins=False)


@pytest.mark.parametrize("name", NAMES)
def test_every_set_has_its_row_and_a_command_it_takes(name: str) -> None:
    (command,) = re.findall(rf"^\| `{name}` \|.*`mtlscale (prepare .*)` \|$", DOCS, re.MULTILINE)
    words = shlex.split(command)
    assert words[:2] == ["prepare", name]
    given = [words[place + 1] for place, word in enumerate(words) if word == "--option"]
    pipeline = component("datasets", name)(**dict(parse_override(text, "--option") for text in given))
    assert ("--source" in words) == (pipeline.needs_source and pipeline.download is None)


def test_no_place_on_this_machine_is_named() -> None:
    assert not re.search(r"/work\b|/home/|/root\b|/tmp\b", DOCS)


@pytest.mark.parametrize("name", [name for name in NAMES if component("datasets", name).hub])
def test_the_columns_of_the_hub_are_those_of_the_code(name: str) -> None:
    """Every name in the table's row is in the pipeline's source, or in what small pictures share."""
    bases = [base.__module__ for base in component("datasets", name).__mro__]
    modules = (*(module for module in bases if module.startswith("pipelines.")), "pipelines._images.hub_images")
    source = "".join(Path(str(sys.modules[module].__file__)).read_text() for module in modules)
    section = DOCS.partition("## Sets of the `datasets` library")[2].partition("\n## ")[0]
    lines = section.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| `{name}`"))
    rows = [lines[start]]
    for line in lines[start + 1 :]:
        if not line.startswith("| |"):
            break
        rows.append(line)
    assert len(rows) >= 2
    for row in rows:
        for column in re.findall(r"`(\w+)`", row.split("|")[3]):
            stem = re.sub(r"(_?)(7|13|19)$", r"\1", column)
            assert f'"{column}"' in source or re.search(rf'f"{stem}\{{\w+\}}"', source), column
