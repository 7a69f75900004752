"""The files beside a user's table that belong to it: its test part, its list of labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mtlscale.config import UserError
from mtlscale.data.tables.arff import read_labels
from mtlscale.data.tables.raw_files import PACKED, decoded, is_hidden, unpacked
from mtlscale.data.tables.table_format import is_table_file

_PARTS = ("train", "training", "test", "testing", "val", "valid", "validation", "dev")
_PART = re.compile(rf"(?P<before>.*?)(?P<part>{'|'.join(sorted(_PARTS, key=len, reverse=True))})(?P<after>[^a-z].*|)",
                   re.IGNORECASE)  # fmt: skip
_MULAN = ("train", "test")


def neighbour_lines(source: Path) -> Iterator[str]:
    """Yield a line on the other parts of the set that lie beside a file, and on how they are used."""
    if not source.is_file():
        return
    others = other_parts(source)
    mulan = _mulan_set(source)
    if mulan:
        yield (
            f"{', '.join([*others, f'{mulan}.xml'])} beside it belong to the set; the data set `multilabel` reads them "
            f"with the official split: {{name: multilabel, source: {source.parent}, options: {{set: {mulan}}}}}"
        )
    elif others:
        yield (f"{', '.join(others)} beside it seems to be of the same set and is not read: put the rows into one file "
               "with a column that says train, val or test, and --option split_column=COLUMN")  # fmt: skip


def labels_beside(source: Path, columns: list[str]) -> list[str]:
    """Return the columns that a Mulan list beside a file names as labels; none if there is no such list."""
    stem = re.sub(r"-(train|test)$", "", _stem(source.name))
    path = source.parent / f"{stem}.xml"
    if not path.is_file():
        return []
    try:
        names = read_labels(path.name, decoded(path.name, unpacked(path.name, path))[0])
    except UserError:
        return []
    return names if set(names) <= set(columns) else []


def other_parts(source: Path) -> list[str]:
    """Return the names of the files beside a part of a set, such as a train file, that are its other parts."""
    part = _PART.fullmatch(_stem(source.name))
    if part is None:
        return []
    names = []
    for path in sorted(source.parent.iterdir()):
        match = _PART.fullmatch(_stem(path.name)) if is_table_file(path) and not is_hidden(path.name) else None
        if match is None or path.name == source.name or match["part"].lower() == part["part"].lower():
            continue
        if (match["before"], match["after"]) == (part["before"], part["after"]):
            names.append(path.name)
    return names


def _mulan_set(source: Path) -> str:
    """Return the name of a set of Mulan whose three files lie in the folder of this one; "" if they do not."""
    name = re.sub(r"-(train|test)$", "", _stem(source.name))
    if source.name.lower().removesuffix(".gz").endswith(".arff") and all(
        any((source.parent / f"{file}{packed}").is_file() for packed in ("", *PACKED))
        for file in (*(f"{name}-{part}.arff" for part in _MULAN), f"{name}.xml")
    ):
        return name
    return ""


def _stem(name: str) -> str:
    for ending in PACKED:
        name = name.removesuffix(ending)
    return Path(name).stem
