"""Experiment files of others, read as data: no plugin is imported, no file outside their folder is read.

What is built from shipped components alone becomes an `Experiment`. Of rows and data sets that come from plugins only
the labels are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtlscale.config import named_files
from mtlscale.config.errors import UserError
from mtlscale.config.experiment.experiment import FLOORS, Experiment, Floor
from mtlscale.config.experiment.loading import experiment_of
from mtlscale.config.preferences import check_rays, ray_label, ray_settings
from mtlscale.config.registry import components
from mtlscale.config.registry.plugin_text import PluginText, read_plugin
from mtlscale.config.registry.report_parts import PLUGIN
from mtlscale.config.settings.models import DatasetSpec, component_title
from mtlscale.config.validation import Label, describe
from mtlscale.config.yaml_text import parse, read_text

MOST_RUNS = 100_000  # data sets x methods x seeds
_LOCAL_SECTIONS = ("tracking", "resources", "published")  # of where and how it was run: `contribute` leaves them out


@dataclass(frozen=True)
class MethodLabel:
    """The label of a method, with what its entry says of it without a plugin."""

    label: str
    name: str = ""  # of its one component that is no default, if the entry has one
    training: Mapping[str, Any] = field(default_factory=dict)


class _Frame(BaseModel):
    """The settings of an experiment that name no component."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"), Label]
    description: str = ""
    datasets: tuple[DatasetSpec, ...] = Field(min_length=1)
    floors: tuple[Floor, ...] = FLOORS
    methods: tuple[str | dict[str, Any], ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    baseline: str = "stl"
    reference: str = "equal"
    delta: tuple[str, ...] | None = None
    training: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Outline:
    """An experiment as its file describes it, without the code of its plugins."""

    name: str
    description: str
    datasets: tuple[DatasetSpec, ...]
    methods: tuple[MethodLabel, ...]
    floors: frozenset[str]  # rows that the file does not ask for, which a plugin's data set may do without
    seeds: tuple[int, ...]
    baseline: str
    reference: str
    delta: tuple[str, ...] | None
    plugins: tuple[PluginText, ...]
    shipped: Experiment | None  # of the shipped components alone
    unknown: frozenset[str]  # labels of data sets that need a plugin
    training: Mapping[str, Any]  # as the file has it
    published: Path | None = None

    def delta_of(self) -> dict[str, tuple[str, ...]]:
        """Return data set -> names of the metrics in Δ and η, as `Experiment.delta_of` does."""
        names_by_label = {"": self.delta, **{dataset.label: dataset.delta for dataset in self.datasets}}
        return {label: names for label, names in names_by_label.items() if names is not None}

    @property
    def names(self) -> frozenset[str]:
        """The names of the components that its plugins define."""
        return frozenset[str]().union(*(plugin.components for plugin in self.plugins))

    def by_label(self) -> Iterator[tuple[str, str, int]]:
        """Yield (data set, method, seed) of the runs that are known by their labels alone."""
        shipped = self.shipped
        known = (
            {(dataset.label, method.label) for dataset in shipped.datasets for method in shipped.methods}
            if shipped
            else set()
        )
        for dataset in self.datasets:
            for method in self.methods:
                if (dataset.label, method.label) not in known and method.label not in dataset.without:
                    yield from ((dataset.label, method.label, seed) for seed in self.seeds)


def read_outline(file: Path) -> Outline:
    """Read an experiment file as data.

    Plugins and other files that it names have to lie beside it, under plain names.

    Raises:
        UserError: If the file is no experiment of this size, or names a plugin or component that it does not carry.
    """
    data, root = parse(read_text(file), file)
    if not isinstance(data, dict):
        raise UserError(f"{file}: an experiment file is a mapping with `name`, `datasets` and `methods`")
    data.setdefault("name", file.stem)
    for section in _LOCAL_SECTIONS:
        data.pop(section, None)

    plugins = _plugins(data.pop("plugins", None) or (), file)
    own_names = {name for plugin in plugins for name in plugin.components} - _names_elsewhere()
    frame = _frame(data, file)
    _check_references(data, file)

    methods, added = _rows(frame)
    unknown = {
        dataset.label
        for dataset, entry in zip(frame.datasets, data["datasets"], strict=True)
        if _mentions(entry, own_names) or _mentions(frame.delta, own_names)
    }
    return Outline(
        name=frame.name,
        description=frame.description,
        datasets=frame.datasets,
        methods=methods,
        floors=frozenset(() if "floors" in frame.model_fields_set else added),
        seeds=frame.seeds,
        baseline=frame.baseline,
        reference=frame.reference,
        delta=frame.delta,
        plugins=plugins,
        shipped=_shipped_part(data, file, root, own_names),
        unknown=frozenset(unknown),
        training=frame.training,
    )


def _names_elsewhere() -> set[str]:
    """Return the names of all components that are shipped or of installed packages, not of a file that was loaded."""
    known: set[str] = set()
    for kind in (*components.PACKAGES, "metrics"):
        known |= set(components.names(kind, plugins=False))
        added = {name: components.component(kind, name) for name in components.names(kind) if name not in known}
        known |= {name for name, cls in added.items() if not cls.__module__.startswith(PLUGIN)}
    return known


def _plugins(names: Any, file: Path) -> tuple[PluginText, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{file}: plugins is a list of files: `plugins: [my_method.py]`")
    for name in names:
        path = file.parent / name
        if not _is_plain(name):
            raise UserError(f"{file}: plugins: {name!r} is no name of a file beside it; name a file without folders")
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{file}: plugins: {name} does not lie beside it; add the file itself")
    return tuple(read_plugin(file.parent / name) for name in names)


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and name.isprintable() and PureWindowsPath(name).name == name


def _check_references(data: Mapping[str, Any], file: Path) -> None:
    """Raise `UserError` if a setting names a file outside the experiment's folder."""
    for setting in named_files.named(data):
        if not _is_plain(setting.name) or (file.parent / setting.name).is_symlink():
            raise UserError(f"{file}: {setting.where}: {setting.name!r} lies elsewhere; name a file beside it")
    for index, dataset in enumerate(data["datasets"]):
        source = dataset.get("source") if isinstance(dataset, dict) else None
        if source is not None and not _is_plain(str(source)):
            raise UserError(f"{file}: datasets.{index}.source: {source!r} lies elsewhere; drop it, and use --source")


def _frame(data: Mapping[str, Any], file: Path) -> _Frame:
    """Return the settings that name no component, after a check of their number."""
    counts = [len(data[key]) for key in ("datasets", "methods") if isinstance(data.get(key), list)]
    seeds = data.get("seeds")
    counts.append(len(seeds) if isinstance(seeds, list) else 1)
    runs = 1
    for count in counts:
        runs *= count
    if runs > MOST_RUNS:
        raise UserError(f"{file}: plans {runs:,} runs, more than {MOST_RUNS:,}; write several experiments")

    try:
        return _Frame.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{file}: {describe(error, _Frame)}") from None


def _rows(frame: _Frame) -> tuple[tuple[MethodLabel, ...], list[str]]:
    """Return the rows of the file, and the floors among them that it does not name."""
    rows = []
    for entry in frame.methods:
        settings = {"name": entry} if isinstance(entry, str) else entry
        training = settings.get("training")
        rows += [
            MethodLabel(label, str(settings.get("name", "")), training if isinstance(training, dict) else {})
            for label in _labels(entry, settings.get("rays"))
        ]
    labels = {row.label for row in rows}
    added: list[str] = [floor for floor in frame.floors if floor not in labels]
    return (*rows, *(MethodLabel(floor, floor) for floor in added)), added


def _labels(entry: str | dict[str, Any], rays: Any) -> list[str]:
    """Return the labels of a method's entry, one for each of its rays."""
    row = _label(entry)
    if rays is None:
        return [row]
    try:
        return [ray_label(row, setting) for setting in ray_settings(check_rays(rays))]
    except ValueError as error:
        raise UserError(f"method {row}: rays {error}") from None


def _label(entry: str | dict[str, Any]) -> str:
    """Return the label that a method's entry gives it, as `MethodSpec` does."""
    if isinstance(entry, str):
        return entry
    if entry.get("label"):
        return str(entry["label"])
    parts = [entry] if entry.get("name") else [entry.get(part) for part in ("architecture", "balancer", "objective")]
    return "+".join(component_title(part) for part in parts if part) or "equal"


def _shipped_part(data: dict[str, Any], file: Path, root: Any, own_names: set[str]) -> Experiment | None:
    """Return the experiment of the rows and data sets that need no plugin; None if there are none."""
    if not own_names:
        return experiment_of(data, file, root=root)

    keys = ("model", "training", "search")
    if any(_mentions(data.get(key), own_names) for key in keys) or data.get("search"):
        return None
    datasets = [entry for entry in data["datasets"] if not _mentions(entry, own_names)]
    methods = [entry for entry in data["methods"] if not _mentions(entry, own_names)]
    if not datasets or not methods or _mentions(data.get("delta"), own_names):
        return None

    left_out = ("baseline", "reference", "delta")  # they may name rows that are not in this part
    settings = {key: value for key, value in data.items() if key not in left_out}
    labels = {label for entry in methods for label in _labels(entry, None)} | {*FLOORS}
    for place, entry in enumerate(datasets):
        if isinstance(entry, dict) and "without" in entry:
            datasets[place] = {**entry, "without": [row for row in entry["without"] if row in labels]}
    return experiment_of({**settings, "datasets": datasets, "methods": methods}, file)


def _mentions(entry: Any, names: set[str]) -> bool:
    if isinstance(entry, Mapping):
        return any(_mentions(part, names) for pair in entry.items() if pair[0] != "without" for part in pair)
    if isinstance(entry, list | tuple):
        return any(_mentions(part, names) for part in entry)
    return isinstance(entry, str) and bool({entry, entry.rpartition(".")[2]} & names)
