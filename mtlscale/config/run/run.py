"""The run of an experiment: its parts, and the id that identifies it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pydantic import Field

from mtlscale.config.named_files import identity
from mtlscale.config.preferences import row_of
from mtlscale.config.registry import components
from mtlscale.config.run.run_parts import IDENTITY, Parts, as_json, settings
from mtlscale.config.settings.metric_selection import Chosen
from mtlscale.config.settings.models import EvaluationSpec, LabelNoise, ModelSpec, TrainingSpec
from mtlscale.config.settings.search_space import PARTS, Knobs, split_path
from mtlscale.config.validation import Model, override

RESULTS_VERSION = 2  # of the training loop; raise when the results of a run change

# Training settings that change what is stored or when, but no result.
_NO_RESULT = frozenset({"checkpoint_seconds", "eval_batch_size"})
_READING = frozenset({"reader", "stream_window"})


def no_result(training: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of training settings that change no result.

    They include the reader's, except for the reader `stream`, which gives samples in an order of its own.
    """
    return _NO_RESULT if training.get("reader") == "stream" else _NO_RESULT | _READING


_DERIVED = ("parts", "frame")  # computed from a run's spec, kept beside it in this process


class RunIdTemplate:
    """The text whose hash is the run id, with gaps for data set, seed and data.

    It is the same for all seeds of a method.
    """

    def __init__(self, before: str, between: str, after: str) -> None:
        self._before, self._between, self._after = before, between, after

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> RunIdTemplate:
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
        dataset_json = json.dumps(dataset, sort_keys=True)
        spec = f'{self._before}"dataset": {dataset_json}, {self._between}"seed": {json.dumps(seed)}{self._after}'
        return f"[{{{spec}}}, {json.dumps(fingerprint)}, {RESULTS_VERSION}]"


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run(Model):
    """The training run, fully resolved: everything a worker needs besides the data.

    `spec` is its plain form, which records keep; `parts` holds the built components.
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
        """The hash of the spec, the data and the results versions; labels and resources are no part of it.

        Every setting counts with its value, whether the file names it or leaves it at its default. If a default
        changes, runs that had the old one become other runs.
        """
        return _hashed(self._identity)

    @property
    def _identity(self) -> str:
        """The text that the run id hashes."""
        cached_frame: RunIdTemplate | None = self.__dict__.get("frame")
        frame = RunIdTemplate.of(self.spec) if cached_frame is None else cached_frame
        return frame.text(self.spec["dataset"], self.spec["seed"], self.fingerprint)

    @cached_property
    def parts(self) -> Parts:
        """The parts of the run, built once in this process."""
        return Parts.of(self.spec, self.method)

    @classmethod
    def of_parts(cls, parts: Parts, frame: RunIdTemplate | None = None, **fields: Any) -> Run:
        """Make a run whose parts are built already.

        Runs that differ only in data set and seed share the parts and the frame.
        """
        run = cls(**fields)
        run.__dict__["parts"] = parts
        if frame is not None:
            run.__dict__["frame"] = frame
        return run

    def __getstate__(self) -> dict[Any, Any]:
        """Leave out the parts, whose plugins may not be loaded yet in the process that unpickles the run."""
        state = super().__getstate__()
        return {**state, "__dict__": {key: value for key, value in state["__dict__"].items() if key not in _DERIVED}}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Run:
        copied = super().model_copy(update=update, deep=deep)
        if update and "spec" in update:
            for key in _DERIVED:
                copied.__dict__.pop(key, None)
        return copied

    @property
    def row(self) -> str:
        """The leaderboard row that it stands in: its method, less the ray that it aims at."""
        return row_of(self.method, self.spec["balancer"])

    @property
    def training(self) -> TrainingSpec:
        return self.parts.training

    @property
    def metrics(self) -> Chosen | None:
        """The metrics that its tasks report in place of those of the pipeline."""
        task_metrics: list[Any] | None = self.spec["dataset"].get("task_metrics")
        return None if task_metrics is None else task_metrics[0]

    @property
    def tasks(self) -> list[str] | None:
        """The prepared tasks that it trains; None for all."""
        names: list[str] | None = self.spec["dataset"].get("only_tasks")
        return names

    @property
    def noise(self) -> LabelNoise | None:
        """The noise in its training labels: the share of wrong ones, and the tasks that have them."""
        noise_settings = self.spec["dataset"].get("label_noise")
        return None if noise_settings is None else LabelNoise.model_validate(noise_settings)

    @property
    def evaluation(self) -> EvaluationSpec | None:
        """The measurements of the trained network beside its metrics."""
        measurements = self.spec["dataset"].get("evaluation")
        return None if measurements is None else EvaluationSpec.model_validate(measurements)

    @property
    def share(self) -> float | dict[str, float]:
        """The share of the training samples that it uses, of all tasks or by task."""
        fraction = self.spec["dataset"].get("train_share", 1.0)
        return (
            {str(task): float(task_fraction) for task, task_fraction in fraction.items()}
            if isinstance(fraction, Mapping)
            else float(fraction)
        )

    @property
    def epochs(self) -> int:
        """The epochs of all its phases, if no early stopping cuts them short."""
        return sum(phase.epochs or self.training.epochs for phase in self.parts.phases)

    def epochs_behind(self, phase: str, epoch: int) -> int:
        """Return the number of epochs that are over after an epoch of a phase.

        Earlier phases that ended early, or that another run had done, count with all their epochs.

        Args:
            phase: The phase; "" if the run has only one.
            epoch: The number of epochs done in the phase.
        """
        finished_epochs = epoch
        for earlier_phase in self.parts.phases if phase else ():
            if earlier_phase.name == phase:
                break
            finished_epochs += earlier_phase.epochs or self.training.epochs
        return finished_epochs

    def tuned(self, knobs: Knobs) -> Run:
        """Return this run with other settings, which are recorded as its `trial`.

        Args:
            knobs: Dotted setting -> value, such as {"training.lr": 0.01, "balancer.eps": 0.1}.
        """
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
                options = {option: setting for option, setting in spec[key].items() if option not in IDENTITY} | values
                component = components.build(PARTS[part], spec[key]["name"], options, where)
                parts, spec[key] = replace(parts, **{key: component}), as_json(settings(component))

        copied = self.model_copy(update={"spec": spec, "trial": dict(knobs)})
        copied.__dict__["parts"] = parts
        return copied
