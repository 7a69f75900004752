"""QM9: SMILES by hand, files in the official layouts, and the part at hand where it is."""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtlscale.config import UserError
from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.readers.prepared import read_ids
from mtlscale.data.tables.smiles import AROMATIC, DOUBLE, SINGLE, TRIPLE, BadSmiles, read_smiles
from mtlscale.execution.preparing.prepare import prepare
from pipelines.graph.qm9 import ATOMS, BONDS, ELEMENTS, MILLI_EV, POSITIONS, TASKS

COLUMNS = ("mol_id", "smiles", "A", "B", "C", "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298",
           "g298", "cv")  # fmt: skip
MOLECULES = ("C", "N", "O", "C#C", "C#N", "C=O", "CC", "CO", "CC#C", "CC#N", "CC=O", "NC=O", "CCC", "CCO", "C1CC1",
             "C1CO1", "CC(C)=O", "NC(N)=O", "c1ccoc1", "c1cc[nH]c1", "FC(F)F", "C[NH2+]CC([O-])=O", "CN1CC1",
             "OC1CC1", "CC1CO1", "N#CC#N")  # fmt: skip


def ready(source: Path, home: Path, skip_bad: bool = False, **options: Any) -> PreparedData:
    return load_prepared(prepare("qm9", options, source, home, skip_bad=skip_bad))


# -- SMILES --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smiles", "elements", "hydrogens", "bonds"),
    [
        ("C", "C", [4], {}),
        ("C#N", "CN", [1, 0], {(0, 1): TRIPLE}),
        ("CC(=O)O", "CCOO", [3, 0, 0, 1], {(0, 1): SINGLE, (1, 2): DOUBLE, (1, 3): SINGLE}),
        ("C1CC1", "CCC", [2, 2, 2], {(0, 1): SINGLE, (1, 2): SINGLE, (0, 2): SINGLE}),
        ("C=1CC=1", "CCC", [1, 2, 1], {(0, 1): SINGLE, (1, 2): SINGLE, (0, 2): DOUBLE}),
        ("c1ccoc1", "CCCOC", [1, 1, 1, 0, 1], {(i, i + 1): AROMATIC for i in range(4)} | {(0, 4): AROMATIC}),
        ("c1cc[nH]c1", "CCCNC", [1, 1, 1, 1, 1], {(i, i + 1): AROMATIC for i in range(4)} | {(0, 4): AROMATIC}),
        ("[NH3+]C[C@@H](F)C/C=C\\[13CH3]", "NCCFCCCC", [3, 2, 1, 0, 2, 1, 1, 3],
         {(0, 1): 1, (1, 2): 1, (2, 3): 1, (2, 4): 1, (4, 5): 1, (5, 6): 2, (6, 7): 1}),
        ("C%10CC%10.O", "CCCO", [2, 2, 2, 2], {(0, 1): 1, (1, 2): 1, (0, 2): 1}),
    ],
)  # fmt: skip
def test_a_molecule_has_the_atoms_hydrogens_and_bonds_that_its_smiles_says(
    smiles: str, elements: str, hydrogens: list[int], bonds: dict[tuple[int, int], int]
) -> None:
    molecule = read_smiles(smiles)
    assert (molecule.elements, molecule.hydrogens, molecule.bonds) == (list(elements), hydrogens, bonds)
    assert sum(molecule.charges) == smiles.count("+") - smiles.count("-")


@pytest.mark.parametrize(
    ("smiles", "problem"),
    [
        ("", "has no atom"),
        ("C(C", "leaves a branch open"),
        ("C1CC", "leaves ring 1 open"),
        ("CC)", "closes a branch that it does not open"),
        ("C!", "has '!' at place 2"),
        ("[C+", "has '[' at place 1"),
        ("[Cx?]", "which is no atom"),
        ("1CC1", "begins with '1', before any atom"),
        ("C12CC12", "twice"),
    ],
)
def test_a_text_that_is_no_smiles_is_said_why(smiles: str, problem: str) -> None:
    with pytest.raises(BadSmiles, match=re.escape(problem)):
        read_smiles(smiles)


def test_smiles_as_rdkit_reads_them(shared_data: Path) -> None:
    """But for nitro groups, whose charges it adds."""
    chem = pytest.importorskip("rdkit.Chem")
    with gzip.open(shared_data / "qm9" / "qm9_small.csv.gz", "rt") as file:
        texts = [line.split(",")[2] for line in list(file)[1::40]]
    for text in texts:
        ours, parameters = read_smiles(text), chem.SmilesParserParams()
        parameters.removeHs = False
        atoms = list(chem.MolFromSmiles(text, parameters).GetAtoms())
        assert ours.elements == [atom.GetSymbol() for atom in atoms], text
        assert ours.hydrogens == [atom.GetTotalNumHs() for atom in atoms], text


# -- the files -----------------------------------------------------------------------------------------------------


def properties(number: int) -> dict[str, float]:
    rng = np.random.default_rng(number)
    return {name: round(float(value), 5) for name, value in zip(COLUMNS[2:], rng.normal(size=15), strict=True)}


