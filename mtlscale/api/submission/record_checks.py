"""What is wrong with a single record of contributed results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from mtlscale.config import PARTS, Outline, UserError, component, fingerprint_with, names, shipped_metrics
from mtlscale.metrics import possible
from mtlscale.records import RunRecord
from mtlscale.records.submission_schema import EXPERIMENT


def problems_of(record: RunRecord, outline: Outline) -> Iterator[str]:
    """Yield the contradictions within a single record."""
    try:
        update = {"fingerprint": _fingerprint(record, outline), "trial": {}}
        run_id = record.model_copy(update=update).as_run().run_id
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        yield f"spec: is not that of a run ({type(error).__name__}: {error})"
        return

    if record.run_id != run_id:
        yield f"run_id is {record.run_id}, but spec and fingerprint make {run_id}"
    if record.spec.get("seed") != record.seed:
        yield f"seed is {record.seed}, but spec says {record.spec.get('seed')}"
    yield from _foreign_parts(record, outline)

    if record.status != "finished":
        if not record.error:
            yield f"status is {record.status} without an error"
        return

    for split in ("val", "test"):
        if not record.metrics.get(split):
            yield f"metrics: there are none on {split}"
    for name, higher in record.higher_is_better.items():
        if name in shipped_metrics() and shipped_metrics()[name].higher_is_better != higher:
            yield f"higher_is_better: {name} has the other direction"
    for section, splits in (("metrics", record.metrics), ("last", record.last)):
        for split, tasks in splits.items():
            for task, metrics in tasks.items():
                complaints = _impossible(metrics, record, outline)
                yield from (f"{section}.{split}.{task}.{complaint}" for complaint in complaints)

    max_epochs = record.spec.get("training", {}).get("epochs")
    chosen_epochs = [record.chosen_epoch] if record.chosen_epoch is not None else list(record.chosen_epochs.values())
    if not chosen_epochs:
        yield "chosen_epoch: no epoch was chosen on validation"
    elif (
        not record.phases
        and isinstance(max_epochs, int)
        and not all(1 <= epoch <= max_epochs for epoch in chosen_epochs)
    ):
        yield f"chosen_epoch: {max(chosen_epochs)} is none of the {max_epochs} epochs of training"


def _fingerprint(record: RunRecord, outline: Outline) -> str:
    """Return the fingerprint that the record should have: metrics of plugins count by the hash of their file."""
    names = record.higher_is_better  # unknown for a failed run
    if not names:
        return record.fingerprint
    own_names = outline.names - shipped_metrics().keys()
    files = {name: plugin for plugin in outline.plugins for name in plugin.components if name in own_names}
    hashes = {name: files[name].code_hash for name in sorted(names) if name in files}
    return fingerprint_with(record.fingerprint, (), hashes)


def _foreign_parts(record: RunRecord, outline: Outline) -> Iterator[str]:
    """Yield the parts of a run that come from a plugin which is not in the folder."""
    hashes = {plugin.code_hash for plugin in outline.plugins}
    for part, entry in record.spec.items():
        if isinstance(entry, Mapping) and "plugin" in entry and entry["plugin"] not in hashes:
            yield f"spec.{part}: {entry.get('name')} comes from a plugin that is not in the folder"


def _impossible(metrics: Mapping[str, float], record: RunRecord, outline: Outline) -> Iterator[str]:
    for metric, value in metrics.items():
        if metric == "loss" or metric in outline.names - shipped_metrics().keys():
            plausible = math.isfinite(value)
        elif metric not in record.higher_is_better:
            yield f"{metric}: higher_is_better does not name it"
            continue
        else:
            try:
                plausible = possible(metric, value)
            except UserError as error:
                yield str(error)
                continue

        if not plausible:
            yield f"{metric}: {value:g} is not possible"


def other_settings(record: RunRecord, outline: Outline) -> Iterator[str]:
    """Yield what the experiment says otherwise of a run that is known by its labels."""
    dataset = next(dataset for dataset in outline.datasets if dataset.label == record.dataset)
    row = next(row for row in outline.methods if row.label == record.method)
    spec = record.spec

    parts = [spec.get(part) for part in ("architecture", "balancer", "objective")]
    components = {part.get("name") for part in parts if isinstance(part, Mapping)}
    if row.name and row.name not in components:
        yield f"spec: {record.method} is {row.name} in {EXPERIMENT}"
    if spec["dataset"].get("name") != dataset.name:
        yield f"spec.dataset: {record.dataset} is {dataset.name} in {EXPERIMENT}"

    training = {**outline.training, **dataset.training, **row.training}
    for key, value in training.items():
        if spec["training"].get(key) != value and value is not False:  # `off` is false in YAML
            yield f"spec.training.{key}: {spec['training'].get(key)!r}, but {EXPERIMENT} has {value!r}"

    metrics = dataset.metrics.values() if isinstance(dataset.metrics, Mapping) else [dataset.metrics]
    for metric in sorted({name for several in metrics for name in several} - record.higher_is_better.keys()):
        if record.status == "finished":
            yield f"metrics: there is no {metric}, which {EXPERIMENT} asks for"


def other_versions(record: RunRecord) -> str:
    """Say which components of a run have another results version here; "" if none has."""
    changes = []
    for part, kind in PARTS.items():
        entry = record.spec.get(part.removeprefix("model."))
        if not isinstance(entry, Mapping) or "plugin" in entry or entry.get("name") not in names(kind):
            continue
        name, then = entry["name"], entry.get("results_version", 1)
        now = component(kind, name).results_version
        if then != now:
            changes.append(f"{kind[:-1]} {name} had results version {then}, now {now}")
    return f"{'; '.join(changes)}: check it with the mtlscale of that time" if changes else ""
