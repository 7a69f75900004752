"""One run of an experiment: what it is made of, and the id it is known by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pydantic import Field

from mtlscale.spec import components
from mtlscale.spec.dimensions import PARTS, Knobs, split_path
from mtlscale.spec.files import identity
from mtlscale.spec.measures import Chosen
from mtlscale.spec.models import EvaluationSpec, LabelNoise, ModelSpec, TrainingSpec
from mtlscale.spec.parts import IDENTITY, Parts, as_json, settings
from mtlscale.spec.validation import Model, override

RESULTS_VERSION = 2  # of the training loop; raise when the results of a run change

# Of the training settings, those that change what is stored or when, but no result.
_NO_RESULT = frozenset({"checkpoint_seconds", "eval_batch_size"})
_READING = frozenset({"reader", "stream_window"})


def no_result(training: Mapping[str, Any]) -> frozenset[str]:
    """Names of these training settings that change no result: how data are read among them, unless they pass by in an
    order of their own."""
    return _NO_RESULT if training.get("reader") == "stream" else _NO_RESULT | _READING


_DERIVED = ("parts", "frame")  # of a run's spec, kept beside it in this process


class Frame:
    """The text that a run id is the hash of, but for data set, seed and data: the same for all seeds of a method."""

    def __init__(self, before: str, between: str, after: str) -> None:
        self._before, self._between, self._after = before, between, after

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Frame:
        training, parts = spec["training"], ("architecture", "balancer", "objective", "encoder", "dropout")
        left_out = no_result(training)
        content = {
            "dataset": None,
            "seed": None,
            "training": {key: value for key, value in training.items() if key not in left_out},
            **{part: identity(spec[part]) for part in parts},
        }
        names = sorted(content)
        texts = {name: f"{json.dumps(name)}: {json.dumps(content[name], sort_keys=True)}" for name in names}
        first, last = names.index("dataset"), names.index("seed")
        return cls(
            "".join(f"{texts[name]}, " for name in names[:first]),
            "".join(f"{texts[name]}, " for name in names[first + 1 : last]),
            "".join(f", {texts[name]}" for name in names[last + 1 :]),
        )

    def text(self, dataset: Mapping[str, Any], seed: int, fingerprint: str) -> str:
        told = json.dumps(dataset, sort_keys=True)
        spec = f'{self._before}"dataset": {told}, {self._between}"seed": {json.dumps(seed)}{self._after}'
        return f"[{{{spec}}}, {json.dumps(fingerprint)}, {RESULTS_VERSION}]"


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run(Model):
    """One training run, fully resolved: everything a worker needs besides the data.

    `spec` is its plain form, which records keep; whoever wants to look into it asks `parts`.
    """

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

        Every setting counts with its value, whether the file names it or leaves it at its default: a default that
        changes makes other runs of those that had it.
        """
        return _hashed(self._identity)

    @property
    def former_id(self) -> str | None:
        """The id that an earlier version gave this run, where that is another one: it hashed the bytes of plugins."""
        text = former = self._identity
        for digest, before in components.FORMER_HASHES.items():
            former = former.replace(digest, before)
        return None if former == text else _hashed(former)

    @property
    def _identity(self) -> str:
        """The text that its id is the hash of."""
        known: Frame | None = self.__dict__.get("frame")
        frame = Frame.of(self.spec) if known is None else known
        return frame.text(self.spec["dataset"], self.spec["seed"], self.fingerprint)

    @cached_property
    def parts(self) -> Parts:
        """What the run is made of, built once in this process."""
        return Parts.of(self.spec, self.method)

    @classmethod
    def of_parts(cls, parts: Parts, frame: Frame | None = None, **fields: Any) -> Run:
        """A run whose parts are built already; runs that differ in data set and seed alone share them."""
        run = cls(**fields)
        run.__dict__["parts"] = parts
        if frame is not None:
            run.__dict__["frame"] = frame
        return run

    def __getstate__(self) -> dict[Any, Any]:
        """Without the parts: where a run arrives, the plugins they come from may not be loaded yet."""
        state = super().__getstate__()
        return {**state, "__dict__": {key: value for key, value in state["__dict__"].items() if key not in _DERIVED}}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Run:
        copied = super().model_copy(update=update, deep=deep)
        if update and "spec" in update:
            for key in _DERIVED:
                copied.__dict__.pop(key, None)
        return copied

    @property
    def training(self) -> TrainingSpec:
        return self.parts.training

    @property
    def metrics(self) -> Chosen | None:
        """What its tasks report instead of what the pipeline says."""
        told: list[Any] | None = self.spec["dataset"].get("task_metrics")
        return None if told is None else told[0]

    @property
    def tasks(self) -> list[str] | None:
        """The prepared tasks that it trains; None: all."""
        told: list[str] | None = self.spec["dataset"].get("only_tasks")
        return told

    @property
    def noise(self) -> LabelNoise | None:
        """How many of its training labels are wrong, and whose."""
        told = self.spec["dataset"].get("label_noise")
        return None if told is None else LabelNoise.model_validate(told)

    @property
    def evaluation(self) -> EvaluationSpec | None:
        """What is measured of the trained network beside its metrics."""
        told = self.spec["dataset"].get("evaluation")
        return None if told is None else EvaluationSpec.model_validate(told)

    @property
    def share(self) -> float | dict[str, float]:
        """Of the training samples, how many it has, or of those of some tasks."""
        told = self.spec["dataset"].get("train_share", 1.0)
        return {str(task): float(its) for task, its in told.items()} if isinstance(told, Mapping) else float(told)

    @property
    def epochs(self) -> int:
        """Epochs of all its phases, if no early stopping cuts them short."""
        return sum(phase.epochs or self.training.epochs for phase in self.parts.phases)

    def epochs_behind(self, phase: str, epoch: int) -> int:
        """How many of its epochs are over with this one of a phase ("": it has one phase alone). Earlier phases that
        ended early, or that another run had done, count whole."""
        behind = epoch
        for earlier in self.parts.phases if phase else ():
            if earlier.name == phase:
                break
            behind += earlier.epochs or self.training.epochs
        return behind

    def tuned(self, knobs: Knobs) -> Run:
        """This run with other settings, such as {"training.lr": 0.01, "balancer.eps": 0.1}; they are its `trial`."""
        if not knobs:
            return self
        groups: dict[str, Knobs] = {}
        for path, value in knobs.items():
            part, knob = split_path(path)
            groups.setdefault(part, {})[knob] = value
        spec, parts, where = dict(self.spec), self.parts, f"search: {self.method}"
        for part, values in groups.items():
            if part == "training":
                training = override(parts.training, values, where)
                parts, spec["training"] = replace(parts, training=training), training.model_dump(mode="json")
            elif part == "model":
                dropout = override(ModelSpec(dropout=parts.dropout), values, where).dropout
                parts, spec["dropout"] = replace(parts, dropout=dropout), dropout
            else:
                key = part.removeprefix("model.")
                options = {k: v for k, v in spec[key].items() if k not in IDENTITY} | values
                built = components.build(PARTS[part], spec[key]["name"], options, where)
                parts, spec[key] = replace(parts, **{key: built}), as_json(settings(built))
        copied = self.model_copy(update={"spec": spec, "trial": dict(knobs)})
        copied.__dict__["parts"] = parts
        return copied
