"""Adaptation suites from two domains with the same classes: a labelled source, a target without labels.

The task has the source's samples in train and val, so that every choice is made on the source, and the target's samples
in test alone. The stream `target` has the same target samples without their labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError
from mtlscale.data.sampling.splits import uniform_hash
from pipelines._images.indexed_images import CHANNELS, DecodedColumn, Files, Row, prepared_images
from pipelines._images.pixels import colour
from pipelines._steps.features import lists
from pipelines.contract import PrepareContext, Prepared

TASK, TARGET = "class", "target"  # streams


@dataclass(frozen=True)
class Domain:
    """The samples of one domain.

    Attributes:
        name: The domain's name.
        ids: [N].
        inputs: Features [N, D], or the locations of pictures [N].
        labels: Classes [N].
    """

    name: str
    ids: np.ndarray
    inputs: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Pictured:
    """The pictures of a transfer, not decoded yet.

    Attributes:
        size: Height and width to decode to, in pixels.
        root: Folder of their locations.
        encoded_modality: Modality of the input if it is kept as encoded in its file; None: it is decoded.
        problems: (name, problem) of samples that had to be left out.
    """

    size: int
    root: str
    encoded_modality: str | None
    problems: list[tuple[str, str]]


@dataclass(frozen=True)
class DomainRows:
    """Some rows of a domain that share a split and a stream."""

    split: str
    stream: str
    ids: list[str]
    inputs: np.ndarray
    labels: np.ndarray


def adaptation(
    name: str, classes: Sequence[str], source: Domain, target: Domain, validation: float, salt: str
) -> Prepared:
    """Return the suite and the tables of one transfer on features.

    Args:
        source: The labelled domain.
        target: The domain whose labels are in test alone.
        validation: The share of each class of the source that is held out.
        salt: The salt of the hash that draws the held-out samples.
    """
    tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
    for piece in _domain_rows(name, classes, source, target, validation, salt):
        columns = {"id": pa.array(piece.ids, pa.string()), "input": lists(piece.inputs)}
        if piece.stream == TASK:
            columns[f"target.{TASK}"] = pa.array(piece.labels)
        tables[piece.split][piece.stream] = pa.table(columns)

    return Prepared(_suite(name, classes, source, target, "vector", (source.inputs.shape[1],)), tables)


def adaptation_of_images(
    name: str,
    classes: Sequence[str],
    source: Domain,
    target: Domain,
    validation: float,
    salt: str,
    pictures: Pictured,
    context: PrepareContext,
) -> Prepared:
    """Return the same as `adaptation` for pictures, which are decoded later."""
    tables = [
        pa.table(
            {
                "id": pa.array(piece.ids, pa.string()),
                "split": pa.array([piece.split] * len(piece.ids), pa.string()),
                "stream": pa.array([piece.stream] * len(piece.ids), pa.string()),
                "image": pa.array(piece.inputs.tolist(), pa.string()),
                f"target.{TASK}": pa.array(piece.labels),
            }
        )
        for piece in _domain_rows(name, classes, source, target, validation, salt)
    ]

    shape = (CHANNELS, pictures.size, pictures.size)
    suite = _suite(name, classes, source, target, "image", shape)
    columns = {"input": DecodedColumn("uint8", shape)}
    decode = partial(decode_picture, size=pictures.size)
    index = pa.concat_tables(tables)
    return prepared_images(
        suite, index, decode, columns, pictures.root, pictures.problems, context, pictures.encoded_modality
    )


def decode_picture(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    """Decode a picture to `input`, uint8 [3, size, size]."""
    return {"input": colour(files("image"), (size, size))[0]}


def check_classes(name: str, classes: Sequence[str], source: Domain, target: Domain) -> None:
    """Raise `UserError` if a domain has no samples or the target has a class that the source lacks."""
    for domain in (source, target):
        if not len(domain.ids):
            raise UserError(f"{name}: the domain {domain.name} has no image; put them there, or name another domain")
    unknown = sorted(set(np.unique(target.labels)) - set(np.unique(source.labels)))
    if unknown:
        named = ", ".join(classes[label] for label in unknown)
        raise UserError(f"{name}: {target.name} has classes that {source.name} lacks: {named}; leave them out")


def _domain_rows(
    name: str, classes: Sequence[str], source: Domain, target: Domain, validation: float, salt: str
) -> Iterator[DomainRows]:
    check_classes(name, classes, source, target)
    is_validation = _held_out(source, validation, salt)
    yield _rows_of("train", TASK, source, np.flatnonzero(~is_validation))
    yield _rows_of("val", TASK, source, np.flatnonzero(is_validation))

    all_rows = np.arange(len(target.ids))
    yield _rows_of("test", TASK, target, all_rows)

    unnamed = replace(
        target, ids=np.array([f"{TARGET}/{id}" for id in target.ids])
    )  # an id may occur in one split only
    for split in SPLITS:
        # Only training reads the stream without labels.
        yield _rows_of(split, TARGET, unnamed, all_rows if split == "train" else all_rows[:0])


def _rows_of(split: str, stream: str, domain: Domain, rows: np.ndarray) -> DomainRows:
    ids = [str(id) for id in domain.ids[rows]]
    return DomainRows(split, stream, ids, domain.inputs[rows], domain.labels[rows].astype(np.int16))


def _suite(
    name: str,
    classes: Sequence[str],
    source: Domain,
    target: Domain,
    kind: Literal["vector", "image"],
    shape: tuple[int, ...],
) -> TaskSuite:
    task = Task(name=TASK, loss="cross_entropy", outputs=len(classes), metrics=("accuracy",), classes=tuple(classes))

    return TaskSuite(
        name=name,
        tasks=(task,),
        inputs="per_task",
        input_kind=kind,
        input_shape=shape,
        unlabelled=(TARGET,),
        domains=(source.name, target.name),
    )


def _held_out(domain: Domain, fraction: float, salt: str) -> np.ndarray:
    """Return the mask [N] of held-out rows: the lowest hashes of each class, at least one, never all."""
    hashes = np.array([uniform_hash(str(id), salt) for id in domain.ids])
    mask = np.zeros(len(hashes), bool)
    for label in np.unique(domain.labels):
        rows = np.flatnonzero(domain.labels == label)
        count = min(len(rows) - 1, max(1, round(fraction * len(rows))))
        mask[rows[np.argsort(hashes[rows])[:count]]] = True
    return mask
