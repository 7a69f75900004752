"""Reader for the files of QM9: the table with SMILES, or the archive of a file per molecule with its geometry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtlscale.config import UserError
from mtlscale.data.tables.raw_files import Problems
from pipelines._formats.archive import read_members
from pipelines._formats.text_files import read_rows

COLUMNS = ("mu", "alpha", "homo", "lumo", "r2", "zpve", "u0", "u298", "h298", "g298", "cv")
UNCHARACTERIZED = "uncharacterized.txt"  # molecules whose geometry is not that of their SMILES
_XYZ = re.compile(r"(?:^|/)dsgdb9nsd_(\d{6})\.xyz$")
_MEMBER_COLUMNS = ("A", "B", "C", "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298",
                   "cv")  # fmt: skip  # of a molecule's second line, behind its name


@dataclass
class RawMolecules:
    """The molecules of a source, as written.

    Attributes:
        ids: Name of each molecule.
        places: Where each one is, for messages.
        smiles: SMILES of each one.
        properties: [N, `COLUMNS`], in atomic units as the files have them.
        geometries: (symbols, positions [n, 3] in ångström) of each molecule; empty if the source has none.
    """

    ids: list[str]
    places: list[str]
    smiles: list[str]
    properties: np.ndarray
    geometries: list[tuple[list[str], np.ndarray]]


def read_table(path: Path, problems: Problems) -> RawMolecules:
    """Return the molecules of the CSV file; bad rows are added to `problems` and left out."""
    columns = ("mol_id", "smiles", *COLUMNS)
    rows = read_rows(f"qm9: {path.name}", path, columns, mend="use MoleculeNet's qm9.csv, or a part of it")
    problems += rows.problems

    numbers = np.full((len(rows.lines), len(COLUMNS)), np.nan)
    for column, name in enumerate(COLUMNS):
        for row, text in enumerate(rows.columns[name]):
            numbers[row, column] = number_of(text)
    places = [f"line {line}" for line in rows.lines]
    molecules = RawMolecules(rows.columns["mol_id"], places, rows.columns["smiles"], numbers, [])
    return _usable(molecules, problems)


def read_geometries(source: Path, problems: Problems) -> RawMolecules:
    """Return the molecules of the official archive, or of a folder of its files.

    Those that `uncharacterized.txt` beside the archive lists are left out.
    """
    members = [(match[1], text) for name, text in _members(source) if (match := _XYZ.search(name))]
    if not members:
        raise UserError(f"qm9: {source} has no dsgdb9nsd_*.xyz; use the archive of figshare or MoleculeNet's qm9.csv")
    left_out = _uncharacterized(source)

    ids, smiles, properties, geometries = [], [], [], []
    for number, text in sorted(members):
        if int(number) in left_out:
            continue
        try:
            written, numbers, geometry = _molecule(text.decode("utf-8", "replace").splitlines())
        except ValueError as error:
            problems.append((f"dsgdb9nsd_{number}.xyz", str(error)))
            continue
        ids.append(f"gdb_{int(number)}")
        smiles.append(written)
        properties.append(numbers)
        geometries.append(geometry)

    places = [f"dsgdb9nsd_{int(name[4:]):06d}.xyz" for name in ids]
    return _usable(
        RawMolecules(ids, places, smiles, np.array(properties).reshape(-1, len(COLUMNS)), geometries), problems
    )


def number_of(text: str) -> float:
    """Return a number, also as Mathematica writes it (`2.1*^-6`); NaN for anything else."""
    try:
        return float(text.replace("*^", "e"))
    except ValueError:
        return float("nan")


def _members(source: Path) -> Iterator[tuple[str, bytes]]:
    is_molecule: Callable[[str], bool] = lambda name: bool(_XYZ.search(name))  # noqa: E731
    yield from read_members(source, is_molecule)


def _uncharacterized(source: Path) -> set[int]:
    path = (source if source.is_dir() else source.parent) / UNCHARACTERIZED
    if not path.is_file():
        return set()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {int(fields[0]) for line in lines if (fields := line.split()) and fields[0].isdigit()}


def _molecule(lines: list[str]) -> tuple[str, list[float], tuple[list[str], np.ndarray]]:
    """Return SMILES, properties and geometry of one file, or raise `ValueError`."""
    count = int(lines[0]) if lines and lines[0].strip().isdigit() else 0
    if not count:
        raise ValueError("has no atom")
    if len(lines) < count + 4:
        raise ValueError(f"ends after {len(lines)} lines, before its SMILES; fetch it again")

    fields = lines[1].split()[2:]
    if len(fields) != len(_MEMBER_COLUMNS):
        raise ValueError(f"has {len(fields)} properties, not {len(_MEMBER_COLUMNS)}")
    numbers = dict(zip(_MEMBER_COLUMNS, map(number_of, fields), strict=True))

    symbols, positions = [], []
    for line in lines[2 : 2 + count]:
        symbol, *coordinates = line.split()[:4]
        symbols.append(symbol)
        positions.append([number_of(coordinate) for coordinate in coordinates])
    if any(len(point) != 3 for point in positions) or not np.isfinite(positions).all():
        raise ValueError("has an atom without three coordinates")
    smiles = lines[3 + count].split()[-1]  # the one of the relaxed geometry
    return smiles, [numbers[name] for name in COLUMNS], (symbols, np.array(positions))


def without_repeats(molecules: RawMolecules, notes: dict[str, Any]) -> RawMolecules:
    """Return each molecule once; notes get the number of those that stood there again with the same properties.

    Raises:
        UserError: If two molecules of one name differ.
    """
    first_row: dict[str, int] = {}
    for row, name in enumerate(molecules.ids):
        first = first_row.setdefault(name, row)
        if not np.array_equal(molecules.properties[first], molecules.properties[row]):
            places = " and ".join((molecules.places[first], molecules.places[row]))
            raise UserError(f"qm9: {places} are both {name}, with other properties; remove one")
    if len(first_row) < len(molecules.ids):
        notes["repeated_molecules"] = len(molecules.ids) - len(first_row)
    return chosen(molecules, np.isin(np.arange(len(molecules.ids)), list(first_row.values())))


def _usable(molecules: RawMolecules, problems: Problems) -> RawMolecules:
    """Return the molecules whose properties are all finite; the others are added to `problems`."""
    finite = np.isfinite(molecules.properties)
    for row in np.flatnonzero(~finite.all(1)):
        column = COLUMNS[int(np.flatnonzero(~finite[row])[0])]
        problems.append((f"{molecules.places[row]}, {molecules.ids[row]},", f"has no finite number in {column}"))
    return chosen(molecules, finite.all(1))


def chosen(molecules: RawMolecules, kept: np.ndarray) -> RawMolecules:
    """Return the molecules of a mask [N]."""
    rows = np.flatnonzero(kept)
    return RawMolecules(
        [molecules.ids[row] for row in rows],
        [molecules.places[row] for row in rows],
        [molecules.smiles[row] for row in rows],
        molecules.properties[rows],
        [molecules.geometries[row] for row in rows] if molecules.geometries else [],
    )
