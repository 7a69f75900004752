"""What every command's help says, at 80 columns: its example, and the defaults of its options, whole."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
import typer
from command import mtlscale

from mtlscale.cli import app
from mtlscale.version import __version__

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def command_of(name: str) -> click.Command:
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined, no-any-return]


def told(text: str) -> str:
    """A page without its frames and spaces: where lines are broken does not matter, what is cut does."""
    return "".join(text.translate({ord(mark): None for mark in "│╭╮╰╯─"}).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_whole_at_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = mtlscale(name, "--help")
    assert done.code == 0 and max(map(len, done.stdout.splitlines())) <= 80
    page, command = told(done.stdout), command_of(name)
    assert command.epilog is not None and command.epilog.startswith(f"Example: mtlscale {name}")
    assert told(command.epilog) in page
    for option in (parameter for parameter in command.params if isinstance(parameter, typer.core.TyperOption)):
        assert told(option.help or "") in page, option.name
        assert "[default" not in (option.help or ""), f"{option.name}: rich takes it for markup; use show_default"
        default = option.show_default if isinstance(option.show_default, str) else option.default
        if default in (None, False, ()) or option.name == "help":
            continue
        shown = option.opts[0].lstrip("-") if default is True else default
        assert told(f"default: {shown}") in page.replace("(", "").replace(")", ""), option.name


def test_the_version() -> None:
    assert mtlscale("--version").stdout == f"mtlscale {__version__}\n"


def test_colours_are_left_out_where_nobody_wants_them() -> None:
    code = "from mtlscale.cli.options import console_of; console_of().print('[red]x[/red]')"
    for wanted, expected in (({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**_path(), **wanted})
        assert ("\x1b[31m" in done.stdout) is expected, done


def _path() -> dict[str, str]:
    import os

    return {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
