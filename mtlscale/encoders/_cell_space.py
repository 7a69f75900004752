"""The space of DARTS cells: eight operations on the edges between a cell's states, and what is chosen there.

A cell has two inputs, states 0 and 1, and four nodes, states 2 to 5; its output is the nodes side by side. In the
search every earlier state leads to every node; a genotype keeps two edges into each node, with one operation each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mtlscale.spec import UserError, nearest

OPERATIONS = ("none", "max3", "avg3", "skip", "sep3", "sep5", "dil3", "dil5")
NODES = 4
EDGES = tuple((state, node) for node in range(NODES) for state in range(node + 2))  # in the order of the logits
SPACE = {"operations": list(OPERATIONS), "nodes": NODES}  # what tells one space from another
_ALIASES = {
    "zero": "none", "identity": "skip", "skip_connect": "skip", "max": "max3", "max_pool_3x3": "max3", "avg": "avg3",
    "avg_pool_3x3": "avg3", "sep_conv_3x3": "sep3", "sep_conv_5x5": "sep5", "dil_conv_3x3": "dil3",
    "dil_conv_5x5": "dil5",
}  # fmt: skip

Choice = tuple[str, int]  # an operation, and the state it reads
Cell = tuple[tuple[Choice, Choice], ...]  # of each node the two edges into it


@dataclass(frozen=True)
class Genotype:
    """The two kinds of cells of a network, as what was found."""

    normal: Cell
    reduce: Cell

    def text(self) -> str:
        """Such as "normal: sep3 0, skip 1 | …; reduce: …", which `Genotype.of` reads."""
        cells = (("normal", self.normal), ("reduce", self.reduce))
        return "; ".join(
            f"{name}: " + " | ".join(", ".join(f"{what} {state}" for what, state in node) for node in cell)
            for name, cell in cells
        )

    def plain(self) -> dict[str, list[list[list[Any]]]]:
        """Cell -> node -> two pairs of operation and state, as plain lists."""
        cells = {"normal": self.normal, "reduce": self.reduce}
        return {name: [[list(choice) for choice in node] for node in cell] for name, cell in cells.items()}

    def numbers(self) -> list[int]:
        """32 whole numbers: of each node of the normal, then the reduction cell two pairs of operation (0 to 6, in the
        order of `OPERATIONS` after `none`) and state."""
        nodes = [node for cell in (self.normal, self.reduce) for node in cell]
        return [n for node in nodes for what, state in node for n in (OPERATIONS.index(what) - 1, state)]

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> Genotype:
        """From the numbers of `numbers`; two edges into a node from one state are moved to different ones."""
        if len(numbers) != 8 * NODES:
            raise UserError(f"a genotype is {8 * NODES} numbers, these are {len(numbers)}")
        cells = []
        for start in (0, 4 * NODES):
            nodes = []
            for node in range(NODES):
                one, first, other, second = (int(n) for n in numbers[start + 4 * node : start + 4 * node + 4])
                states = node + 2
                first, second = first % states, second % states
                second = (second + 1) % states if second == first else second
                nodes.append(((_number(one), first), (_number(other), second)))
            cells.append(tuple(nodes))
        return cls(*cells)

    @classmethod
    def bounds(cls) -> list[int]:
        """[32]: how many values each of the numbers has."""
        one = [bound for node in range(NODES) for _ in range(2) for bound in (len(OPERATIONS) - 1, node + 2)]
        return one + one

    @classmethod
    def random(cls, generator: torch.Generator | None = None) -> Genotype:
        """Two different states for each node, and operations other than `none`, each equally likely."""
        numbers: list[int] = []
        for _ in range(2):
            for node in range(NODES):
                for state in torch.randperm(node + 2, generator=generator)[:2].sort().values.tolist():
                    numbers += [int(torch.randint(len(OPERATIONS) - 1, (), generator=generator)), state]
        return cls.of_numbers(numbers)

    @classmethod
    def of(cls, given: Genotype | str | Mapping[str, Any] | Any) -> Genotype:
        """From a name of `GENOTYPES`, the text of one, its plain form, or anything with `normal` and `reduce`.
        `UserError` where it is none."""
        if isinstance(given, Genotype):
            return given
        if isinstance(given, str):
            if given in GENOTYPES:
                return GENOTYPES[given]
            if re.fullmatch(r"\d+( \d+)*", given):  # as a search over numbers writes it
                return cls.of_numbers([int(number) for number in given.split()])
            if ":" not in given:
                raise UserError(f"unknown genotype {given!r}: {nearest(given, list(GENOTYPES))}")
            return cls(*_cells_in(given))
        cells = [given[n] if isinstance(given, Mapping) else getattr(given, n, ()) for n in ("normal", "reduce")]
        return cls(*(_checked(name, cell) for name, cell in zip(("normal", "reduce"), cells, strict=True)))


def _number(number: int) -> str:
    return OPERATIONS[1 + number % (len(OPERATIONS) - 1)]


def _cells_in(text: str) -> list[Cell]:
    parts = dict(re.findall(r"(\w+)\s*:([^;:]*)", text))
    if set(parts) != {"normal", "reduce"}:
        raise UserError(
            "a genotype is written as `normal: sep3 0, skip 1 | …; reduce: …`, four nodes of two edges each"
        )
    found = []
    for name in ("normal", "reduce"):
        edges = [edge.split() for node in parts[name].split("|") for edge in node.split(",")]
        wrong = next((edge for edge in edges if len(edge) != 2 or not edge[1].isdigit()), None)
        if wrong is not None:
            raise UserError(f"genotype, {name}: {' '.join(wrong)!r} is no operation and the number of a state")
        found.append(_checked(name, [(what, int(state)) for what, state in edges]))
    return found


def _checked(name: str, cell: Iterable[Any]) -> Cell:
    """Of a list of eight edges, or of four nodes with two."""
    edges: list[Any] = []
    for each in cell:
        pair = isinstance(each, Sequence) and len(each) == 2 and isinstance(each[0], str)
        edges += [each] if pair else list(each)
    if len(edges) != 2 * NODES:
        raise UserError(f"genotype, {name}: {len(edges)} edges, but {NODES} nodes have two each")
    found: list[Choice] = []
    for place, (what, state) in enumerate(edges):
        known, states = _ALIASES.get(what, what), place // 2 + 2
        if known not in OPERATIONS or known == "none":
            raise UserError(f"genotype, {name}: unknown operation {what!r}: {nearest(what, OPERATIONS[1:])}")
        if not 0 <= int(state) < states:
            raise UserError(f"genotype, {name}: node {place // 2} reads state {state}; it may read 0 to {states - 1}")
        found.append((known, int(state)))
    return tuple((found[2 * node], found[2 * node + 1]) for node in range(NODES))


def _cell(text: str) -> Cell:
    return _checked("known", [(what, int(state)) for what, state in (edge.split() for edge in text.split(", "))])


GENOTYPES = {
    "DARTS_V2": Genotype(
        _cell("sep3 0, sep3 1, sep3 0, sep3 1, sep3 1, skip 0, skip 0, dil3 2"),
        _cell("max3 0, max3 1, skip 2, max3 1, max3 0, skip 2, skip 2, max3 1"),
    ),
    "S1": Genotype(
        _cell("avg3 0, skip 1, avg3 0, sep3 2, sep5 3, avg3 0, sep5 2, avg3 0"),
        _cell("avg3 0, avg3 1, avg3 1, avg3 0, avg3 0, skip 3, skip 3, avg3 0"),
    ),
    "S2": Genotype(
        _cell("avg3 0, max3 1, sep5 2, skip 0, sep5 2, sep5 3, sep5 2, sep5 3"),
        _cell("avg3 0, avg3 1, avg3 0, skip 2, avg3 0, skip 2, sep5 1, sep3 0"),
    ),
}  # S1 and S2 of E2RNAS, found by the author's code


def discretised(normal: Tensor, reduce: Tensor) -> Genotype:
    """From weights [14, 8] of the edges' operations: into each node the two edges with the largest operation other than
    `none`, and that operation."""
    return Genotype(_chosen(normal), _chosen(reduce))


def _chosen(weights: Tensor) -> Cell:
    best, place = weights.detach().double()[:, 1:].max(1)
    nodes = []
    for node in range(NODES):
        edges = [edge for edge, (_, target) in enumerate(EDGES) if target == node]
        two = sorted(sorted(edges, key=lambda edge: -float(best[edge]))[:2])
        (one, other) = [(OPERATIONS[1 + int(place[edge])], EDGES[edge][0]) for edge in two]
        nodes.append((one, other))
    return tuple(nodes)
