"""QM9: eleven properties of small molecules, from their bonds or their geometry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob
from mtlscale.data.format.graphs import KEY, GraphLayout
from mtlscale.data.tables.raw_files import Problems, suffix_of
from mtlscale.data.tables.smiles import AROMATIC, BadSmiles, Molecule, read_smiles
from pipelines._formats.text_files import SUFFIXES
from pipelines._steps.features import lists, random_split, repeated_inputs
from pipelines._tables.shared_table import scaled_labels
from pipelines.contract import Pipeline, PrepareContext, Prepared
from pipelines.graph._qm9_files import RawMolecules, chosen, read_geometries, read_table, without_repeats

ELEMENTS = ("H", "C", "N", "O", "F")
HEAVY, ALL = 9, 29  # the most atoms of a molecule of QM9, without hydrogens and with them
HYDROGENS, CHARGES = 4, (-1, 0, 1)  # the most hydrogens at an atom, and the charges of one
BONDS = GraphLayout(HEAVY, node_codes=(1 + len(ELEMENTS), HYDROGENS + 2, len(CHARGES) + 1, 3), edge_codes=1 + AROMATIC)
POSITIONS = GraphLayout(ALL, node_codes=(1 + len(ELEMENTS),), dimensions=3)

HARTREE, KILO = 27.211386245988, 1e3  # eV (CODATA 2018); meV of an eV
MILLI_EV = HARTREE * KILO
TASKS = ("mu", "alpha", "homo", "lumo", "r2", "zpve", "u0", "u", "h", "g", "cv")
UNITS = dict.fromkeys(("homo", "lumo", "zpve", "u0", "u", "h", "g"), MILLI_EV)
# Energies of the atoms in hartree, as the authors of QM9 give them (atomref.txt): H, C, N, O, F.
ATOMS: Mapping[str, tuple[float, ...]] = {
    "u0": (-0.500273, -37.846772, -54.583861, -75.064579, -99.718730),
    "u": (-0.498857, -37.845355, -54.582445, -75.063163, -99.717314),
    "h": (-0.497912, -37.844411, -54.581501, -75.062219, -99.716370),
    "g": (-0.510927, -37.861317, -54.598897, -75.079532, -99.733544),
}
CSV = ("qm9.csv", "qm9.csv.gz", "qm9_small.csv", "qm9_small.csv.gz")
TAR = ("dsgdb9nsd.xyz.tar.bz2", "dsgdb9nsd.xyz.tar")
GRAPHS: Mapping[str, GraphLayout] = {"bonds": BONDS, "positions": POSITIONS}


class QM9(Pipeline):
    """QM9: eleven regressions on one molecule, the choice of Nash-MTL; orbitals and energies in meV.

    The source is MoleculeNet's `qm9.csv` or a part of it, which has SMILES, or the official archive of .xyz files,
    which has SMILES and geometries. `graph: bonds` gives heavy atoms and their bonds, for `mpnn`; `graph: positions`
    gives all atoms and their positions, for `schnet`. Energies u0, u, h and g are those of atomization, as in that
    comparison. Targets have mean 0 and variance 1 over training, and metrics are in the properties' own units. The
    split is random, by molecules.
    """

    name: ClassVar[str] = "qm9"
    source: ClassVar[str] = "Ramakrishnan et al., Scientific Data 2014; the eleven: Navon et al., ICML 2022"
    folder: ClassVar[str] = "qm9"
    archives: ClassVar[tuple[str, ...]] = (*TAR, *CSV)
    delta: ClassVar[tuple[str, ...]] = ("mae",)

    graph: str = knob("bonds", choices=tuple(GRAPHS), help="atoms and bonds, or atoms and their positions")
    test: float = knob(0.1, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the molecules for test")
    validation: float = knob(
        0.1, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the rest for validation"
    )
    split: int = knob(0, low=0, help="which random split")

    def expected(self) -> tuple[str, ...]:
        return ("dsgdb9nsd_000001.xyz",)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        problems: Problems = []
        is_table = source.is_file() and suffix_of(source.name) in SUFFIXES
        if is_table and self.graph == "positions":
            raise UserError(f"qm9: {source.name} has no positions; name the archive of .xyz files, or set `graph` to "
                            "bonds")  # fmt: skip
        repeats: dict[str, Any] = {}
        molecules = without_repeats((read_table if is_table else read_geometries)(source, problems), repeats)
        rows, atoms, molecules = _graphs(molecules, self.graph, problems)
        notes = context.settle(problems, "molecules") | repeats
        if not len(rows):
            raise UserError(f"qm9: {source.name} has no molecule; fetch it again")

        properties = in_units(molecules.properties, atoms)
        splits = random_split(
            self.name, "all", molecules.ids, f"{self.name}/{self.split}", test=self.test, validation=self.validation
        )
        return self._prepared(molecules.ids, rows, properties, splits, notes)

    def _prepared(
        self,
        ids: list[str],
        rows: np.ndarray,
        properties: np.ndarray,
        splits: Mapping[str, np.ndarray],
        notes: dict[str, Any],
    ) -> Prepared:
        tasks = [Task(name=name, loss="mse", outputs=1, metrics=("mae",)) for name in TASKS]
        labels, scaling = scaled_labels(list(zip(tasks, properties.T, strict=True)), splits["train"])

        tables = {}
        for split in SPLITS:
            chosen_rows = splits[split]
            columns = {"id": pa.array(ids, pa.string()).take(pa.array(chosen_rows)), "input": lists(rows[chosen_rows])}
            for task, values in labels:
                columns[f"target.{task.name}"] = pa.array(values[chosen_rows].astype(np.float32))
            tables[split] = {"all": pa.table(columns)}
        if repeated := repeated_inputs(tables):
            notes["test_inputs_in_train_or_val"] = repeated

        layout = GRAPHS[self.graph]
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=name, loss="mse", outputs=1, metrics=("mae",), scale=scaling[name][1]) for name in TASKS
            ),
            inputs="shared",
            input_kind="vector",
            input_shape=(rows.shape[1],),
            categories=layout.categories,
            extras={KEY: layout.as_json(), "target_scaling": scaling},
        )
        return Prepared(suite, tables, notes=notes)


def in_units(properties: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Return the properties [N, tasks] in their units, energies less those of their atoms.

    Args:
        properties: [N, tasks] in atomic units, as the files have them.
        atoms: The number of atoms of each element [N, `ELEMENTS`].
    """
    result = properties.copy()
    for column, task in enumerate(TASKS):
        if task in ATOMS:
            result[:, column] -= atoms @ np.array(ATOMS[task])
        result[:, column] *= UNITS.get(task, 1.0)
    return result


