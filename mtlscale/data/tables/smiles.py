"""Reader for SMILES: the atoms and bonds of a molecule that is written in a line.

It reads the organic subset, brackets, branches, rings and aromatic letters (Weininger, 1988; opensmiles.org). Marks of
stereochemistry are read over, as graphs of bonds do not have it. Hydrogens are a number at their atom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SINGLE, DOUBLE, TRIPLE, AROMATIC, QUADRUPLE = 1, 2, 3, 4, 5
ANY = "*"  # an atom of any element
# By atomic number, from 1.
# fmt: off
ELEMENTS = (
    "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar", "K", "Ca",
    "Sc", "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y",
    "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I", "Xe", "Cs", "Ba", "La", "Ce",
    "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir",
    "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U", "Np", "Pu", "Am", "Cm",
    "Bk", "Cf", "Es", "Fm", "Md", "No", "Lr", "Rf", "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl",
    "Mc", "Lv", "Ts", "Og",
)
# fmt: on
_BONDS = {"-": SINGLE, "/": SINGLE, "\\": SINGLE, "=": DOUBLE, "#": TRIPLE, ":": AROMATIC, "$": QUADRUPLE}
_ORDERS = {SINGLE: 1, DOUBLE: 2, TRIPLE: 3, AROMATIC: 1, QUADRUPLE: 4}
_VALENCES = {"B": (3,), "C": (4,), "N": (3, 5), "O": (2,), "P": (3, 5), "S": (2, 4, 6), "F": (1,), "Cl": (1,),
             "Br": (1,), "I": (1,), ANY: ()}  # fmt: skip  # of atoms without brackets; the least that suffices
_KNOWN = frozenset((*ELEMENTS, ANY))
_TOKEN = re.compile(
    r"(?P<bracket>\[[^\]]*\])|(?P<atom>Cl|Br|[BCNOPSFI*]|[bcnops])|(?P<bond>[-=#:$/]|\\{1,2})|(?P<branch>[()])"
    r"|(?P<ring>%\d\d|%\(\d+\)|\d)|(?P<dot>\.)"
)
_BRACKET = re.compile(
    r"\[\d*(?P<letters>[A-Z][a-z]?|se|as|te|[bcnops]|\*)(?:@@?(?:TH|AL|SP|TB|OH)?\d*)?(?P<hydrogens>H\d*)?"
    r"(?P<charge>\++\d*|-+\d*)?(?::\d+)?\]"
)


class BadSmiles(ValueError):
    """A text that is no SMILES; the message says why and where, as the end of "row 3 …"."""


@dataclass
class Molecule:
    """The atoms of a molecule, without hydrogens that stand at their atom, and the bonds between them.

    Attributes:
        elements: The symbol of each atom, `ANY` where it is any.
        hydrogens: The number of hydrogens at each atom.
        charges: The formal charge of each atom.
        aromatic: Whether each atom is in an aromatic ring.
        bonds: (atom, atom) -> `SINGLE`, `DOUBLE`, `TRIPLE`, `AROMATIC` or `QUADRUPLE`.
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
    branches: list[tuple[int, int]] = []  # atom and place of those that are open
    rings: dict[str, tuple[int, int | None, int]] = {}
    previous: int | None = None
    bond: int | None = None

    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        place = position + 1
        if match is None:
            raise BadSmiles(f"has {text[position]!r} at place {place}, which no SMILES has there")
        position, kind, token = match.end(), match.lastgroup, match.group()
        if bond is not None and kind not in ("atom", "bracket", "ring"):
            raise BadSmiles(f"has {token!r} at place {place}, behind a bond that leads to no atom")

        if kind in ("atom", "bracket"):
            atom = _add_atom(molecule, token, place)
            if kind == "atom":
                bare.append(atom)
            if previous is not None:
                _bind(molecule, previous, atom, bond, place)
            previous, bond = atom, None
        elif previous is None:
            raise BadSmiles(f"{'begins with' if place == 1 else 'has'} {token!r}, before any atom, at place {place}")
        elif kind == "bond":
            bond = _BONDS[token[0]]  # a doubled backslash is one, as RDKit reads it
        elif token == "(":
            branches.append((previous, place))
        elif token == ")":
            if not branches:
                raise BadSmiles(f"closes a branch that it does not open, at place {place}")
            previous, _ = branches.pop()
        elif kind == "ring":
            number = str(int(token.strip("%()")))
            if number in rings:
                start, first_bond, _ = rings.pop(number)
                _bind(molecule, start, previous, bond or first_bond, place)
            else:
                rings[number] = previous, bond, place
            bond = None
        else:
            previous, bond = None, None

    if rings or branches:
        number, (*_, place) = next(iter(rings.items())) if rings else ("", branches[0])
        raise BadSmiles(f"leaves {f'ring {number}' if rings else 'a branch'} open, from place {place}")
    if bond is not None:
        raise BadSmiles(f"ends with a bond that leads to no atom, at place {len(text)}")
    if not molecule.elements:
        raise BadSmiles("has no atom")
    _add_hydrogens(molecule, bare)
    return molecule


def _add_atom(molecule: Molecule, token: str, place: int) -> int:
    letters, hydrogens, charge = token, 0, 0
    if token.startswith("["):
        match = _BRACKET.fullmatch(token)
        if match is None or match["letters"].capitalize() not in _KNOWN:
            raise BadSmiles(f"has {token} at place {place}, which is no atom")
        letters, signs = match["letters"], match["charge"] or ""
        hydrogens = int(match["hydrogens"][1:] or 1) if match["hydrogens"] else 0
        digits = signs.lstrip("+-")
        charge = (1 if signs.startswith("+") else -1) * (int(digits) if digits else len(signs))

    molecule.elements.append(letters.capitalize())
    molecule.hydrogens.append(hydrogens)
    molecule.charges.append(charge)
    molecule.aromatic.append(letters.islower())
    return len(molecule.elements) - 1


def _bind(molecule: Molecule, first: int, second: int, bond: int | None, place: int) -> None:
    pair = (min(first, second), max(first, second))
    if first == second or pair in molecule.bonds:
        raise BadSmiles(f"binds atoms {pair[0] + 1} and {pair[1] + 1} twice, at place {place}")
    between_aromatic = molecule.aromatic[first] and molecule.aromatic[second]
    molecule.bonds[pair] = bond or (AROMATIC if between_aromatic else SINGLE)


def _add_hydrogens(molecule: Molecule, bare: list[int]) -> None:
    """Fill up the valences of atoms without brackets; an aromatic atom has one electron in the ring's system."""
    used = [int(aromatic) for aromatic in molecule.aromatic]
    for (first, second), bond in molecule.bonds.items():
        used[first] += _ORDERS[bond]
        used[second] += _ORDERS[bond]

    for atom in bare:
        valences = _VALENCES[molecule.elements[atom]]
        if molecule.aromatic[atom]:
            valences = valences[:1]
        full = next((valence for valence in valences if valence >= used[atom]), used[atom])
        molecule.hydrogens[atom] = full - used[atom]
