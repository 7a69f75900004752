"""What runs must agree in before they stand in one table: data, tasks, metrics, labels and how the epoch is chosen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mtlscale.records import RunRecord
from mtlscale.spec import Run, TrainingSpec, UserError, component, no_result

FLOORS = ("constant", "linear", "frequent_tag")  # computed from the data: no setting of the training shapes them
_BY_SEED = ("split", "seed")  # options that an experiment may choose by a run's seed
_SHOWN = 4  # names in a sentence


@dataclass(frozen=True)
class Protocol:
    """Of the runs of one data set in one experiment. None where no run says."""

    fingerprints: dict[int, str] = field(default_factory=dict)  # seed -> of the data
    by_seed: bool = False  # every seed has a split of its own
    options: dict[str, Any] = field(default_factory=dict)  # of the pipeline
    own: dict[str, Any] = field(default_factory=dict)  # what the experiment makes of its data: noise, fewer labels
    tasks: dict[str, str] | None = None  # with their main metrics
    metrics: tuple[str, ...] | None = None
    selection: str | None = None  # how the epoch is chosen

    @classmethod
    def of(cls, record: RunRecord, by_seed: bool, selection: str | None) -> Protocol:
        dataset = record.spec.get("dataset", {})
        knobs = _knobs(dataset)
        return cls(
            fingerprints={record.seed: record.fingerprint},
            by_seed=by_seed,
            options={key: dataset[key] for key in dataset if key in knobs},
            own={key: value for key, value in dataset.items() if key not in knobs},
            tasks=dict(record.main_metrics) or None,
            metrics=tuple(sorted(record.higher_is_better)) or None,
            selection=selection,
        )

    def joined(self, other: Protocol) -> Protocol:
        """Of both, which agree."""
        return replace(
            self,
            fingerprints={**other.fingerprints, **self.fingerprints},
            by_seed=self.by_seed or other.by_seed,
            tasks=self.tasks or other.tasks,
            metrics=self.metrics or other.metrics,
            selection=self.selection or other.selection,
        )

    def differences(self, other: Protocol) -> list[str]:
        """What this one has instead of the other's, in words; nothing where runs of both compare."""
        return [*self._of_data(other), *self._of_rest(other)]

    def _of_data(self, other: Protocol) -> Iterator[str]:
        shared = self.fingerprints.keys() & other.fingerprints.keys()
        mine, theirs = set(self.fingerprints.values()), set(other.fingerprints.values())
        named = _against(self.options, other.options)
        if shared:
            agree = all(self.fingerprints[seed] == other.fingerprints[seed] for seed in shared)
        elif self.by_seed and other.by_seed:
            named = _against(_without_split(self.options), _without_split(other.options))
            agree = not named
        else:
            agree = mine == theirs
        if not agree:
            yield from named
            if not named:
                ours, others = (", ".join(sorted(text[:8] for text in of)[:_SHOWN]) for of in (mine, theirs))
                yield f"data with fingerprint {ours}, not {others}"

    def _of_rest(self, other: Protocol) -> Iterator[str]:
        yield from _against(self.own, other.own)
        if self.tasks is not None and other.tasks is not None and self.tasks != other.tasks:
            if self.tasks.keys() == other.tasks.keys():
                ours, others = (", ".join(dict.fromkeys(of.values())) for of in (self.tasks, other.tasks))
                yield f"main metric {ours}, not {others}"
            else:
                yield f"tasks {_names(list(self.tasks))}, not {_names(list(other.tasks))}"
        if self.metrics is not None and other.metrics is not None and self.metrics != other.metrics:
            ours, others = (", ".join(name for name in of if name != "loss") for of in (self.metrics, other.metrics))
            yield f"metrics {ours}, not {others}"
        if self.selection and other.selection and self.selection != other.selection:
            yield f"epochs chosen by {self.selection}, not {other.selection}"


def selection(records: Iterable[RunRecord]) -> str | None:
    """How most of these runs choose their epoch; floors have none to choose."""
    usual = TrainingSpec().selection
    found = Counter(
        str(record.spec.get("training", {}).get("selection", usual)) for record in records if not is_floor(record)
    )
    return found.most_common(1)[0][0] if found else None


def splits_by_seed(records: Sequence[RunRecord]) -> bool:
    """Whether these runs of one experiment have a split of their own for each seed."""
    chosen: dict[int, set[str]] = {}
    for record in records:
        dataset = record.spec.get("dataset", {})
        chosen.setdefault(record.seed, set()).add(json.dumps([dataset.get(key) for key in _BY_SEED]))
    return all(len(of) == 1 for of in chosen.values()) and len(set().union(*chosen.values())) > 1


def is_floor(record: RunRecord | Run) -> bool:
    """Whether it is computed from the data alone."""
    return record.spec.get("architecture", {}).get("name") in FLOORS


def settings(record: RunRecord | Run) -> dict[str, Any]:
    """What a run did, as dotted names: all of its spec but the data and the seed, and what changes no result."""
    spec = record.spec
    if is_floor(record):
        return _flat(spec["architecture"], "architecture.")
    training = {**TrainingSpec().model_dump(mode="json"), **spec.get("training", {})}
    kept = {key: value for key, value in training.items() if key not in no_result(training)}
    parts = {key: value for key, value in spec.items() if key not in ("dataset", "seed", "training")}
    return _flat({**parts, "training": kept})


def identity(record: RunRecord) -> str:
    """The same for runs of one method with one choice of settings."""
    return json.dumps(settings(record), sort_keys=True)


def apart(one: RunRecord, other: RunRecord | Run) -> list[str]:
    """Names of the settings that two runs differ in."""
    mine, theirs = settings(one), settings(other)
    return [key for key in dict.fromkeys((*mine, *theirs)) if mine.get(key) != theirs.get(key)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and set(value) == {"file", "sha256"}:
            found[f"{prefix}{key}"] = value["sha256"]  # where a file lies changes no result
        elif isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _knobs(dataset: Mapping[str, Any]) -> set[str]:
    """Of a spec's data set, the names that its pipeline knows: its fingerprint covers them."""
    try:
        return {"name", *component("datasets", str(dataset.get("name", ""))).knobs()}
    except UserError:  # of a plugin that is not loaded
        return {"name", *_BY_SEED}


def _against(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    keys = [key for key in dict.fromkeys((*mine, *theirs)) if mine.get(key) != theirs.get(key)]
    return [f"{key} {_told(mine.get(key))}, not {_told(theirs.get(key))}" for key in keys]


def _without_split(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _BY_SEED}


def _told(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]} …"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