def _graphs(molecules: RawMolecules, graph: str, problems: Problems) -> tuple[np.ndarray, np.ndarray, RawMolecules]:
    """Return rows [N, columns], atoms of each element [N, `ELEMENTS`] and the molecules that have both."""
    rows, atoms, kept = [], [], np.zeros(len(molecules.ids), bool)
    for index, (name, place) in enumerate(zip(molecules.ids, molecules.places, strict=True)):
        try:
            if graph == "bonds":
                row, counts = bond_graph(read_smiles(molecules.smiles[index].strip()))
            else:
                row, counts = position_graph(*molecules.geometries[index])
        except BadSmiles as error:
            problems.append((f"{place}, {name},", str(error)))
            continue
        rows.append(row)
        atoms.append(counts)
        kept[index] = True
    return np.array(rows), np.array(atoms), chosen(molecules, kept)


def bond_graph(molecule: Molecule) -> tuple[np.ndarray, np.ndarray]:
    """Return a molecule's row of atoms and bonds, and its number of atoms of each element."""
    count = len(molecule.elements)
    _check_elements(molecule.elements, HEAVY, "atoms besides hydrogens")
    for atom, (hydrogens, charge) in enumerate(zip(molecule.hydrogens, molecule.charges, strict=True)):
        if hydrogens > HYDROGENS or charge not in CHARGES:
            raise BadSmiles(f"has an atom {atom + 1} with {hydrogens} hydrogens and charge {charge}, unlike QM9")

    codes = [[1 + ELEMENTS.index(element) for element in molecule.elements],
             [1 + hydrogens for hydrogens in molecule.hydrogens],
             [1 + CHARGES.index(charge) for charge in molecule.charges],
             [1 + aromatic for aromatic in molecule.aromatic]]  # fmt: skip
    bonds = np.zeros((count, count), np.int64)
    for (first, second), bond in molecule.bonds.items():
        if bond > AROMATIC:
            raise BadSmiles(f"has a quadruple bond between atoms {first + 1} and {second + 1}, unlike QM9")
        bonds[first, second] = bonds[second, first] = bond

    counts = np.bincount(np.array(codes[0]) - 1, minlength=len(ELEMENTS))
    counts[ELEMENTS.index("H")] += sum(molecule.hydrogens)
    return BONDS.row(np.array(codes).T, bonds), counts


def position_graph(symbols: list[str], positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a molecule's row of atoms and positions about their mean, and its number of atoms of each element."""
    _check_elements(symbols, ALL, "atoms")
    codes = np.array([1 + ELEMENTS.index(symbol) for symbol in symbols])
    row = POSITIONS.row(codes[:, None], positions=positions - positions.mean(0))
    return row, np.bincount(codes - 1, minlength=len(ELEMENTS))


def _check_elements(symbols: list[str], most: int, what: str) -> None:
    unknown = next((symbol for symbol in symbols if symbol not in ELEMENTS), None)
    if unknown is not None:
        raise BadSmiles(f"has the element {unknown}; QM9 has {', '.join(ELEMENTS)}")
    if len(symbols) > most:
        raise BadSmiles(f"has {len(symbols)} {what}; QM9 has at most {most}")
