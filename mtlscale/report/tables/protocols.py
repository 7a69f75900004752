"""Protocols of runs in one table: data, tasks, metrics, labels and the selection of the epoch have to agree."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mtlscale.config import Run, TrainingSpec, UserError, component, no_result
from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import MOST_LISTED, listed

FLOORS = (
    "constant",
    "linear",
    "forest",
    "boosting",
    "frequent_tag",
)  # computed from the data: no training setting changes them
_BY_SEED = ("split", "seed")  # options that an experiment may vary with a run's seed


@dataclass(frozen=True)
class Protocol:
    """The conditions of one data set's runs in one experiment; None where no run records a condition."""

    fingerprints: dict[int, str] = field(default_factory=dict)  # seed -> of the data
    by_seed: bool = False  # every seed has a split of its own
    options: dict[str, Any] = field(default_factory=dict)  # of the pipeline
    data_changes: dict[str, Any] = field(default_factory=dict)  # changes to the data: noise, fewer labels
    tasks: dict[str, str] | None = None  # with their main metrics
    metrics: tuple[str, ...] | None = None
    selection: str | None = None  # how the epoch is chosen

    @classmethod
    def of(cls, record: RunRecord, by_seed: bool, selection: str | None) -> Protocol:
        """Return the protocol of one run.

        Args:
            record: The run.
            by_seed: Whether every seed has a split of its own.
            selection: How its experiment's runs choose their epoch.
        """
        dataset = record.spec.get("dataset", {})
        knobs = _knobs(dataset)

        return cls(
            fingerprints={record.seed: record.fingerprint},
            by_seed=by_seed,
            options={key: dataset[key] for key in dataset if key in knobs},
            data_changes={key: value for key, value in dataset.items() if key not in knobs},
            tasks=dict(record.main_metrics) or None,
            metrics=tuple(sorted(record.higher_is_better)) or None,
            selection=selection,
        )

    def joined(self, other: Protocol) -> Protocol:
        """Merge two protocols that agree."""
        return replace(
            self,
            fingerprints={**other.fingerprints, **self.fingerprints},
            by_seed=self.by_seed or other.by_seed,
            tasks=self.tasks or other.tasks,
            metrics=self.metrics or other.metrics,
            selection=self.selection or other.selection,
        )

    def differences(self, other: Protocol) -> list[str]:
        """Return in words what differs from another protocol; empty where runs of both compare."""
        return [*self._of_data(other), *self._of_rest(other)]

    def _of_data(self, other: Protocol) -> Iterator[str]:
        shared = self.fingerprints.keys() & other.fingerprints.keys()
        own_prints, other_prints = set(self.fingerprints.values()), set(other.fingerprints.values())
        option_differences = _against(self.options, other.options)

        if shared:
            agree = all(self.fingerprints[seed] == other.fingerprints[seed] for seed in shared)
        elif self.by_seed and other.by_seed:
            option_differences = _against(_without_split(self.options), _without_split(other.options))
            agree = not option_differences
        else:
            agree = own_prints == other_prints

        if not agree:
            yield from option_differences
            if not option_differences:
                own_text, other_text = (
                    ", ".join(sorted(text[:8] for text in prints)[:MOST_LISTED])
                    for prints in (own_prints, other_prints)
                )
                yield f"data with fingerprint {own_text}, not {other_text}"

    def _of_rest(self, other: Protocol) -> Iterator[str]:
        yield from _against(self.data_changes, other.data_changes)

        if self.tasks is not None and other.tasks is not None and self.tasks != other.tasks:
            if self.tasks.keys() == other.tasks.keys():
                own_text, other_text = (
                    ", ".join(dict.fromkeys(metrics.values())) for metrics in (self.tasks, other.tasks)
                )
                yield f"main metric {own_text}, not {other_text}"
            else:
                yield f"tasks {listed(list(self.tasks))}, not {listed(list(other.tasks))}"

        if self.metrics is not None and other.metrics is not None and self.metrics != other.metrics:
            own_text, other_text = (
                ", ".join(name for name in metrics if name != "loss") for metrics in (self.metrics, other.metrics)
            )
            yield f"metrics {own_text}, not {other_text}"

        if self.selection and other.selection and self.selection != other.selection:
            yield f"epochs chosen by {self.selection}, not {other.selection}"


def selection(records: Iterable[RunRecord]) -> str | None:
    """Return how most of these runs choose their epoch; floors have none to choose."""
    default = TrainingSpec().selection
    counts = Counter(
        str(record.spec.get("training", {}).get("selection", default)) for record in records if not is_floor(record)
    )
    return counts.most_common(1)[0][0] if counts else None


def splits_by_seed(records: Sequence[RunRecord]) -> bool:
    """Return whether these runs of one experiment have a separate split for each seed."""
    chosen: dict[int, set[str]] = {}
    for record in records:
        dataset = record.spec.get("dataset", {})
        chosen.setdefault(record.seed, set()).add(json.dumps([dataset.get(key) for key in _BY_SEED]))
    return all(len(choices) == 1 for choices in chosen.values()) and len(set().union(*chosen.values())) > 1


def is_floor(record: RunRecord | Run) -> bool:
    """Return whether a run is a floor: computed from the data alone."""
    return record.spec.get("architecture", {}).get("name") in FLOORS


def settings(record: RunRecord | Run) -> dict[str, Any]:
    """Return a run's settings as dotted names: its spec but the data, the seed and keys that change no result."""
    spec = record.spec
    if is_floor(record):
        return _flat(spec["architecture"], "architecture.")
    training = {**_training_defaults(), **spec.get("training", {})}
    effective = {key: value for key, value in training.items() if key not in no_result(training)}
    parts = {key: value for key, value in spec.items() if key not in ("dataset", "seed", "training")}
    return _flat({**parts, "training": effective})


@functools.cache
def _training_defaults() -> dict[str, Any]:
    return TrainingSpec().model_dump(mode="json")


def identity(record: RunRecord) -> str:
    """Return a text that is the same for runs of one method with one choice of settings."""
    return json.dumps(settings(record), sort_keys=True)


def differing_settings(record: RunRecord, other: RunRecord | Run) -> list[str]:
    """Return the names of the settings that two runs differ in."""
    first_settings, second_settings = settings(record), settings(other)
    return [
        key
        for key in dict.fromkeys((*first_settings, *second_settings))
        if first_settings.get(key) != second_settings.get(key)
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and set(value) == {"file", "sha256"}:
            flat[f"{prefix}{key}"] = value["sha256"]  # where a file lies changes no result
        elif isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _knobs(dataset: Mapping[str, Any]) -> set[str]:
    """Return the names of a spec's data set that its pipeline knows: its fingerprint covers them."""
    try:
        return {"name", *component("datasets", str(dataset.get("name", ""))).knobs()}
    except UserError:  # a data set of a plugin that is not loaded
        return {"name", *_BY_SEED}


def _against(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    keys = [key for key in dict.fromkeys((*mine, *theirs)) if mine.get(key) != theirs.get(key)]
    return [f"{key} {_value_text(mine.get(key))}, not {_value_text(theirs.get(key))}" for key in keys]


def _without_split(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _BY_SEED}


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]} …"
