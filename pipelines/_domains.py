"""From two domains of one set of classes to an adaptation suite: a labelled source, a target without labels.

The task has the source's samples in train and val, so that whatever is chosen is chosen by the source, and the target's
in test alone; `target` is the stream of the same target samples without their labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mtlscale.data.splits import uniform_hash
from mtlscale.spec import SPLITS, Task, TaskSuite, UserError
from pipelines._base import Prepared
from pipelines._features import lists

TASK, TARGET = "class", "target"  # streams


@dataclass(frozen=True)
class Domain:
    """Ids [N], features [N, D] and classes [N] of one domain's samples."""

    name: str
    ids: np.ndarray
    features: np.ndarray
    labels: np.ndarray


def adaptation(
    name: str, classes: Sequence[str], source: Domain, target: Domain, validation: float, salt: str
) -> Prepared:
    """The suite and tables of one transfer. validation: the share of each class of the source that is held out."""
    for domain in (source, target):
        if not len(domain.ids):
            raise UserError(f"{name}: the domain {domain.name} has no image")
    unknown = sorted(set(np.unique(target.labels)) - set(np.unique(source.labels)))
    if unknown:
        named = ", ".join(classes[label] for label in unknown)
        raise UserError(f"{name}: {target.name} has classes that {source.name} lacks: {named}; leave them out")
    held = _held_out(source, validation, salt)
    rows = {"train": np.flatnonzero(~held), "val": np.flatnonzero(held)}
    tables = {split: {TASK: _table(source, rows[split], labels=True)} for split in rows}
    everything = np.arange(len(target.ids))
    tables["test"] = {TASK: _table(target, everything, labels=True)}
    unnamed = replace(target, ids=np.array([f"{TARGET}/{id}" for id in target.ids]))  # a name is of one split alone
    for split in SPLITS:
        # Nothing but training looks at the stream without labels.
        tables[split][TARGET] = _table(unnamed, everything if split == "train" else everything[:0], labels=False)
    task = Task(name=TASK, loss="cross_entropy", outputs=len(classes), metrics=("accuracy",), classes=tuple(classes))
    suite = TaskSuite(
        name=name,
        tasks=(task,),
        inputs="per_task",
        input_kind="vector",
        input_shape=(source.features.shape[1],),
        unlabelled=(TARGET,),
        domains=(source.name, target.name),
    )
    return Prepared(suite, tables)


def _held_out(domain: Domain, share: float, salt: str) -> np.ndarray:
    """[N] of the rows held out: of each class those with the lowest hashes, at least one, never all."""
    hashes = np.array([uniform_hash(str(id), salt) for id in domain.ids])
    held = np.zeros(len(hashes), bool)
    for label in np.unique(domain.labels):
        rows = np.flatnonzero(domain.labels == label)
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        held[rows[np.argsort(hashes[rows])[:count]]] = True
    return held


def _table(domain: Domain, rows: np.ndarray, *, labels: bool) -> pa.Table:
    columns = {"id": pa.array([str(id) for id in domain.ids[rows]], pa.string()), "input": lists(domain.features[rows])}
    if labels:
        columns[f"target.{TASK}"] = pa.array(domain.labels[rows].astype(np.int16))
    return pa.table(columns)
