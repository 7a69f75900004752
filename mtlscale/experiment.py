"""Experiment files: pydantic models of the YAML, its expansion into runs, and run ids.

An experiment is *datasets x methods x seeds*. A method is named by its architecture (`stl`, `hps`, …), its balancer
(`mgda`, `getmtl`, …) or its objective (`aamtrl`, …); what is not named is hard parameter sharing with equal weighting.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtlscale import components
from mtlscale.components import UserError, nearest
from mtlscale.search import PARTS, Knobs, SearchSpec, check, split_path

RESULTS_VERSION = 1  # of the training loop; raise when the results of a run change

# In a checkout beside the package; installed from a wheel below the prefix.
SHIPPED = next(
    (
        folder
        for folder in (Path(__file__).parent.parent / "experiments", Path(sys.prefix, "share/mtlscale/experiments"))
        if (folder / "quickstart.yaml").exists()
    ),
    Path("experiments"),
)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=_Model)


class ComponentSpec(_Model):
    """A component by name, with its options: `mgda`, or `{name: mgda, normalize: l2}`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping) and "name" in value and not isinstance(value.get("options"), Mapping):
            return {"name": value["name"], "options": {k: v for k, v in value.items() if k != "name"}}
        return value

    def build(self, kind: str, where: str) -> Any:
        return components.build(kind, self.name, self.options, where)

    def resolved(self, kind: str, where: str) -> dict[str, Any]:
        """Name, results version and every knob with its value: what a run id hashes."""
        built = self.build(kind, where)
        knobs = {knob: getattr(built, knob) for knob in type(built).knobs()}
        return {"name": self.name, "results_version": type(built).results_version, **knobs}


class DatasetSpec(_Model):
    """A data set, the options of its pipeline, and overrides of model and training for it."""

    name: str
    label: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    splits: int = Field(1, ge=1)  # random splits: the run of seed s has split s modulo this, as the option `split`
    model: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        value = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else value
        if isinstance(value, dict) and not value.get("label") and "name" in value:
            value["label"] = value["name"]
        return value

    def prepared(self, seed: int) -> str:
        """The name of the prepared data that the run of a seed reads: the label, and the split where there are more."""
        return self.label if self.splits == 1 else f"{self.label}/{seed % self.splits}"

    def build(self, seed: int = 0) -> Any:
        """The pipeline with the options for a seed."""
        where = f"dataset {self.label}"
        if self.splits == 1:
            return components.build("datasets", self.name, self.options, where)
        default, _ = components.component("datasets", self.name).knobs().get("split", (None, None))
        if not isinstance(default, int):
            raise UserError(f"{where}: {self.name} comes with its own split; drop `splits`")
        if "split" in self.options:
            raise UserError(f"{where}: `splits` chooses the option `split` by seed; drop one of them")
        return components.build("datasets", self.name, {**self.options, "split": seed % self.splits}, where)