def row(number: int, smiles: str) -> str:
    return ",".join([f"gdb_{number}", smiles, *map(str, properties(number).values())])


def csv(path: Path, molecules: tuple[str, ...] = MOLECULES, extra: tuple[str, ...] = ()) -> Path:
    lines = [",".join(COLUMNS), *(row(number, smiles) for number, smiles in enumerate(molecules, 1)), *extra]
    path.write_text("\n".join(lines) + "\n")
    return path


def xyz(number: int, smiles: str) -> str:
    """A file of QM9; atoms lie at random places, some of their numbers as Mathematica writes them."""
    molecule, rng = read_smiles(smiles), np.random.default_rng(number)
    atoms = [*molecule.elements, *"H" * sum(molecule.hydrogens)]
    places = [f"{symbol}\t{rng.normal():.6f}\t{rng.normal():.6f}\t2.5*^-1\t-0.1" for symbol in atoms]
    numbers = "\t".join(f"{value}".replace("e-", "*^-") for value in properties(number).values())
    return "\n".join(
        [str(len(atoms)), f"gdb {number}\t{numbers}", *places, "1.0\t2.0", f"X\t{smiles}", "InChI=1S/x\tInChI"]
    )


@pytest.fixture
def archive(tmp_path: Path, pack: Callable[[Path, Path], Path]) -> Path:
    folder = tmp_path / "molecules"
    folder.mkdir()
    for number, smiles in enumerate(MOLECULES, 1):
        (folder / f"dsgdb9nsd_{number:06d}.xyz").write_text(xyz(number, smiles) + "\n")
    return pack(folder, tmp_path / "dsgdb9nsd.xyz.tar.bz2")


def in_units(data: PreparedData, task: str) -> dict[str, float]:
    """Molecule -> its property in units, from the scaled label."""
    mean, deviation = data.suite.extras["target_scaling"][task]
    values = {}
    for split in ("train", "val", "test"):
        ids = read_ids(data.folder, split, "all")
        labels = data.splits[split]["all"].targets[task].flatten().tolist()
        values |= {name: label * deviation + mean for name, label in zip(ids, labels, strict=True)}
    return values


def test_properties_are_in_units_and_energies_those_of_atomization(tmp_path: Path) -> None:
    data = ready(csv(tmp_path / "qm9.csv"), tmp_path)
    assert tuple(task.name for task in data.suite.tasks) == TASKS and len(TASKS) == 11
    values = {task: in_units(data, task) for task in TASKS}
    number = 1 + MOLECULES.index("CC=O")
    raw, name = properties(number), f"gdb_{number}"
    assert values["mu"][name] == pytest.approx(raw["mu"], rel=1e-5)
    assert values["homo"][name] == pytest.approx(27_211.386 * raw["homo"], rel=1e-5)
    atoms = dict(zip(ELEMENTS, ATOMS["g"], strict=True))
    expected = (raw["g298"] - 2 * atoms["C"] - 4 * atoms["H"] - atoms["O"]) * MILLI_EV
    assert values["g"][name] == pytest.approx(expected, rel=1e-5)
    assert [task.scale for task in data.suite.tasks] == [data.suite.extras["target_scaling"][name][1] for name in TASKS]


def test_a_molecule_is_a_row_of_its_atoms_and_bonds(tmp_path: Path) -> None:
    data = ready(csv(tmp_path / "qm9.csv"), tmp_path)
    ids, rows = read_ids(data.folder, "train", "all"), data.splits["train"]["all"].inputs
    assert rows.shape[1] == len(BONDS.categories) == len(data.suite.categories)
    for name, graph in zip(ids, rows, strict=True):
        molecule = read_smiles(MOLECULES[int(name[4:]) - 1])
        count = len(molecule.elements)
        codes, edges = BONDS.read_nodes(graph).numpy(), BONDS.read_edges(graph).numpy()
        assert [ELEMENTS[code - 1] for code in codes[:count, 0]] == molecule.elements and not codes[count:].any()
        assert (codes[:count, 1] - 1).tolist() == molecule.hydrogens
        assert (codes[:count, 3] - 1).tolist() == molecule.aromatic
        pairs = {(int(i), int(j)): int(edges[i, j]) for i, j in zip(*np.nonzero(np.triu(edges)), strict=True)}
        assert pairs == molecule.bonds and (edges == edges.T).all()


def test_the_archive_of_geometries_has_the_same_properties_and_positions_beside(archive: Path, tmp_path: Path) -> None:
    table, bonds = ready(csv(tmp_path / "qm9.csv"), tmp_path), ready(archive, tmp_path)
    places = ready(archive, tmp_path, graph="positions")
    for task in TASKS:
        expected = pytest.approx(in_units(table, task), rel=1e-4, abs=1e-4)
        assert in_units(bonds, task) == expected and in_units(places, task) == expected
    assert bonds.manifest.fingerprint == table.manifest.fingerprint

    ids, rows = read_ids(places.folder, "train", "all"), places.splits["train"]["all"].inputs
    number = int(ids[0][4:])
    lines = xyz(number, MOLECULES[number - 1]).split("\n")
    written = np.array(
        [[float(x.replace("*^", "e")) for x in line.split()[1:4]] for line in lines[2 : 2 + int(lines[0])]]
    )
    found = POSITIONS.read_positions(rows[0]).numpy()[: len(written)]
    np.testing.assert_allclose(found, written - written.mean(0), atol=1e-5)


