"""Mistakes in a command itself, in one line: options and arguments that nobody knows, that are missing or too many."""

from __future__ import annotations

import sys
from typing import Any

import typer

# Typer brings a Click of its own, whose exceptions have no public name.
ClickException: Any = typer.BadParameter.__mro__[2]


def tell(error: Any) -> None:
    """Print the one line of a mistake, or the help where a command was given nothing at all."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return

    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption":
        message = _unknown_option(error, option, context)
    else:
        command = "" if context is None else context.command_path
        message = f"{error.format_message().rstrip('.')}; `{command or 'mtlscale'} --help` shows what it takes"
    print(f"mtlscale: {' '.join(message.split())}", file=sys.stderr)


def _unknown_option(error: Any, option: Any, context: Any) -> str:
    """What was meant by an option that a command does not have: a setting of the experiment, or another option."""
    if (setting := _setting(option, context)) is not None:
        return f"no such option: {option}; write --set {setting}"

    similar = [known for known in error.possibilities or () if known.startswith("--")]
    mend = f"did you mean {' or '.join(similar)}?" if similar else f"`{context.command_path} --help` shows what it has"
    return f"no such option: {option}; {mend}"


def _setting(option: str, context: Any) -> str | None:
    """`training.epochs=3` for `--epochs 3`, where the command takes settings of an experiment."""
    if context is None or not any("--set" in parameter.opts for parameter in context.command.params):
        return None

    from mtlscale.spec import Experiment, place_of_key

    key = option.lstrip("-").replace("-", "_")
    place = f"{key}s" if f"{key}s" in Experiment.model_fields else place_of_key(key, Experiment)
    if place is None or "[]" in place:
        return None
    value = _value_behind(option)
    return f"{place}={value if place not in _LISTS or value.startswith('[') else f'[{value}]'}"


_LISTS = ("seeds", "methods", "datasets", "floors", "delta", "plugins")


def _value_behind(option: str) -> str:
    """What the command line says behind an option."""
    for index, argument in enumerate(sys.argv):
        name, sign, value = argument.partition("=")
        if name == option and sign:
            return value
        if name == option and index + 1 < len(sys.argv) and not sys.argv[index + 1].startswith("-"):
            return sys.argv[index + 1]
    return "VALUE"
