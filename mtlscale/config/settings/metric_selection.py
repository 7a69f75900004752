"""Selection of the metrics that are reported, and of those that enter Δ and η."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from mtlscale.config.errors import UserError
from mtlscale.config.registry import components
from mtlscale.config.registry.nearest import nearest

Chosen = Sequence[str] | Mapping[str, Sequence[str]]  # metrics for every task they are defined for, or by task
Measured = Sequence[tuple[str, str]]  # (task, metric)


def names_of(chosen: Chosen) -> list[str]:
    """List all named metrics, each once."""
    lists = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    return list(dict.fromkeys(name for names in lists for name in names))


def check_names(names: Iterable[str], where: str, *, of_task: bool = False) -> None:
    """Raise `UserError` with the nearest names for an unknown metric.

    Args:
        where: The beginning of the error message.
        of_task: Whether `<task>.<metric>` is allowed, too.
    """
    metrics = components.names("metrics")
    for name in names:
        if name not in metrics and not (of_task and any(name.endswith(f".{metric}") for metric in metrics)):
            raise UserError(f"{where}: unknown metric {name!r}: {nearest(name, metrics, listing='metrics')}")


def plugin_hashes(names: Iterable[str]) -> dict[str, str]:
    """Return metric -> hash of its file, for metrics that come from plugins."""
    metrics = components.names("metrics")
    hashes = {
        name: components.source_hash(components.component("metrics", name))
        for name in sorted(set(names))
        if name in metrics and name not in components.names("metrics", plugins=False)
    }
    return {name: source for name, source in hashes.items() if source}


def fingerprint_with(fingerprint: str, names: Iterable[str], hashes: Mapping[str, str] | None = None) -> str:
    """Return the fingerprint of data whose tasks report the given metrics.

    It differs from the data's own fingerprint if plugins are among the metrics, and changes when one of them is edited.

    Args:
        hashes: Metric -> hash of its file; default: of those that are loaded.
    """
    data_fingerprint, hashes = fingerprint.partition("+")[0], plugin_hashes(names) if hashes is None else hashes
    if not hashes:
        return data_fingerprint

    combined = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16]
    return f"{data_fingerprint}+{combined}"


def suite_delta(pipeline: str) -> tuple[str, ...]:
    """Return the metrics that a pipeline declares for Δ and η.

    The result is () if the pipeline declares none, or is unknown here.
    """
    try:
        return tuple(getattr(components.component("datasets", pipeline), "delta", ()))
    except UserError:
        return ()


def entering(names: Sequence[str], measured: Measured) -> list[tuple[str, str]]:
    """Return the measured (task, metric) pairs that the names select.

    A name is a metric, of every task that has it, or `<task>.<metric>`.
    """
    return [(task, metric) for task, metric in measured if {metric, f"{task}.{metric}"} & set(names)]


def check_delta(delta: Mapping[str, Sequence[str]], measured: Mapping[str, Measured]) -> None:
    """Raise `UserError` if a Δ entry matches no reported metric.

    Args:
        delta: Data set -> names; the key "" holds the names for data sets without their own.
        measured: Data set -> (task, metric) pairs that its tasks report.
    """
    for dataset, names in delta.items():
        if dataset in measured:
            _check_all(f"delta of {dataset}", names, measured[dataset])

    remaining = {dataset: pairs for dataset, pairs in measured.items() if dataset not in delta}
    if "" in delta and remaining:
        _check_all("delta", delta[""], [pair for pairs in remaining.values() for pair in pairs])
        for dataset, pairs in remaining.items():
            if not entering(delta[""], pairs):
                raise UserError(f"delta: {dataset} reports none of {', '.join(delta[''])}; give it a delta of its own")


def _check_all(where: str, names: Sequence[str], measured: Measured) -> None:
    for name in names:
        if not entering([name], measured):
            reported = list(dict.fromkeys(metric for _, metric in measured))
            raise UserError(f"{where}: no task reports {name!r}: {nearest(name, reported)}")
