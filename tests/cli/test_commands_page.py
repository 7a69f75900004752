"""docs/commands.md has every command, and its examples are commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from command import EVENTS

from mtlscale.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_command(example: str) -> None:
    program, name, *arguments = shlex.split(example)
    assert program == "mtlscale"
    COMMANDS[name].make_context(name, arguments)  # raises for an option or argument that there is not


def test_every_command_has_an_example() -> None:
    assert {example.split()[1] for example in EXAMPLES} == set(COMMANDS)


def test_keys_of_events_are_as_the_page_has_them() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (`.*) \|$", PAGE, re.MULTILINE))
    for event, keys in EVENTS.items():
        told = re.sub(r"\([^)]*\)", "", rows[event])
        assert keys <= set(re.findall(r"`(\w+)`", told)), event