def test_molecules_without_a_sure_geometry_are_left_out(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "uncharacterized.txt").write_text("3054 molecules\n====\nIndex SMILES\n 21 FC(F)F 1.5\n 3 O 2\n")
    data = ready(archive, tmp_path)
    assert set(in_units(data, "mu")) == {f"gdb_{number}" for number in range(1, 27)} - {"gdb_21", "gdb_3"}


def test_a_molecule_that_stands_twice_is_one_and_two_that_differ_are_refused(tmp_path: Path) -> None:
    data = ready(csv(tmp_path / "qm9.csv", extra=(row(3, "O"),)), tmp_path)
    assert data.manifest.notes["repeated_molecules"] == 1 and len(in_units(data, "mu")) == len(MOLECULES)
    other = row(4, "O").replace("gdb_4", "gdb_3")
    with pytest.raises(UserError, match="line 4 and line 28 are both gdb_3, with other properties; remove one"):
        ready(csv(tmp_path / "qm9.csv", extra=(other,)), tmp_path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (row(27, ""), "line 28, gdb_27, has no atom"),
        (row(27, "CCS"), "line 28, gdb_27, has the element S; QM9 has H, C, N, O, F"),
        (row(27, "CCCCCCCCCC"), "line 28, gdb_27, has 10 atoms besides hydrogens; QM9 has at most 9"),
        (row(27, "C(C"), "line 28, gdb_27, leaves a branch open"),
        (row(27, "[O-2]"), "has an atom 1 with 0 hydrogens and charge -2, unlike QM9"),
        (f"gdb_27,C{',' * 15}", "line 28, gdb_27, has no finite number in mu"),
        ("gdb_27,C,1", "line 28 has 3 fields, not 17"),
    ],
)
def test_a_molecule_that_cannot_be_used_is_named_and_may_be_skipped(line: str, problem: str, tmp_path: Path) -> None:
    source = csv(tmp_path / "qm9.csv", extra=(line,))
    with pytest.raises(UserError, match=re.escape(problem)) as refused:
        ready(source, tmp_path)
    assert "1 molecule cannot be used" in str(refused.value) and "--skip-bad" in str(refused.value)
    data = ready(source, tmp_path, skip_bad=True)
    assert data.manifest.notes["skipped"]["count"] == 1 and len(in_units(data, "mu")) == len(MOLECULES)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("0\n", "dsgdb9nsd_000001.xyz has no atom"),
        (xyz(1, "C")[:120], "before its SMILES; fetch it again"),
        (xyz(1, "C").replace("H\t", "H\tx", 1), "has an atom without three coordinates"),
        (xyz(1, "C").replace("gdb 1\t", "gdb 1\t1\t"), "has 16 properties, not 15"),
    ],
)
def test_a_damaged_geometry_is_named(content: str, problem: str, tmp_path: Path) -> None:
    folder = tmp_path / "molecules"
    folder.mkdir()
    for number, smiles in enumerate(MOLECULES, 1):
        (folder / f"dsgdb9nsd_{number:06d}.xyz").write_text(content if number == 1 else xyz(number, smiles))
    with pytest.raises(UserError, match=re.escape(problem)):
        ready(folder, tmp_path)


def test_sources_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"qm9\.csv has no positions; name the archive of \.xyz files, or set `graph`"):
        ready(csv(tmp_path / "qm9.csv"), tmp_path, graph="positions")
    (tmp_path / "other.csv").write_text("mol_id,smiles,mu\ngdb_1,C,0\n")
    with pytest.raises(UserError, match=r"has no column 'alpha'.*use MoleculeNet's"):
        ready(tmp_path / "other.csv", tmp_path)
    with tarfile.open(tmp_path / "empty.tar", "w") as tar:
        tar.add(tmp_path / "other.csv", "a.csv")
    with pytest.raises(UserError, match=r"has no dsgdb9nsd_\*\.xyz; use the archive of figshare"):
        ready(tmp_path / "empty.tar", tmp_path)


@pytest.mark.slow
def test_the_part_at_hand(shared_data: Path, tmp_path: Path) -> None:
    data = ready(shared_data / "qm9", tmp_path)
    assert {split: len(data.splits[split]["all"]) for split in data.splits} == {
        "train": 11919,
        "val": 1324,
        "test": 1472,
    }
    deviations = {task.name: task.scale for task in data.suite.tasks}
    assert deviations["homo"] == pytest.approx(600, rel=0.03) and deviations["u0"] == pytest.approx(10_300, rel=0.03)
