"""Molecules as rows of a graph, and the counts of their parts that models without a graph read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.data.format.graphs import GraphLayout
from mtlscale.data.tables.smiles import ANY, ELEMENTS, QUADRUPLE, SINGLE, Molecule, read_smiles

if TYPE_CHECKING:
    from torch import Tensor

HYDROGENS, CHARGE = 5, 4  # the most hydrogens at an atom, and the largest charge, that have a code of their own
NODE_CODES = (2 + len(ELEMENTS), 2 + HYDROGENS, 2 + 2 * CHARGE, 3)  # element, hydrogens, charge, aromatic
FINGERPRINT, RADIUS = 1024, 2  # columns of a fingerprint, and bonds from the middle of a part to its rim
_CODE_OF = {element: code for code, element in enumerate((ANY, *ELEMENTS), start=1)}
_ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # 64 bits, as splitmix64 and xxhash have them


def molecule_layout(atoms: int, bonds: int) -> GraphLayout:
    """Return the layout of molecules with at most so many atoms and bonds."""
    return GraphLayout(max(1, atoms), node_codes=NODE_CODES, edge_codes=1 + QUADRUPLE, edges=max(1, bonds))


def table_molecule(text: str) -> Molecule:
    """Return the molecule of a SMILES in a table, in which hydrogens are a number at their atom however they stand.

    Raises:
        BadSmiles: If the text is none.
    """
    molecule = read_smiles(text.strip())
    bonds_of = Counter(atom for pair in molecule.bonds for atom in pair)
    home: dict[int, int] = {}  # hydrogen -> its atom
    for (first, second), bond in molecule.bonds.items():
        for atom, other in ((first, second), (second, first)):
            is_plain = molecule.elements[atom] == "H" and not molecule.charges[atom] and not molecule.hydrogens[atom]
            if is_plain and bond == SINGLE and bonds_of[atom] == 1 and molecule.elements[other] != "H":
                home[atom] = other
    if not home:
        return molecule

    for atom in home.values():
        molecule.hydrogens[atom] += 1
    kept = [atom for atom in range(len(molecule.elements)) if atom not in home]
    number = {atom: index for index, atom in enumerate(kept)}
    return Molecule(
        elements=[molecule.elements[atom] for atom in kept],
        hydrogens=[molecule.hydrogens[atom] for atom in kept],
        charges=[molecule.charges[atom] for atom in kept],
        aromatic=[molecule.aromatic[atom] for atom in kept],
        bonds={(number[first], number[second]): bond for (first, second), bond in molecule.bonds.items()
               if first in number and second in number},
    )  # fmt: skip


def molecule_row(molecule: Molecule, layout: GraphLayout) -> np.ndarray:
    """Return a molecule's row [columns], float32; more hydrogens or charge than have a code count as the most."""
    nodes = [
        [_CODE_OF[element] for element in molecule.elements],
        [1 + min(hydrogens, HYDROGENS) for hydrogens in molecule.hydrogens],
        [1 + CHARGE + max(-CHARGE, min(charge, CHARGE)) for charge in molecule.charges],
        [1 + aromatic for aromatic in molecule.aromatic],
    ]
    edges = [(first + 1, second + 1, bond) for (first, second), bond in molecule.bonds.items()]
    return layout.row(np.array(nodes).T, np.array(edges, np.int64).reshape(-1, 3))


def fingerprint(layout: GraphLayout, rows: Tensor, columns: int = FINGERPRINT, radius: int = RADIUS) -> Tensor:
    """Return the counts [N, columns] of the parts of graphs whose edges are a list, hashed into columns.

    A part is a node with its neighbours up to 0, 1, … `radius` edges away, as in extended-connectivity fingerprints
    (Rogers and Hahn, 2010), which count each part once. The counts do not depend on the order of nodes or edges.

    Args:
        layout: The layout of the rows.
        rows: The rows [N, width].
        columns: The number of columns, a power of two.
        radius: The most edges from the middle of a part to its rim.
    """
    import torch

    nodes, edges = layout.read_nodes(rows), layout.read_edge_list(rows)
    present = (nodes[..., 0] > 0).long()
    codes = torch.zeros_like(present)
    for attribute in range(nodes.shape[-1]):
        codes = _mixed(codes + nodes[..., attribute])

    bonds = torch.cat([edges, edges[..., [1, 0, 2]]], -2)
    senders, receivers = (bonds[..., 0] - 1).clamp(min=0), (bonds[..., 1] - 1).clamp(min=0)
    is_bond = (bonds[..., 2] > 0).long()

    counts = torch.zeros(len(rows), columns, dtype=torch.long, device=rows.device)
    for distance in range(radius + 1):
        if distance:
            sent = _mixed(codes.gather(-1, senders) + bonds[..., 2]) * is_bond
            codes = _mixed(codes + torch.zeros_like(codes).scatter_add(-1, receivers, sent) + distance)
        counts = counts.scatter_add(-1, codes >> 20 & columns - 1, present)
    return counts.to(rows.dtype)


def _mixed(codes: Tensor) -> Tensor:
    """Return numbers of 64 bits in which each bit of `codes` changes many."""
    for odd in _ODD:
        codes = codes * odd
        codes = codes ^ (codes >> 29)
    return codes + _ODD[0]
