"""Load experiment files: YAML, overrides, and errors with the line of the mistake."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mtlscale.config import named_files
from mtlscale.config.errors import UserError
from mtlscale.config.experiment.defaults import defaults_file, merged, read_defaults
from mtlscale.config.experiment.experiment import Experiment
from mtlscale.config.paths import is_file, is_folder
from mtlscale.config.places import local_path
from mtlscale.config.registry import components
from mtlscale.config.registry.nearest import file_hint, nearest
from mtlscale.config.settings.models import DatasetSpec
from mtlscale.config.settings.search_space import COMMON, Dimension
from mtlscale.config.validation import describe, first_problem
from mtlscale.config.yaml_text import line_of, parse, read_text

# In a checkout the folder is beside the package; installed from a wheel it is below the prefix.
SHIPPED = next(
    (
        folder
        for folder in (Path(__file__).parents[3] / "experiments", Path(sys.prefix, "share/mtlscale/experiments"))
        if (folder / "quickstart.yaml").exists()
    ),
    Path("experiments"),
)


def shipped() -> dict[str, Path]:
    """Return name -> file of the experiments that come with mtlscale."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def find_experiment(name: str) -> Path:
    """Return the file of an experiment, given by its path or by the name of a shipped one."""
    path, shipped_files = Path(name), shipped()
    if path.suffix.lower() not in (".yaml", ".yml") and not is_folder(path) and (hint := file_hint(name)):
        raise UserError(f"{name} is no experiment file; {hint}")
    if path.suffix == ".py":
        raise UserError(f"{name} is Python; name it in an experiment file: `plugins: [{path.name}]`")
    if is_file(path):
        return path
    if name in shipped_files:
        return shipped_files[name]
    if is_folder(path):
        files = sorted(file.name for pattern in ("*.yaml", "*.yml") for file in path.glob(pattern))
        hint = f"such as {path / files[0]}" if files else "it holds none (.yaml)"
        raise UserError(f"{name} is a folder; name an experiment file, {hint}")
    if hint := components.other_kind(name):
        raise UserError(
            f"{name} is no experiment, {hint}; name it in an experiment file, or look at it by `mtlscale list`"
        )
    beside = _same_stem(path)
    if path.suffix.lower() in (".yaml", ".yml") or "/" in name:
        mend = f"did you mean {beside}?" if beside else "`mtlscale list experiments` has the shipped ones"
        raise UserError(f"experiment file {name} does not exist; {mend}")
    hint = f"did you mean {beside}?" if beside else nearest(name, list(shipped_files), listing="experiments")
    raise UserError(f"unknown experiment {name!r}: {hint}")


def _same_stem(path: Path) -> Path | None:
    """Return the experiment file that is called like a missing one but for its ending or for capitals."""
    if not is_folder(path.parent):
        return None
    files = sorted(file for pattern in ("*.yaml", "*.yml") for file in path.parent.glob(pattern))
    return next((file for file in files if file.stem.lower() in (path.stem.lower(), path.name.lower())), None)


def load_experiment(path: str | Path, overrides: tuple[str, ...] = ()) -> Experiment:
    """Read and check an experiment file.

    Args:
        path: The file, or the name of a shipped experiment.
        overrides: `a.b=c` strings as of `--set`; list items are chosen by index.

    Raises:
        UserError: With the line of an unknown key, or of a value that does not fit.
    """
    file = find_experiment(str(path))
    data, root = _read_settings(file, overrides)
    data.setdefault("name", file.stem)

    plugin_names = data.get("plugins") or ()
    if not isinstance(plugin_names, list | tuple) or not all(isinstance(name, str) for name in plugin_names):
        raise UserError(f"{file}: plugins is a list of files: `plugins: [my_method.py]`")

    plugins = tuple(file.parent / local_path(plugin) for plugin in plugin_names)
    components.load_plugins(plugins)
    data["plugins"] = plugins

    return experiment_of(data, file, root=root, overrides=overrides)


def loaded(experiment: Experiment | Path | str) -> Experiment:
    """Return an experiment that is given as one, by its file, or by the name of a shipped one."""
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, str | Path):
        return load_experiment(experiment)
    kind = "None" if experiment is None else f"a {type(experiment).__name__}"
    raise UserError(f"an experiment is a file, a name, or what `load_experiment` returns, not {kind}")


