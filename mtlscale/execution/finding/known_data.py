"""Which version of its data an experiment has, as far as the home knows without preparing anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from mtlscale.config import DatasetSpec, Experiment, UserError, data_settings, fingerprint_with
from mtlscale.data.format.manifest import read_manifest
from mtlscale.execution.planning.plan import as_asked, fingerprint_of
from mtlscale.execution.planning.status import read_data
from mtlscale.execution.preparing.prepare import earlier_preparations
from mtlscale.records import Home, RunRecord

_SHOWN = 8  # letters of a fingerprint
_UNPREPARED = "the prepared data that tell which are this file's are gone: `mtlscale run` of the file settles that"
_NO_SOURCE = "the raw data that tell which are this file's are not here: name them as its `source` in the file"


@dataclass(frozen=True)
class KnownData:
    """The fingerprints of an experiment's data, and the data sets of which they are not known for sure.

    Attributes:
        fingerprints: Name of the prepared data -> their fingerprint; "" where it is not known.
        unsettled: Label of a data set -> why its records are not told apart, in a line.
    """

    fingerprints: Mapping[str, str]
    unsettled: Mapping[str, str]


def known_data(
    experiment: Experiment, home: Home, records: Iterable[RunRecord], prepared: Mapping[str, str] | None = None
) -> KnownData:
    """Return the fingerprints that the experiment's data have now.

    They are those of the preparation that `mtlscale run` would take. If that is not in the home, they are those that
    an experiment has noted for it, else those of its records, if these have one alone.

    Args:
        experiment: The experiment.
        home: The home folder.
        records: The records under the experiment's name.
        prepared: Name of prepared data -> fingerprint, where it is known already.
    """
    records, fingerprints, candidates = list(records), dict(prepared or {}), {}
    why: dict[str, str] = {}
    noted: dict[str, str] | None = None

    for name, (dataset, seed) in experiment.data().items():
        if name in fingerprints:
            continue
        key, folders = earlier_preparations(dataset.name, asdict(dataset.build(seed)), dataset.source, home.root)
        manifests = {other: read_manifest(folder) for other, folder in folders.items()}
        prepared_as = {manifest.fingerprint for manifest in manifests.values()}

        chosen = manifests.get(key) if key else next(iter(manifests.values())) if len(prepared_as) == 1 else None
        if chosen is not None:
            with suppress(UserError):  # a file that asks for what the data lack has no runs
                chosen = as_asked(chosen, dataset)
            fingerprints[name] = fingerprint_of(chosen)
            continue

        noted = read_data(home) if noted is None else noted
        known = {other: manifest.fingerprint for other, manifest in manifests.items()} | noted
        if key in known:
            possible = {known[key]}
        elif key:
            possible = _recorded(records, dataset, seed) - set(known.values())  # those are of other sources
        else:
            possible = _recorded(records, dataset, seed)
        candidates[name] = possible
        why[name] = _UNPREPARED if key else _NO_SOURCE

    return _settled(experiment, records, fingerprints, candidates, why)


def recorded_data(experiment: Experiment, records: Iterable[RunRecord], stated: Mapping[str, str]) -> KnownData:
    """Return the fingerprints that records have, where no home is at hand.

    Args:
        experiment: The experiment.
        records: Its records.
        stated: Name of the prepared data -> the fingerprint that counts where records have several.
    """
    records, candidates = list(records), {}
    for name, (dataset, seed) in experiment.data().items():
        possible = _recorded(records, dataset, seed)
        candidates[name] = possible if len(possible) < 2 else possible & {stated.get(name, "")} or possible
    return _settled(experiment, records, {}, candidates, dict.fromkeys(candidates, _NO_SOURCE))


def _settled(
    experiment: Experiment,
    records: list[RunRecord],
    fingerprints: dict[str, str],
    candidates: Mapping[str, set[str]],
    why: Mapping[str, str],
) -> KnownData:
    """Return the fingerprints with the one candidate of each name; `why` says what is missing where there are more."""
    datasets, unsettled = experiment.data(), {}
    for name, possible in candidates.items():
        dataset, seed = datasets[name]
        fingerprints[name] = _with_metrics(records, dataset, seed, *possible) if len(possible) == 1 else ""
        if len(possible) > 1:
            versions = ", ".join(sorted(fingerprint[:_SHOWN] for fingerprint in possible))
            unsettled[dataset.label] = (
                f"runs of {experiment.name} on {dataset.label} were made on {len(possible)} versions of its data "
                f"({versions}), and {why[name]}"
            )
    return KnownData(fingerprints, unsettled)


def _recorded(records: Iterable[RunRecord], dataset: DatasetSpec, seed: int) -> set[str]:
    """Return the fingerprints of data, without metrics, that records of this preparation have."""
    options = {"name", *dataset.build(seed).knobs()}
    expected = {key: value for key, value in data_settings(dataset, seed).items() if key in options}
    return {
        record.fingerprint.partition("+")[0]
        for record in _of(records, dataset, seed)
        if {key: value for key, value in _settings(record).items() if key in expected} == expected
    }


def _with_metrics(records: Iterable[RunRecord], dataset: DatasetSpec, seed: int, fingerprint: str) -> str:
    """Return the fingerprint of data with the metrics that the data set's own records report."""
    expected = data_settings(dataset, seed)
    result = fingerprint
    for record in _of(records, dataset, seed):
        if _settings(record) == expected and record.fingerprint.partition("+")[0] == fingerprint:
            # A failed run does not know which metrics its tasks report.
            names = record.higher_is_better
            result = fingerprint_with(fingerprint, names) if names else record.fingerprint
            if names:
                break
    return result


def _of(records: Iterable[RunRecord], dataset: DatasetSpec, seed: int) -> Iterator[RunRecord]:
    """Yield the records that read the prepared data of a seed."""
    name = dataset.prepared(seed)
    return (record for record in records if record.dataset == dataset.label and dataset.prepared(record.seed) == name)


def _settings(record: RunRecord) -> Mapping[str, object]:
    """Return the data set's part of a record's spec; a stranger's may be anything."""
    settings = record.spec.get("dataset")
    return settings if isinstance(settings, Mapping) else {}
