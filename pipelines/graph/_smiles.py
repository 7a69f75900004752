"""Reader for SMILES: the atoms and bonds of a molecule that is written in a line.

It reads the organic subset, brackets, branches, rings and aromatic letters (Weininger, 1988; opensmiles.org). Marks of
stereochemistry are read over, as graphs of bonds do not have it. Hydrogens are a number at their atom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SINGLE, DOUBLE, TRIPLE, AROMATIC = 1, 2, 3, 4
_BONDS = {"-": SINGLE, "/": SINGLE, "\\": SINGLE, "=": DOUBLE, "#": TRIPLE, ":": AROMATIC}
_VALENCES = {"B": (3,), "C": (4,), "N": (3, 5), "O": (2,), "P": (3, 5), "S": (2, 4, 6), "F": (1,), "Cl": (1,),
             "Br": (1,), "I": (1,)}  # fmt: skip  # of atoms without brackets; the least that suffices
_AROMATIC_LETTERS = "bcnops"
_TOKEN = re.compile(
    r"(?P<bracket>\[[^\]]*\])|(?P<atom>Cl|Br|[BCNOPSFI]|[bcnops])|(?P<bond>[-=#:/\\])|(?P<branch>[()])"
    r"|(?P<ring>%\d\d|\d)|(?P<dot>\.)"
)
_BRACKET = re.compile(
    r"\[\d*(?P<letters>[A-Z][a-z]?|[bcnops])@{0,2}(?P<hydrogens>H\d*)?(?P<charge>\++\d*|-+\d*)?(?::\d+)?\]"
)


class BadSmiles(ValueError):
    """A text that is no SMILES; the message says why, as the end of "row 3 …"."""


@dataclass
class Molecule:
    """The heavy atoms of a molecule and the bonds between them.

    Attributes:
        elements: The symbol of each atom.
        hydrogens: The number of hydrogens at each atom.
        charges: The formal charge of each atom.
        aromatic: Whether each atom is in an aromatic ring.
        bonds: (atom, atom) -> `SINGLE`, `DOUBLE`, `TRIPLE` or `AROMATIC`.
    """

    elements: list[str] = field(default_factory=list)
    hydrogens: list[int] = field(default_factory=list)
    charges: list[int] = field(default_factory=list)
    aromatic: list[bool] = field(default_factory=list)
    bonds: dict[tuple[int, int], int] = field(default_factory=dict)


def read_smiles(text: str) -> Molecule:
    """Return the molecule of a SMILES.

    Raises:
        BadSmiles: If the text is none.
    """
    molecule, bare = Molecule(), []  # bare: atoms whose hydrogens are not written
    branches: list[int | None] = []
    rings: dict[str, tuple[int, int | None]] = {}
    previous: int | None = None
    bond: int | None = None

    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadSmiles(f"has {text[position]!r} at place {position + 1}, which no SMILES has there")
        position, kind, token = match.end(), match.lastgroup, match.group()

        if kind in ("atom", "bracket"):
            atom = _add_atom(molecule, token)
            if kind == "atom":
                bare.append(atom)
            if previous is not None:
                _bind(molecule, previous, atom, bond)
            previous, bond = atom, None
        elif kind == "bond":
            bond = _BONDS[token]
        elif previous is None:
            raise BadSmiles(f"begins with {token!r}, before any atom")
        elif token == "(":
            branches.append(previous)
        elif token == ")":
            if not branches:
                raise BadSmiles("closes a branch that it does not open")
            previous = branches.pop()
        elif kind == "ring":
            number = token.lstrip("%")
            if number in rings:
                start, first_bond = rings.pop(number)
                _bind(molecule, start, previous, bond or first_bond)
            else:
                rings[number] = previous, bond
            bond = None
        else:
            previous, bond = None, None

    if rings or branches:
        raise BadSmiles(f"leaves {f'ring {next(iter(rings))}' if rings else 'a branch'} open")
    if not molecule.elements:
        raise BadSmiles("has no atom")
    for atom in bare:
        molecule.hydrogens[atom] = _implicit_hydrogens(molecule, atom)
    return molecule


def _add_atom(molecule: Molecule, token: str) -> int:
    letters, hydrogens, charge = token, 0, 0
    if token.startswith("["):
        match = _BRACKET.fullmatch(token)
        if match is None:
            raise BadSmiles(f"has {token}, which is no atom")
        letters, signs = match["letters"], match["charge"] or ""
        hydrogens = int(match["hydrogens"][1:] or 1) if match["hydrogens"] else 0
        digits = signs.lstrip("+-")
        charge = (1 if signs.startswith("+") else -1) * (int(digits) if digits else len(signs))

    molecule.elements.append(letters.capitalize())
    molecule.hydrogens.append(hydrogens)
    molecule.charges.append(charge)
    molecule.aromatic.append(letters in _AROMATIC_LETTERS)
    return len(molecule.elements) - 1


def _bind(molecule: Molecule, first: int, second: int, bond: int | None) -> None:
    pair = (min(first, second), max(first, second))
    if first == second or pair in molecule.bonds:
        raise BadSmiles(f"binds atoms {pair[0] + 1} and {pair[1] + 1} twice")
    between_aromatic = molecule.aromatic[first] and molecule.aromatic[second]
    molecule.bonds[pair] = bond or (AROMATIC if between_aromatic else SINGLE)


def _implicit_hydrogens(molecule: Molecule, atom: int) -> int:
    """Return the hydrogens that fill up an atom's valence; an aromatic atom has one electron in the ring's system."""
    used = sum(1 if bond == AROMATIC else bond for pair, bond in molecule.bonds.items() if atom in pair)
    used += molecule.aromatic[atom]
    valences = _VALENCES[molecule.elements[atom]]
    if molecule.aromatic[atom]:
        valences = valences[:1]
    return max(0, next((valence for valence in valences if valence >= used), used) - used)