class MethodSpec(_Model):
    """One row of the leaderboard: how parameters are shared, how tasks are balanced, what is added to the losses."""

    label: str
    architecture: ComponentSpec = ComponentSpec(name="hps")
    balancer: ComponentSpec = ComponentSpec(name="equal")
    objective: ComponentSpec | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """`mgda` or `{name: mgda, ...its options}` names the one component that is not the default."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            return value
        value = dict(value)
        name = value.pop("name", None)
        if name is None:
            parts = [value.get(part) for part in ("architecture", "balancer", "objective")]
            named = [part if isinstance(part, str) else part.get("name", "?") for part in parts if part]
            value.setdefault("label", "+".join(named) or "equal")
            return value
        kind = _kind_of(str(name))
        if kind == "objective":
            value.setdefault("architecture", components.component("objectives", str(name)).architecture)
        own = {k: value.pop(k) for k in list(value) if k not in cls.model_fields}
        if kind in value:
            raise ValueError(f"{name} is the {kind} already; drop `name` or `{kind}`")
        options = own.pop("options", {})
        value[kind] = {"name": name, "options": {**options, **own}}
        value.setdefault("label", name)
        return value


def _kind_of(name: str) -> str:
    known: list[str] = []
    for kind in ("architectures", "balancers", "objectives"):
        found = components.names(kind)
        if name in found:
            return kind[:-1]
        known += found
    raise ValueError(f"unknown method {name!r}: {nearest(name, sorted(known))}")


class ModelSpec(_Model):
    """The encoder every method uses, and the dropout before the heads."""

    encoder: ComponentSpec = ComponentSpec(name="mlp")
    dropout: float = Field(0.0, ge=0, lt=1)


class TrainingSpec(_Model):
    """How every run is trained. Sizes are of the whole step: workers share a batch, they do not multiply it."""

    epochs: int = Field(20, ge=1)
    batch_size: int = Field(64, ge=1)  # samples per stream and step, over all workers
    steps_per_epoch: int | None = Field(None, ge=1)  # default: one pass over the largest task
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    momentum: float = Field(0.0, ge=0, lt=1)  # sgd
    schedule: Literal["constant", "exponential", "cosine"] = "constant"
    decay_rate: float = Field(0.9, gt=0, le=1)  # exponential: lr * decay_rate ** (step / decay_steps)
    decay_steps: int = Field(1000, ge=1)
    clip: float | None = Field(None, gt=0)  # norm of the whole gradient
    amp: Literal["off", "bf16", "fp16"] = "off"
    augment: Literal["none", "flip", "scale_crop"] = "none"  # of training images, with their maps
    channels_last: bool = False  # memory layout of convolutions: the order of the results' last digits changes
    accumulate: int = Field(1, ge=1)  # micro-batches a step is cut into
    gramian_every: int = Field(1, ge=1)  # balance anew every so many steps (an approximation when > 1)
    dtype: Literal["float32", "float64"] = "float32"
    evaluate_every: int = Field(1, ge=1)  # epochs
    patience: int | None = Field(None, ge=1)  # stop after so many evaluations without a better validation score
    selection: Literal["metric", "loss", "last"] = "metric"  # how the epoch is chosen on validation
    eval_batch_size: int = Field(512, ge=1)
    checkpoint_seconds: float = Field(10.0, ge=0)  # at most one checkpoint in so many seconds


class ResourceSpec(_Model):
    """What one run occupies. The number of workers does not change results, so it is no part of a run id."""

    workers: int = Field(1, ge=1)
    cpus_per_worker: float = Field(1, gt=0)
    gpus_per_worker: float = Field(0, ge=0)
    max_failures: int = Field(2, ge=0)  # restarts of a run whose worker died or hung
    timeout_minutes: float = Field(120, gt=0)  # without a sign of life (an epoch's end) a worker is taken for hung


class TrackingSpec(_Model):
    """Where MLflow lives: default is an SQLite file below the home folder."""

    enabled: bool = True
    uri: str | None = None
    models: bool = True  # keep the chosen parameters of every run


# Of the training settings, those that change what is stored or when, but no result.
_NO_RESULT = {"checkpoint_seconds", "eval_batch_size"}


class Experiment(_Model):
    """A whole experiment file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    description: str = ""
    datasets: tuple[DatasetSpec, ...] = Field(min_length=1)
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    model: ModelSpec = ModelSpec()
    training: TrainingSpec = TrainingSpec()
    resources: ResourceSpec = ResourceSpec()
    tracking: TrackingSpec = TrackingSpec()
    search: SearchSpec | None = None  # tune every method on validation, then train the winners on `seeds`
    plugins: tuple[Path, ...] = ()
    baseline: str = "stl"  # the method the differences are taken to
    reference: str = "equal"  # the method the paired tests compare with
    published: Path | None = None  # a file of published numbers to show beside ours

    @model_validator(mode="after")
    def _distinct(self) -> Experiment:
        for what, labels in (
            ("method", [m.label for m in self.methods]),
            ("dataset", [d.label for d in self.datasets]),
        ):
            twice = sorted({label for label in labels if labels.count(label) > 1})
            if twice:
                raise ValueError(f"{what} {twice[0]!r} appears twice; give one of them another `label`")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed appears twice")
        return self

    def validate_components(self) -> None:
        """Build every component once, so that a bad name or option is said before anything starts."""
        for dataset in self.datasets:
            dataset.build()
            for method in self.methods:
                self._resolve(dataset, method)
        check(self)

    def _resolve(self, dataset: DatasetSpec, method: MethodSpec) -> dict[str, Any]:
        model = _override(self.model, {**dataset.model, **method.model}, f"model of {method.label}")
        training = _override(self.training, {**dataset.training, **method.training}, f"training of {method.label}")
        where = f"method {method.label}"
        if method.objective is not None:
            architecture = method.architecture.build("architectures", where)
            method.objective.build("objectives", where).require(architecture, training)
        return {
            "architecture": method.architecture.resolved("architectures", where),
            "balancer": method.balancer.resolved("balancers", where),
            "objective": None if method.objective is None else method.objective.resolved("objectives", where),
            "encoder": model.encoder.resolved("encoders", "model.encoder"),
            "dropout": model.dropout,
            "training": training.model_dump(mode="json"),
        }

    def runs(
        self, fingerprints: Mapping[str, str], chosen: Mapping[tuple[str, str], Knobs] | None = None
    ) -> Iterator[Run]:
        """One run per dataset x method x seed; `fingerprints`: name of the prepared data -> its fingerprint;
        `chosen`: (dataset, method) -> settings that a search has found."""
        for run in self._runs(fingerprints, self.seeds):
            yield run.tuned((chosen or {}).get((run.dataset, run.method), {}))

    def bases(self, fingerprints: Mapping[str, str]) -> list[Run]:
        """The run every method's trials are made from: with the seed of the search, before any setting is chosen."""
        assert self.search is not None
        return list(self._runs(fingerprints, (self.search.seed,)))

    def _runs(self, fingerprints: Mapping[str, str], seeds: tuple[int, ...]) -> Iterator[Run]:
        for dataset in self.datasets:
            for method in self.methods:
                resolved = _as_json(self._resolve(dataset, method))  # one for all seeds: large experiments have many
                for seed in seeds:
                    options = dataset.build(seed)
                    pipeline = {knob: getattr(options, knob) for knob in type(options).knobs()}
                    yield Run(
                        experiment=self.name,
                        dataset=dataset.label,
                        data=dataset.prepared(seed),
                        method=method.label,
                        seed=seed,
                        fingerprint=fingerprints[dataset.prepared(seed)],
                        spec={**_as_json({"dataset": {"name": dataset.name, **pipeline}}), **resolved, "seed": seed},
                    )

    def data(self) -> dict[str, tuple[DatasetSpec, int]]:
        """Name of the prepared data -> the data set, and a seed that reads it: all that the runs and trials need."""
        seeds = self.seeds if self.search is None else (*self.seeds, self.search.seed)
        return {dataset.prepared(seed): (dataset, seed) for dataset in self.datasets for seed in seeds}


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """The same after writing and reading: what a spec holds is plain."""
    plain: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return plain


