"""The schema of the experiment file: config sections of the YAML and their validation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PlainValidator, PrivateAttr, TypeAdapter, field_serializer, field_validator, model_validator

from mtlscale.config.addresses import without_secrets
from mtlscale.config.errors import UserError
from mtlscale.config.preferences import Preference, check_rays, row_of
from mtlscale.config.registry import components
from mtlscale.config.registry.nearest import nearest
from mtlscale.config.validation import Label, Model, OfValidation

Choosing = Annotated[Literal["metric", "loss", "last"], OfValidation]


class ComponentSpec(Model):
    """The name of a component with its options: `mgda`, or `{name: mgda, normalize: l2}`."""

    name: str  # as `mtlscale list` has it, or that of a plugin
    options: dict[str, Any] = Field(default_factory=dict)  # its settings; they may stand beside `name`, too

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping) and len(value) == 1 and value.keys().isdisjoint(cls.model_fields):
            ((name, options),) = value.items()
            if isinstance(options, Mapping):  # {mgda: {normalize: l2}}
                return {"name": name, "options": dict(options)}
        if isinstance(value, Mapping) and "name" in value and not isinstance(value.get("options"), Mapping):
            return {"name": value["name"], "options": {key: option for key, option in value.items() if key != "name"}}
        return value

    @property
    def title(self) -> str:
        """The name, with that of the component that a wrapper wraps: smooth(mgda)."""
        return component_title({"name": self.name, **self.options})

    def build(self, kind: str, where: str) -> Any:
        return components.build(kind, self.name, self.options, where)


def component_title(part: Any) -> str:
    """Return the name of a component as an experiment file has it, with the wrapped one's: smooth(mgda)."""
    if not isinstance(part, Mapping):
        return str(part)
    if len(part) == 1 and isinstance(options := next(iter(part.values())), Mapping):
        name = next(iter(part))
    else:
        name, options = part.get("name"), part
    nested = options.get("options")
    wrapped = options.get("of") or (nested.get("of") if isinstance(nested, Mapping) else None)
    return f"{name}({component_title(wrapped)})" if wrapped else str(name)


_SHARE = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_ONE, _MANY = TypeAdapter(_SHARE), TypeAdapter(dict[str, _SHARE])


def _check_fraction(value: Any) -> float | dict[str, float]:
    """Validate one share or a mapping of shares."""
    # Chosen by hand: for a union pydantic names both alternatives if one is wrong.
    return _MANY.validate_python(value, strict=True) if isinstance(value, Mapping) else _ONE.validate_python(value)


