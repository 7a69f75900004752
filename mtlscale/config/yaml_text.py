"""Strict YAML parsing for experiment files: every mistake is reported in one line with its location."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from mtlscale.config.errors import UserError

MOST_BYTES = 1 << 20  # size of a file; experiments have a few thousand bytes
MOST_VALUES = 100_000  # in a text, with every `*alias` written out

KeyPath = str | Path


class _Loader(yaml.SafeLoader):
    """The safe loader that also reads `1e-3` as a number; YAML 1.1 wants a point and a sign, which people leave out."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_text(file: Path) -> str:
    """Return the text of a file; raise `UserError` if it cannot be read, is no text, or is far too long."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); mend its permissions or name another") from None

    if len(content) > MOST_BYTES:
        raise UserError(f"{file} is larger than {MOST_BYTES >> 20} MiB, no experiment; name a YAML file of settings")

    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise UserError(f"{file}:{line}: byte 0x{byte:02x} is no UTF-8 text; save the file as UTF-8") from None


def parse(text: str, file: KeyPath) -> tuple[Any, yaml.Node | None]:
    """Return the content of a YAML text, and its root node, which has the lines.

    Args:
        file: The text's file or flag, for messages.

    Raises:
        UserError: If the text is no YAML, a key is written twice, or values contain themselves or are too many.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None, None
            _check(root, file)
            return loader.construct_document(root), root
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
        line_suffix = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{file}{line_suffix}: not valid YAML: {problem}; mend it here or just above") from None
    except RecursionError:
        raise UserError(f"{file}: not valid YAML: brackets are nested too deep; close them") from None
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError) as error:
        # PyYAML's own readers of dates, numbers and tagged values let these through.
        raise UserError(f"{file}: a value cannot be read ({str(error).splitlines()[0]}); write it in quotes") from None


def line_of(root: yaml.Node | None, location: tuple[int | str, ...]) -> int | None:
    """Return the line (from 1) of the deepest node on this path."""
    line, node = None, root

    for part in location:
        child = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, child = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = node.value[part]
            line = child.start_mark.line + 1

        if child is None:
            break
        node = child

    return line


def _check(root: yaml.Node, place: KeyPath) -> None:
    """Raise `UserError` for duplicate keys, of which the last would win, and for aliases that never end."""
    sizes: dict[int, int] = {}
    ancestors: set[int] = set()

    def size(node: yaml.Node) -> int:
        known_size = sizes.get(id(node))
        if known_size is not None:
            return known_size

        if id(node) in ancestors:
            raise UserError(
                f"{place}:{node.start_mark.line + 1}: an alias stands within what it stands for; write it out"
            )
        ancestors.add(id(node))

        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node, place)
            children = [part for pair in node.value for part in pair]

        total = 1 + sum(map(size, children))
        ancestors.discard(id(node))
        if total > MOST_VALUES:
            raise UserError(f"{place}: holds more than {MOST_VALUES:,} values; write a smaller experiment")

        sizes[id(node)] = total
        return total

    size(root)


def _check_keys(node: yaml.MappingNode, place: KeyPath) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        name, line = (key.tag, key.value), key.start_mark.line + 1
        if name in lines:
            location = f"in lines {lines[name]} and {line}" if lines[name] != line else "in this line"
            raise UserError(f"{place}:{line}: key {key.value!r} is there twice, {location}; drop one")
        lines[name] = line