def _without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in defaults or defaults[key] != value}


def _told(entry: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A component's part of a spec without what is at its default."""
    return _without_defaults(entry, _defaults(components.component(kind, entry["name"])))


def _defaults(component: Any) -> dict[str, Any]:
    """Each knob's default as JSON has it; asked for many times a run."""
    if component not in _DEFAULTS:
        _DEFAULTS[component] = json.loads(json.dumps({key: default for key, (default, _) in component.knobs().items()}))
    return _DEFAULTS[component]


_DEFAULTS: dict[Any, dict[str, Any]] = {}  # component class -> its defaults


_TRAINING_DEFAULTS = TrainingSpec().model_dump(mode="json")


class Run(_Model):
    """One training run, fully resolved: everything a worker needs besides the data."""

    experiment: str
    dataset: str  # label
    data: str  # name of the prepared data
    method: str  # label
    seed: int
    fingerprint: str
    spec: dict[str, Any]
    trial: dict[str, Any] = Field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """A hash of the spec, the data and the results versions; labels and resources are no part of it.

        Settings at their default are left out, so a new knob keeps finished runs valid; whoever changes a default
        raises the component's `results_version`.
        """
        spec = {
            "dataset": _told(self.spec["dataset"], "datasets"),
            "encoder": _told(self.spec["encoder"], "encoders"),
            "training": {
                key: value
                for key, value in _without_defaults(self.spec["training"], _TRAINING_DEFAULTS).items()
                if key not in _NO_RESULT
            },
            "dropout": self.spec["dropout"],
            "seed": self.spec["seed"],
        }
        for part in ("architecture", "balancer", "objective"):
            entry = self.spec[part]
            spec[part] = None if entry is None else _told(entry, f"{part}s")
        text = json.dumps([spec, self.fingerprint, RESULTS_VERSION], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def training(self) -> TrainingSpec:
        return TrainingSpec.model_validate(self.spec["training"])

    def tuned(self, knobs: Knobs) -> Run:
        """This run with other settings, such as {"training.lr": 0.01, "balancer.eps": 0.1}; they are its `trial`."""
        if not knobs:
            return self
        spec = deepcopy(self.spec)
        groups: dict[str, Knobs] = {}
        for path, value in knobs.items():
            part, knob = split_path(path)
            groups.setdefault(part, {})[knob] = value
        for part, values in groups.items():
            where = f"search: {self.method}"
            if part == "training":
                training = _override(TrainingSpec.model_validate(spec["training"]), values, where)
                spec["training"] = training.model_dump(mode="json")
            elif part == "model":
                spec["dropout"] = _override(ModelSpec(dropout=spec["dropout"]), values, where).dropout
            else:
                key = part.removeprefix("model.")
                options = {k: v for k, v in spec[key].items() if k not in ("name", "results_version")} | values
                component = ComponentSpec(name=spec[key]["name"], options=options)
                spec[key] = json.loads(json.dumps(component.resolved(PARTS[part], where)))
        return self.model_copy(update={"spec": spec, "trial": dict(knobs)})

    def component(self, kind: str, part: str) -> Any:
        """The built component of one part of the spec, e.g. ("balancers", "balancer"); None where there is none."""
        entry = self.spec[part]
        if entry is None:
            return None
        options = {k: v for k, v in entry.items() if k not in ("name", "results_version")}
        return components.build(kind, entry["name"], options, f"{part} of {self.method}")


def _override(base: M, changes: Mapping[str, Any], where: str) -> M:
    if not changes:
        return base
    try:
        return type(base).model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        raise UserError(f"{where}: {_describe(error, type(base))}") from None


class _Loader(yaml.SafeLoader):
    """The safe loader, reading `1e-3` as a number: YAML 1.1 wants a point and a sign, people do not write them."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


# -- files ---------------------------------------------------------------------------------------------------------


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
    plugins = tuple(file.parent / plugin for plugin in data.get("plugins", ()))
    for plugin in plugins:
        components.load_plugin(plugin)
    data["plugins"] = plugins
    if isinstance(data.get("published"), str):
        data["published"] = file.parent / data["published"]
        if not data["published"].is_file():
            raise UserError(f"{file}: published: {data['published']} does not exist; correct or drop the key")
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        line = _line(root, _first(error)["loc"])
        raise UserError(f"{file}{f':{line}' if line else ''}: {_describe(error, Experiment)}") from None
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


def _first(error: ValidationError) -> Any:
    """The problem to name: a key nobody knows before one that is missing, which it may have been meant for."""
    problems = error.errors()
    return next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])


def _describe(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a validation error in one line, with the nearest known keys for an unknown one."""
    first = _first(error)
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        owner: Any = model
        for part in first["loc"][:-1]:
            if isinstance(part, int) or part not in owner.model_fields:
                continue  # the place in a list, or the key of a mapping
            annotation = owner.model_fields[part].annotation
            arguments = [a for a in getattr(annotation, "__args__", ()) if isinstance(a, type)] or [annotation]
            owner = next((a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)), owner)
        return f"unknown key {where}: {nearest(str(first['loc'][-1]), list(owner.model_fields))}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


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