class LabelNoise(Model):
    """Label noise: training labels that are replaced by wrong ones.

    A share of the labels of each of these tasks (default: of every task) is replaced, drawn anew for another seed.
    `0.2` is short for `{share: 0.2}`.
    """

    share: float = Field(ge=0, le=1)  # the probability that a label becomes another class
    tasks: tuple[str, ...] | None = Field(None, min_length=1)  # tasks with wrong labels; default: all
    seed: int = Field(0, ge=0)  # seed of the draw

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return {"share": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class PgdSpec(Model):
    """The attack of an evaluation: steps along the sign of the loss's gradient, from the image itself.

    `4` is short for `{epsilon: 4}`, `true` for the defaults.
    """

    epsilon: float = Field(2.0, ge=0, le=255)  # the most that a pixel is changed, in 255ths of its range
    steps: int = Field(10, ge=1)  # steps of the attack
    step: float | None = Field(None, ge=0)  # length of a step, in 255ths; default: 2.5 epsilon / steps

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        if value is True:
            return {}
        return {"epsilon": value} if isinstance(value, int | float) else value

    @property
    def length(self) -> float:
        """The length of a step, in 255ths of a pixel's range."""
        return 2.5 * self.epsilon / self.steps if self.step is None else self.step


class EvaluationSpec(Model):
    """Further measurements of a trained classifier, beside its metrics."""

    # splits that are measured; trials of a search have val alone
    splits: tuple[Literal["val", "test"], ...] = ("val", "test")
    pgd: PgdSpec | None = None  # accuracy on images that projected gradient ascent has changed
    ood: bool = False  # how well samples of the stream `ood` are told from those of the classes
    flops: bool = False  # multiply-adds for one sample
    latency: bool = False  # time of a pass and samples per second, on the machine that trained the run


class DatasetSpec(Model):
    """The data set, the options of its pipeline, and overrides of model and training for it."""

    name: str  # the name of the data set, as mtlscale list datasets has it
    label: Annotated[str, Label] = ""  # its name in tables and files; default: `name`
    options: dict[str, Any] = Field(default_factory=dict)  # the settings of the pipeline
    source: str | None = None  # its raw data, relative to the experiment file; --source comes before it
    tasks: tuple[str, ...] | None = Field(None, min_length=1)  # the tasks to train; default: all that are prepared
    # Share of the training samples, or of those of some tasks; a larger one adds to a smaller one's.
    train: Annotated[float | dict[str, float], PlainValidator(_check_fraction)] = 1.0
    noise: LabelNoise | None = None  # wrong labels among the training labels
    evaluation: EvaluationSpec | None = None  # further measurements of the trained networks
    splits: int = Field(1, ge=1)  # random splits: the run of seed s has split s modulo this, as the option `split`
    # What tasks report, the first chooses the epoch: a list of which each takes what it can, or task -> list; default:
    # what the pipeline says.
    metrics: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    delta: tuple[str, ...] | None = Field(None, min_length=1)  # metrics in Δ and η, in place of the experiment's
    without: tuple[str, ...] = ()  # rows that are not run on it, by label
    model: dict[str, Any] = Field(default_factory=dict)  # keys of `model` that differ on this data set
    training: dict[str, Any] = Field(default_factory=dict)  # keys of `training` that differ on this data set

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        value = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else value
        if isinstance(value, dict):
            _check_nested(value, cls.model_fields, ("datasets",))
        if isinstance(value, dict) and not value.get("label") and "name" in value:
            shares = value.get("train")
            shares_by_task = shares.items() if isinstance(shares, Mapping) else [("", shares)]
            value["label"] = value["name"] + "".join(_in_percent(task, share) for task, share in shares_by_task)

        if isinstance(value, dict):
            _check_no_option(value, cls.model_fields)
        return value

    @property
    def shares(self) -> float | dict[str, float] | None:
        """The shares below 1 of the training samples: of all tasks, or by task; None if no sample is left out."""
        if isinstance(self.train, dict):
            return {task: share for task, share in sorted(self.train.items()) if share < 1} or None
        return self.train if self.train < 1 else None

    def prepared(self, seed: int) -> str:
        """Return the name of the prepared data that the run of a seed reads.

        It is the label, followed by the split if there are several.
        """
        return self.label if self.splits == 1 else f"{self.label}/{seed % self.splits}"

    def check_search(self, search: int, seeds: Sequence[int]) -> None:
        """Raise `UserError` if the trials of a search would use a split that winners are tested on."""
        split = search % self.splits
        if self.splits > 1 and split in {seed % self.splits for seed in seeds}:
            raise UserError(
                f"search.seed {search} tunes on split {split} of {self.label}, which is one of those of `seeds`; raise "
                "`splits` and choose a seed whose split is none of them"
            )

    def build(self, seed: int = 0) -> Any:
        """Build the pipeline with the options for a seed."""
        where = f"dataset {self.label}"
        if self.splits == 1:
            return components.build("datasets", self.name, self.options, where)

        default_split, _ = components.component("datasets", self.name).knobs().get("split", (None, None))
        if not isinstance(default_split, int):
            raise UserError(f"{where}: {self.name} comes with its own split; drop `splits`")
        if "split" in self.options:
            raise UserError(f"{where}: `splits` chooses the option `split` by seed; drop one of them")
        return components.build("datasets", self.name, {**self.options, "split": seed % self.splits}, where)


def _check_nested(entry: Mapping[str, Any], keys: Mapping[str, Any], kinds: Sequence[str]) -> None:
    """Raise `ValueError` if a name is the key of its settings, as in `{mgda: {normalize: l2}}`."""
    name = str(next(iter(entry), ""))
    if len(entry) != 1 or name in keys or not any(name in components.names(kind) for kind in kinds):
        return
    settings = entry[name] if isinstance(entry[name], Mapping) else {}
    inner = ", ".join(f"{key}: {_in_yaml(value)}" for key, value in settings.items()) or "SETTING: VALUE"
    if "datasets" in kinds and not settings.keys() & keys.keys():
        inner = f"options: {{{inner}}}"
    raise ValueError(f"the name stands beside its settings: write {{name: {name}, {inner}}}")


def _in_yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _check_no_option(entry: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
    """Raise `ValueError` if an option of the pipeline stands beside `options`."""
    name = entry.get("name")
    if not isinstance(name, str) or name not in components.names("datasets"):
        return

    for key in entry.keys() - keys.keys():
        if key in components.component("datasets", name).knobs():
            raise ValueError(f"{key} is an option of {name}; write `options: {{{key}: {entry[key]}}}`")


def _in_percent(task: str, share: Any) -> str:
    """Return a label's suffix, such as ' 10 %' or ' TASK 10 %'; empty for 1 and for invalid values."""
    small = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share < 1
    return f"{f' {task}' if task else ''} {100 * share:.4g} %" if small else ""


def _check_rays(rays: Any) -> int | tuple[Preference, ...] | None:
    return None if rays is None else check_rays(rays)


class MethodSpec(Model):
    """The definition of a leaderboard row: parameter sharing, task balancing, and additions to the losses."""

    label: Annotated[str, Label]  # its name in tables and files; default: the names of its parts
    architecture: ComponentSpec = ComponentSpec(name="hps")  # which parameters tasks share
    balancer: ComponentSpec = ComponentSpec(name="equal")  # how their losses or gradients become one update
    objective: ComponentSpec | None = None  # what is added to the losses
    model: dict[str, Any] = Field(default_factory=dict)  # keys of `model` that differ for this method
    training: dict[str, Any] = Field(default_factory=dict)  # keys of `training` that differ for this method
    # preferences of its balancer, each with networks of its own: a number of even ones, or a list; one row for all
    rays: Annotated[int | tuple[tuple[float, ...], ...] | None, PlainValidator(_check_rays)] = None
    _is_added: bool = PrivateAttr(False)

    @classmethod
    def added(cls, floor: str) -> MethodSpec:
        """Return the row of a floor that the file does not name among its methods."""
        method = cls.model_validate(floor)
        method._is_added = True
        return method

    @property
    def is_added(self) -> bool:
        return self._is_added

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """Accept `mgda` or `{name: mgda, ...its options}`, where the name is that of the one non-default component."""
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            return value

        value = dict(value)
        _check_nested(value, cls.model_fields, _OF_METHODS)
        name = value.pop("name", None)
        if name is None:
            parts = [value.get(part) for part in ("architecture", "balancer", "objective")]
            value.setdefault("label", "+".join(component_title(part) for part in parts if part) or "equal")
            return value

        kind = _kind_of(str(name))
        if kind == "objective":
            value.setdefault("architecture", components.component("objectives", str(name)).architecture)
        if kind == "architecture":
            value.setdefault("balancer", components.component("architectures", str(name)).balancer)

        component_settings = {key: value.pop(key) for key in list(value) if key not in cls.model_fields}
        if kind in value:
            raise ValueError(f"{name} is the {kind} already; drop `name` or `{kind}`")

        options = component_settings.pop("options", {})
        _check_no_training(str(name), kind, component_settings)
        value[kind] = {"name": name, "options": {**options, **component_settings}}
        value.setdefault("label", component_title({"name": name, **options, **component_settings}))
        return value

    @property
    def row(self) -> str:
        """The leaderboard row that it stands in: its label, less that of a ray."""
        return row_of(self.label, self.balancer.options)

    @property
    def name(self) -> str:
        """The method's name, independent of its label."""
        objective = None if self.objective is None else self.objective.name
        return method_name(self.architecture.name, self.balancer.title, objective)


def _check_no_training(name: str, kind: str, settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a key of `training` or `model` stands among a method's options."""
    knobs = components.component(f"{kind}s", name).knobs()
    for key in (key for key in settings if key not in knobs):
        for section, keys in (("training", TrainingSpec.model_fields), ("model", ModelSpec.model_fields)):
            if key in keys:
                raise ValueError(
                    f"{key} is no option of {name}; write `{section}: {{{key}: {_in_yaml(settings[key])}}}`"
                )


def method_name(architecture: str, balancer: str, objective: str | None = None) -> str:
    """Return the name that an experiment file has for a method of these parts, when it gives no label."""
    if objective is not None:
        return objective
    if architecture == "hps":
        return balancer
    return architecture if balancer == "equal" else f"{architecture}+{balancer}"


def _kind_of(name: str) -> str:
    known_names: list[str] = []
    for kind in _OF_METHODS:
        kind_names = components.names(kind)
        if name in kind_names:
            return kind[:-1]
        known_names += kind_names
    hint = (
        components.other_kind(name, *_OF_METHODS)
        or _optimizer(name)
        or _as_mapping(name)
        or nearest(name, sorted(known_names), listing="methods")
    )
    raise ValueError(f"unknown method {name!r}: {hint}")


_OF_METHODS = ("architectures", "balancers", "objectives")
_CALL = re.compile(r"([\w+-]+)\((\w+\s*=.*)\)|([\w+-]+):\s*(.*)")


def _optimizer(name: str) -> str:
    is_optimizer = name.lower() in get_args(TrainingSpec.model_fields["optimizer"].annotation)
    return f"it is an optimizer: `training: {{optimizer: {name.lower()}}}`" if is_optimizer else ""


def _as_mapping(text: str) -> str:
    """Return a clause with the mapping that was meant by `mgda(normalize=l2)` or 'mgda: {normalize: l2}'."""
    call = _CALL.fullmatch(text)
    if call is None:
        return ""
    name = call[1] or call[3]
    settings = re.sub(r"\s*=\s*", ": ", call[2]) if call[1] else call[4].strip().strip("{}")
    return f"write {{name: {name}, {settings}}}" if ":" in settings else f"write {{name: {name}, SETTING: VALUE}}"


class ModelSpec(Model):
    """The encoder that every method uses, and the dropout before the heads."""

    encoder: ComponentSpec = ComponentSpec(name="mlp")  # inputs to features
    dropout: float = Field(0.0, ge=0, lt=1)  # dropout of the features, before the heads


class TrainingSpec(Model):
    """The training settings of every run.

    Sizes are of the whole step: workers share a batch, they do not multiply it.
    """

    epochs: int = Field(20, ge=1)  # passes over the data; the best one on validation is measured on test
    batch_size: int = Field(64, ge=1)  # samples per stream and step, over all workers; per step where pooled
    # pooled: a batch is drawn from the samples of all tasks together, of tasks with inputs of their own
    batches: Literal["per_task", "pooled"] = "per_task"
    steps_per_epoch: int | None = Field(None, ge=1)  # default: one pass over the largest task, or over all pooled
    # the optimiser, unless a method brings one; nesterov: sgd with that momentum; muon: shared matrices, AdamW the rest
    optimizer: Literal["adam", "adamw", "sgd", "nesterov", "muon", "lion"] = "adam"
    lr: float = Field(1e-3, gt=0)  # learning rate
    weight_decay: float = Field(
        0.0, ge=0
    )  # decoupled with adamw, muon and lion, a term of the gradient with the others
    momentum: float = Field(0.0, ge=0, lt=1)  # of sgd, nesterov and muon (0: muon's default, 0.95)
    schedule: Literal["constant", "exponential", "inverse", "cosine"] = "constant"  # course of the learning rate
    # exponential: lr * decay_rate ** (step / decay_steps); inverse: lr * (1 + step / decay_steps) ** -decay_rate
    decay_rate: float = Field(0.9, gt=0, le=1)
    decay_steps: int = Field(1000, ge=1)  # of exponential and inverse
    clip: float | None = Field(None, gt=0)  # largest norm of the whole gradient
    amp: Literal["off", "bf16", "fp16"] = "off"  # mixed precision
    # of training images, with their maps; shift: moved by up to an eighth, and flipped; cutout: a square less, too
    augment: Literal["none", "flip", "scale_crop", "shift", "shift_cutout"] = "none"
    channels_last: bool = False  # memory layout of convolutions: the order of the results' last digits changes
    accumulate: int = Field(1, ge=1)  # micro-batches a step is cut into
    gramian_every: int = Field(1, ge=1)  # balance anew every so many steps (an approximation when > 1)
    dtype: Literal["float32", "float64"] = "float32"  # numbers of parameters and inputs
    evaluate_every: int = Field(1, ge=1)  # epochs
    patience: int | None = Field(None, ge=1)  # stop after so many evaluations without a better validation score
    # stop after the epoch in which the steps have taken so many seconds: other results on another machine
    seconds: float | None = Field(None, gt=0, exclude_if=lambda seconds: seconds is None)
    selection: Choosing = "metric"  # how the epoch is chosen on validation
    eval_batch_size: int = Field(512, ge=1)  # samples at a time on validation and test
    checkpoint_seconds: float = Field(10.0, ge=0)  # at most one checkpoint in so many seconds
    # Where samples lie: on the device, in the node's memory, in mapped files; auto takes the first that fits. What
    # passes by (stream) comes in an order of its own: other results, another run id.
    reader: Literal["auto", "device", "memory", "mapped", "stream"] = "auto"
    stream_window: int = Field(16, ge=1)  # blocks (at most 1,024 samples each) that stream mixes
    # Train the seeds of a method as one batched model where its parts allow it: much faster for small runs, other last
    # digits than alone. Such runs have no checkpoints.
    seeds_together: bool = Field(False, exclude_if=lambda together: not together)

    @field_validator("amp", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """Read false as `off`, since YAML reads `off` as false."""
        return "off" if value is False else value


_LEAST_SHARE = 1e-4  # of a CPU or GPU that Ray counts


class ResourceSpec(Model):
    """The resources of one run.

    The number of workers does not change results, so it is no part of a run id.
    """

    workers: int = Field(1, ge=1)  # processes that share every batch of a run
    # Each run is a run of Ray Train, named on its dashboard page. Seconds of start for each; else workers stay warm.
    train: bool = False
    cpus_per_worker: float = Field(1, ge=_LEAST_SHARE)  # processors of a worker, as Ray counts them
    gpus_per_worker: float = Field(0, ge=0)  # GPUs of a worker; with more than 0 a run trains on one
    # processes beside each worker that play the episodes a method asks for; 0: the worker plays them itself
    collectors: int = Field(0, ge=0)
    max_failures: int = Field(2, ge=0)  # restarts of a run whose worker died or hung
    timeout_minutes: float = Field(120, gt=0)  # without a sign of life (an epoch's end) a worker is taken for hung
    start_minutes: float = Field(15, gt=0)  # runs that wait for so long without any worker are given up

    @field_validator("gpus_per_worker")
    @classmethod
    def _divisible(cls, gpus: float) -> float:
        """Refuse shares of GPUs that Ray does not give."""
        if 0 < gpus < _LEAST_SHARE or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(f"{gpus:g} GPUs are no share that Ray gives; use a part of one, or a whole number")
        return gpus


class TrackingSpec(Model):
    """The MLflow settings; by default it uses an SQLite file below the home folder."""

    enabled: bool = True  # write runs into MLflow
    # a database or server; default: $MLFLOW_TRACKING_URI, else mlflow.db in the home folder
    uri: str | None = Field(None, repr=False)
    models: bool = True  # keep the chosen parameters of every run
    detail: Literal["summary", "full"] = "summary"  # at most 25 metrics of a run, or every one there is
    also: tuple[Literal["tensorboard", "wandb"], ...] = ()  # sinks beside MLflow, each with its extra

    @field_serializer("uri")
    def _shown(self, uri: str | None) -> str | None:
        """Leave the password out of whatever is written of an experiment."""
        return None if uri is None else without_secrets(uri)
