"""Defaults of a folder or a machine, which lie below the settings of experiment files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtlscale.config.errors import UserError
from mtlscale.config.paths import is_file
from mtlscale.config.yaml_text import parse, read_text

VARIABLE = "MTLSCALE_DEFAULTS"
_NAME = "defaults.yaml"  # beside the experiment file
_OF_FILES = ("name", "description", "datasets", "methods", "plugins", "published")


def defaults_file(file: Path) -> Path | None:
    """Return the file of defaults: the one that $MTLSCALE_DEFAULTS names, else `defaults.yaml` beside the file, if any.

    Raises:
        UserError: If the variable names no file.
    """
    if named := os.environ.get(VARIABLE):
        if not is_file(Path(named)):
            raise UserError(f"${VARIABLE} {named} does not exist; correct or unset the variable")
        return Path(named)
    path = file.parent / _NAME
    return path if is_file(path) and path.absolute() != file.absolute() else None


def read_defaults(file: Path) -> tuple[dict[str, Any], Any]:
    """Return the defaults for an experiment file, and the root of their YAML nodes; nothing where there are none.

    Raises:
        UserError: If they are no mapping, or hold a key that says what an experiment is.
    """
    path = defaults_file(file)
    if path is None:
        return {}, None
    data, root = parse(read_text(path), path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: defaults are a mapping with keys of an experiment file, such as `tracking`")
    for key in _OF_FILES:
        if key in data:
            raise UserError(f"{path}: {key} belongs into the experiment file; drop it here")
    return data, root


def merged(defaults: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with what they do not say from the defaults; mappings are merged key by key."""
    result = dict(defaults)
    for key, value in settings.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result