def experiment_of(
    settings: dict[str, Any], file: Path, *, root: Any = None, overrides: tuple[str, ...] = ()
) -> Experiment:
    """Check the settings of an experiment, whose plugins are loaded if it has any.

    Args:
        settings: The content of its file with the overrides applied.
        file: The file, beside which named files are looked up.
        root: The root of the file's YAML nodes, for lines in messages.
        overrides: The overrides, for messages.

    Raises:
        UserError: For an unknown key, or a value that does not fit.
    """
    data = settings
    for file_setting in named_files.named(data):
        file_setting.options[file_setting.key] = str(file_setting.resolve(file.parent))
    if isinstance(data.get("published"), str):
        data["published"] = file.parent / local_path(data["published"])
        if not is_file(data["published"]):
            raise UserError(f"{file}: published: {data['published']} does not exist; correct or drop the key")

    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        origin = _origin_of(file, root, overrides, first_problem(error)["loc"])
        raise UserError(f"{origin}: {describe(error, Experiment)}") from None

    experiment.validate_components()
    datasets = tuple(_with_source(dataset, file.parent) for dataset in experiment.datasets)
    return experiment.model_copy(update={"datasets": datasets})


def experiment_from(settings: Mapping[str, Any], origin: str) -> Experiment:
    """Return the experiment with the settings of an experiment file; files that they name are relative to here.

    Args:
        settings: The keys of the file.
        origin: Whoever gives the settings, for messages.

    Raises:
        UserError: For everything that a file would be refused for.
    """
    data = copy.deepcopy(dict(settings))
    data["plugins"] = tuple(local_path(plugin) for plugin in data.get("plugins") or ())
    components.load_plugins(data["plugins"])
    return experiment_of(data, Path(origin))


def _origin_of(file: Path, root: Any, overrides: tuple[str, ...], location: tuple[int | str, ...]) -> str:
    """Return the origin of a wrong value: the last `--set` that wrote it, else the line of the file."""
    parts = [str(part) for part in location]
    for override in reversed(overrides):
        path = override.partition("=")[0].split(".")
        if path == parts[: len(path)]:
            return f"--set {override}"

    _, default_root = read_defaults(file)
    written_keys = {key.value for key, _ in getattr(root, "value", ())}
    if location and default_root is not None and str(location[0]) not in written_keys:
        file, root = defaults_file(file) or file, default_root
    line = line_of(root, location)
    return f"{file}:{line}" if line else str(file)


def _with_source(dataset: DatasetSpec, folder: Path) -> DatasetSpec:
    """Return the data set with its raw data's path, if it names a source or has files beside the experiment."""
    source = folder / local_path(dataset.source or "")
    if dataset.source is None:
        exists = any((folder / name).exists() for name in dataset.build().files())
    else:
        exists = source.exists()
    return dataset.model_copy(update={"source": str(source.absolute())}) if exists else dataset


def read_settings(file: Path, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return an experiment file's unchecked settings with the overrides applied.

    Raises:
        UserError: If the file is no YAML mapping.
    """
    return _read_settings(file, overrides)[0]


def _read_settings(file: Path, overrides: tuple[str, ...]) -> tuple[dict[str, Any], Any]:
    """Return the settings, and the root of the file's YAML nodes."""
    data, root = parse(read_text(file), file)
    if not isinstance(data, dict):
        raise UserError(f"{file}: an experiment file is a mapping with `name`, `datasets` and `methods`")
    data = {key: value for key, value in data.items() if not str(key).startswith("x-")}  # a place for YAML's anchors
    data = merged(read_defaults(file)[0], data)
    for override in overrides:
        _set(data, override)
    return data, root


def parse_override(text: str, flag: str = "--set") -> tuple[str, Any]:
    """Split an override: `a.b=c` -> ("a.b", c), with c read as YAML."""
    path, sign, value = text.partition("=")
    if not sign or not path:
        raise UserError(f"{flag} {text}: write KEY=VALUE")
    if indexed := re.fullmatch(r"([\w.]+)\[(\d+)\](.*)", path):
        place = f"{indexed[1]}.{indexed[2]}{indexed[3]}"
        raise UserError(f"{flag} {text}: entries of a list are named by dots, {place}={value}")
    return path, parse(value, f"{flag} {text}")[0]


def _keys(data: dict[str, Any], path: str) -> list[str]:
    """Return the keys that a dotted path goes through; the keys of a search space have dots themselves."""
    keys = path.split(".")
    if keys[:2] == ["search", "space"]:
        depth = 2
    elif keys[:2] == ["search", "methods"] and len(keys) > 3:
        depth = 3
    else:
        return keys

    setting = keys[depth:]
    part = setting[-1:] if len(setting) > 1 and setting[-1] in Dimension.model_fields else []
    name = setting[: len(setting) - len(part)]
    if part and depth == 2 and isinstance(data.get("search"), dict):  # a part of a range that the file may not write
        data["search"].setdefault("space", {key: value.model_dump(exclude_unset=True) for key, value in COMMON.items()})
    return [*keys[:depth], *([".".join(name)] if name else []), *part]


def _set(data: dict[str, Any], override: str) -> None:
    path, value = parse_override(override)
    target: Any = data
    *parents, last = _keys(data, path)

    try:
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
        target[int(last) if isinstance(target, list) else last] = value
    except (ValueError, IndexError, TypeError, AttributeError):
        raise UserError(f"--set {override}: no such place in the experiment") from None
