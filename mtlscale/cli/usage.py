"""Single-line messages for mistakes in a command: options and arguments that are unknown, missing or too many."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer

# Typer brings a Click of its own, whose exceptions have no public name.
ClickException: Any = typer.BadParameter.__mro__[2]


def print_mistake(error: Any) -> None:
    """Print the one line of a mistake, or the help if a command was given nothing at all."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return

    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption":
        message = _unknown_option(error, option, context)
    else:
        command = "" if context is None else context.command_path
        message = _plain(error.format_message().rstrip("."))
        if "unexpected extra argument" in message and "--targets" in sys.argv:
            message += "; several targets are divided by commas, --targets A,B"
        message += f"; `{command or 'mtlscale'} --help` shows what it takes"
    print(f"mtlscale: {' '.join(message.split())}", file=sys.stderr)


def _plain(message: str) -> str:
    """Return a message without the words of the library that reads values, and with the value that was given."""
    message, jargon, rule = message.partition("Input should be ")
    if not jargon:
        return message
    option = re.search(r"'(--[\w-]+)'", message)
    value = "" if option is None else f", not {_value_behind(option[1])!r}"
    rule = re.sub(r"a valid integer.*", "a whole number", re.sub(r"a valid number.*", "a number", rule))
    return f"{message}should be {rule}{value}"


def _unknown_option(error: Any, option: Any, context: Any) -> str:
    """Return what an unknown option may have meant: a setting, an option of another command, or another option."""
    if (setting := _setting(option, context)) is not None:
        return f"no such option: {option}; write --set {setting}"

    root = context.find_root().command if context is not None else None
    having = [f"`mtlscale {name}`" for name, command in getattr(root, "commands", {}).items()
              if any(option in parameter.opts for parameter in command.params)]  # fmt: skip
    if having:
        owners = " and ".join(having) if len(having) < 3 else f"{', '.join(having[:2])} and {len(having) - 2} more"
        verb = "has" if len(having) == 1 else "have"
        return f"no such option: {option}; {owners} {verb} it; `{context.command_path} --help` shows what this one has"

    similar = [name for name in error.possibilities or () if name.startswith("--")]
    mend = f"did you mean {' or '.join(similar)}?" if similar else f"`{context.command_path} --help` shows what it has"
    return f"no such option: {option}; {mend}"


def _setting(option: str, context: Any) -> str | None:
    """Return `training.epochs=3` for `--epochs 3`, if the command takes settings of an experiment."""
    if context is None or not any("--set" in parameter.opts for parameter in context.command.params):
        return None

    from mtlscale.config import Experiment, place_of_key

    key = option.lstrip("-").replace("-", "_")
    key_path = f"{key}s" if f"{key}s" in Experiment.model_fields else place_of_key(key, Experiment)
    if key_path is None or "[]" in key_path:
        return None
    value = _value_behind(option)
    return f"{key_path}={value if key_path not in _LISTS or value.startswith('[') else f'[{value}]'}"


_LISTS = ("seeds", "methods", "datasets", "floors", "delta", "plugins")


def _value_behind(option: str) -> str:
    """Return the value behind an option on the command line."""
    for index, argument in enumerate(sys.argv):
        name, sign, value = argument.partition("=")
        if name == option and sign:
            return value
        if name == option and index + 1 < len(sys.argv) and not sys.argv[index + 1].startswith("-"):
            return sys.argv[index + 1]
    return "VALUE"
