"""Reading experiment files: YAML, overrides, and the line of what is wrong with them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mtlscale.spec import components, files
from mtlscale.spec.components import nearest
from mtlscale.spec.errors import UserError
from mtlscale.spec.experiment import Experiment
from mtlscale.spec.validation import describe, first_problem

# In a checkout beside the package; installed from a wheel below the prefix.
SHIPPED = next(
    (
        folder
        for folder in (Path(__file__).parents[2] / "experiments", Path(sys.prefix, "share/mtlscale/experiments"))
        if (folder / "quickstart.yaml").exists()
    ),
    Path("experiments"),
)


class _Loader(yaml.SafeLoader):
    """The safe loader, reading `1e-3` as a number: YAML 1.1 wants a point and a sign, people do not write them."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def shipped() -> dict[str, Path]:
    """Name -> file of the experiments that come with mtlscale."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def find_experiment(name: str) -> Path:
    """The file of an experiment given by path or by the name of a shipped one."""
    path = Path(name)
    if path.is_file():
        return path
    known = shipped()
    if name in known:
        return known[name]
    if path.suffix in (".yaml", ".yml") or "/" in name:
        raise UserError(f"experiment file {name} does not exist; shipped experiments: {', '.join(known)}")
    raise UserError(f"unknown experiment {name!r}: {nearest(name, list(known))}")


def load_experiment(path: str | Path, overrides: tuple[str, ...] = ()) -> Experiment:
    """Read and check an experiment file, given by path or by the name of a shipped one.

    overrides: `a.b=c` strings as of `--set`; list items are chosen by index. Raises `UserError` with the line of a key
    nobody knows, or of a value that does not fit.
    """
    file = find_experiment(str(path))
    data = read_settings(file, overrides)
    root = yaml.compose(file.read_text(encoding="utf-8"), Loader=_Loader)
    data.setdefault("name", file.stem)
    named = data.get("plugins") or ()
    if not isinstance(named, list | tuple) or not all(isinstance(name, str) for name in named):
        raise UserError(f"{file}: plugins is a list of files: `plugins: [my_method.py]`")
    plugins = tuple(file.parent / plugin for plugin in named)
    components.load_plugins(plugins)
    data["plugins"] = plugins
    for place in files.named(data):
        place.options[place.key] = str(place.found(file.parent))
    if isinstance(data.get("published"), str):
        data["published"] = file.parent / data["published"]
        if not data["published"].is_file():
            raise UserError(f"{file}: published: {data['published']} does not exist; correct or drop the key")
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        line = _line(root, first_problem(error)["loc"])
        raise UserError(f"{file}{f':{line}' if line else ''}: {describe(error, Experiment)}") from None
    experiment.validate_components()
    return experiment


def read_settings(file: Path, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """What an experiment file says, unchecked, with the overrides applied; `UserError` where it is no YAML mapping."""
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", error)
        raise UserError(f"{file}{at}: not valid YAML: {problem}; mend it here or just above") from None
    if not isinstance(data, dict):
        raise UserError(f"{file}: an experiment file is a mapping with `name`, `datasets` and `methods`")
    for override in overrides:
        _set(data, override)
    return data


def parse_override(text: str, flag: str = "--set") -> tuple[str, Any]:
    """`a.b=c` -> ("a.b", c), c read as YAML."""
    path, sign, value = text.partition("=")
    if not sign or not path:
        raise UserError(f"{flag} {text}: write KEY=VALUE")
    try:
        return path, yaml.load(value, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError:
        raise UserError(f"{flag} {text}: the value is not valid YAML") from None


def _set(data: dict[str, Any], override: str) -> None:
    path, value = parse_override(override)
    target: Any = data
    *parents, last = path.split(".")
    try:
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
        target[int(last) if isinstance(target, list) else last] = value
    except (ValueError, IndexError, TypeError, AttributeError):
        raise UserError(f"--set {override}: no such place in the experiment") from None


def _line(root: Any, location: tuple[int | str, ...]) -> int | None:
    """The line (from 1) of the deepest node on this path."""
    line = None
    node = root
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
