"""From two domains of one set of classes to an adaptation suite: a labelled source, a target without labels.

The task has the source's samples in train and val, so that whatever is chosen is chosen by the source, and the target's
in test alone; `target` is the stream of the same target samples without their labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from mtlscale.data.splits import uniform_hash
from mtlscale.spec import SPLITS, Task, TaskSuite, UserError
from pipelines._base import Prepared, Work
from pipelines._features import lists
from pipelines._image_set import CHANNELS, Column, Files, Row, prepared_images
from pipelines._pixels import colour

TASK, TARGET = "class", "target"  # streams


@dataclass(frozen=True)
class Domain:
    """Ids [N] and classes [N] of one domain's samples, and their inputs: features [N, D], or where pictures are."""

    name: str
    ids: np.ndarray
    inputs: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Pictured:
    """Pictures below `root`, to be size x size pixels.

    kept: the part with the input, where that is kept as its file has it; problems: samples that had to be left out.
    """

    size: int
    root: str
    kept: str | None
    problems: list[tuple[str, str]]


@dataclass(frozen=True)
class Piece:
    """Some rows of a domain that are of one split and stream."""

    split: str
    stream: str
    ids: list[str]
    inputs: np.ndarray
    labels: np.ndarray


def adaptation(
    name: str, classes: Sequence[str], source: Domain, target: Domain, validation: float, salt: str
) -> Prepared:
    """The suite and tables of one transfer on features. validation: the share of each class of the source that is held
    out."""
    tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
    for piece in _pieces(name, classes, source, target, validation, salt):
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
    work: Work,
) -> Prepared:
    """The same on pictures, decoded later."""
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
        for piece in _pieces(name, classes, source, target, validation, salt)
    ]
    shape = (CHANNELS, pictures.size, pictures.size)
    suite = _suite(name, classes, source, target, "image", shape)
    columns = {"input": Column("uint8", shape)}
    decode = partial(decode_picture, size=pictures.size)
    index = pa.concat_tables(tables)
    return prepared_images(suite, index, decode, columns, pictures.root, pictures.problems, work, pictures.kept)


def decode_picture(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    return {"input": colour(files("image"), (size, size))[0]}


def check_classes(name: str, classes: Sequence[str], source: Domain, target: Domain) -> None:
    """`UserError` where a domain has no samples, or the target a class that the source does not know."""
    for domain in (source, target):
        if not len(domain.ids):
            raise UserError(f"{name}: the domain {domain.name} has no image; put them there, or name another domain")
    unknown = sorted(set(np.unique(target.labels)) - set(np.unique(source.labels)))
    if unknown:
        named = ", ".join(classes[label] for label in unknown)
        raise UserError(f"{name}: {target.name} has classes that {source.name} lacks: {named}; leave them out")


def _pieces(
    name: str, classes: Sequence[str], source: Domain, target: Domain, validation: float, salt: str
) -> Iterator[Piece]:
    check_classes(name, classes, source, target)
    held = _held_out(source, validation, salt)
    yield _piece("train", TASK, source, np.flatnonzero(~held))
    yield _piece("val", TASK, source, np.flatnonzero(held))
    everything = np.arange(len(target.ids))
    yield _piece("test", TASK, target, everything)
    unnamed = replace(target, ids=np.array([f"{TARGET}/{id}" for id in target.ids]))  # a name is of one split alone
    for split in SPLITS:
        # Nothing but training looks at the stream without labels.
        yield _piece(split, TARGET, unnamed, everything if split == "train" else everything[:0])


def _piece(split: str, stream: str, domain: Domain, rows: np.ndarray) -> Piece:
    ids = [str(id) for id in domain.ids[rows]]
    return Piece(split, stream, ids, domain.inputs[rows], domain.labels[rows].astype(np.int16))


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


def _held_out(domain: Domain, share: float, salt: str) -> np.ndarray:
    """[N] of the rows held out: of each class those with the lowest hashes, at least one, never all."""
    hashes = np.array([uniform_hash(str(id), salt) for id in domain.ids])
    held = np.zeros(len(hashes), bool)
    for label in np.unique(domain.labels):
        rows = np.flatnonzero(domain.labels == label)
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        held[rows[np.argsort(hashes[rows])[:count]]] = True
    return held
