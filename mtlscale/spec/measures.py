"""Which metrics are reported, and which of them enter Δ and η."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from mtlscale.spec import components
from mtlscale.spec.components import nearest
from mtlscale.spec.errors import UserError

Chosen = Sequence[str] | Mapping[str, Sequence[str]]  # metrics for every task they are defined for, or by task
Measured = Sequence[tuple[str, str]]  # (task, metric)


def names_of(chosen: Chosen) -> list[str]:
    """All metrics that are named, each once."""
    lists = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    return list(dict.fromkeys(name for names in lists for name in names))


def check_names(names: Iterable[str], where: str, *, of_task: bool = False) -> None:
    """`UserError` with the nearest names for a metric nobody has; `of_task`: `<task>.<metric>` will do, too."""
    known = components.names("metrics")
    for name in names:
        if name not in known and not (of_task and any(name.endswith(f".{metric}") for metric in known)):
            raise UserError(f"{where}: unknown metric {name!r}: {nearest(name, known, listing='metrics')}")


def plugin_hashes(names: Iterable[str]) -> dict[str, str]:
    """metric -> hash of its file, of those that come from plugins."""
    known = components.names("metrics")
    found = {
        name: components.source_hash(components.component("metrics", name))
        for name in sorted(set(names))
        if name in known and name not in components.names("metrics", plugins=False)
    }
    return {name: source for name, source in found.items() if source}


def fingerprint_with(fingerprint: str, names: Iterable[str]) -> str:
    """The fingerprint of data whose tasks report these metrics: an edited plugin among them makes it another."""
    known, hashes = fingerprint.partition("+")[0], plugin_hashes(names)
    if not hashes:
        return known
    former = {name: components.FORMER_HASHES.get(digest, digest) for name, digest in hashes.items()}
    components.FORMER_HASHES[_together(hashes)] = _together(former)
    return f"{known}+{_together(hashes)}"


def _together(hashes: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16]


def suite_delta(pipeline: str) -> tuple[str, ...]:
    """What the pipeline of that name declares to enter Δ and η; () where it declares nothing, or is not known here."""
    try:
        return tuple(getattr(components.component("datasets", pipeline), "delta", ()))
    except UserError:
        return ()


def entering(names: Sequence[str], measured: Measured) -> list[tuple[str, str]]:
    """Those of the measured that a name means: a metric of every task that has it, or `<task>.<metric>`."""
    return [(task, metric) for task, metric in measured if {metric, f"{task}.{metric}"} & set(names)]


def check_delta(delta: Mapping[str, Sequence[str]], measured: Mapping[str, Measured]) -> None:
    """`UserError` for a name that means nothing that is measured.

    delta: data set -> names, "" for sets without names of their own; measured: data set -> what its tasks report.
    """
    for dataset, names in delta.items():
        if dataset in measured:
            _check_all(f"delta of {dataset}", names, measured[dataset])
    others = {dataset: found for dataset, found in measured.items() if dataset not in delta}
    if "" in delta and others:
        _check_all("delta", delta[""], [pair for found in others.values() for pair in found])
        for dataset, found in others.items():
            if not entering(delta[""], found):
                raise UserError(f"delta: {dataset} reports none of {', '.join(delta[''])}; give it a delta of its own")


def _check_all(where: str, names: Sequence[str], measured: Measured) -> None:
    for name in names:
        if not entering([name], measured):
            known = list(dict.fromkeys(metric for _, metric in measured))
            raise UserError(f"{where}: no task reports {name!r}: {nearest(name, known)}")
