"""The architecture search space of DARTS cells: eight operations on the edges between states, and genotypes.

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

from mtlscale.config import UserError, nearest
from mtlscale.solvers import first_largest

OPERATIONS = ("none", "max3", "avg3", "skip", "sep3", "sep5", "dil3", "dil5")
NODES = 4
EDGES = tuple((state, node) for node in range(NODES) for state in range(node + 2))  # in the order of the logits
SPACE = {"operations": list(OPERATIONS), "nodes": NODES}  # identifies the search space
_ALIASES = {
    "zero": "none", "identity": "skip", "skip_connect": "skip", "max": "max3", "max_pool_3x3": "max3", "avg": "avg3",
    "avg_pool_3x3": "avg3", "sep_conv_3x3": "sep3", "sep_conv_5x5": "sep5", "dil_conv_3x3": "dil3",
    "dil_conv_5x5": "dil5",
}  # fmt: skip

Choice = tuple[str, int]  # an operation, and the state that it reads
Cell = tuple[tuple[Choice, Choice], ...]  # the two edges into each node


@dataclass(frozen=True)
class Genotype:
    """The result of a cell search: the normal and the reduction cell of a network."""

    normal: Cell
    reduce: Cell

    def text(self) -> str:
        """Return the text that `Genotype.of` reads: "normal: sep3 0, skip 1 | …", then the reduction cell likewise."""
        cells = (("normal", self.normal), ("reduce", self.reduce))
        return "; ".join(
            f"{name}: " + " | ".join(", ".join(f"{operation} {state}" for operation, state in node) for node in cell)
            for name, cell in cells
        )

    def plain(self) -> dict[str, list[list[list[Any]]]]:
        """Return plain lists: for each cell its nodes, each as two pairs of operation and state."""
        cells = {"normal": self.normal, "reduce": self.reduce}
        return {name: [[list(choice) for choice in node] for node in cell] for name, cell in cells.items()}

    def numbers(self) -> list[int]:
        """Return 32 whole numbers that stand for the genotype.

        For each node of the normal cell, then of the reduction cell, they are two pairs of operation (0 to 6, in the
        order of `OPERATIONS` after `none`) and state.
        """
        nodes = [node for cell in (self.normal, self.reduce) for node in cell]
        return [n for node in nodes for operation, state in node for n in (OPERATIONS.index(operation) - 1, state)]

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> Genotype:
        """Build a genotype from numbers like those of `numbers`; two edges into a node get different states."""
        if len(numbers) != 8 * NODES:
            raise UserError(f"a genotype is {8 * NODES} numbers, these are {len(numbers)}")

        cells = []
        for start in (0, 4 * NODES):
            nodes = []
            for node in range(NODES):
                first_operation, first_state, second_operation, second_state = (
                    int(n) for n in numbers[start + 4 * node : start + 4 * node + 4]
                )
                state_count = node + 2
                first_state, second_state = first_state % state_count, second_state % state_count
                second_state = (second_state + 1) % state_count if second_state == first_state else second_state
                nodes.append(((_number(first_operation), first_state), (_number(second_operation), second_state)))
            cells.append(tuple(nodes))
        return cls(*cells)

    @classmethod
    def bounds(cls) -> list[int]:
        """Return how many values each of the 32 numbers has."""
        cell_bounds = [bound for node in range(NODES) for _ in range(2) for bound in (len(OPERATIONS) - 1, node + 2)]
        return cell_bounds + cell_bounds

    @classmethod
    def random(cls, generator: torch.Generator | None = None) -> Genotype:
        """Draw two different states for each node, and operations other than `none`, each equally likely."""
        numbers: list[int] = []
        for _ in range(2):
            for node in range(NODES):
                for state in torch.randperm(node + 2, generator=generator)[:2].sort().values.tolist():
                    numbers += [int(torch.randint(len(OPERATIONS) - 1, (), generator=generator)), state]
        return cls.of_numbers(numbers)

    @classmethod
    def of(cls, form: Genotype | str | Mapping[str, Any] | Any) -> Genotype:
        """Build a genotype from a name, a text, numbers, the plain form or an object.

        Args:
            form: A genotype, a name of `GENOTYPES`, a genotype's text, its plain form, or any object with the
                attributes `normal` and `reduce`.

        Raises:
            UserError: If the argument is none of these, or no genotype of this search space.
        """
        if isinstance(form, Genotype):
            return form

        if isinstance(form, str):
            if form in GENOTYPES:
                return GENOTYPES[form]
            if re.fullmatch(r"\d+( \d+)*", form):  # the form that a search over numbers writes
                return cls.of_numbers([int(number) for number in form.split()])
            if ":" not in form:
                raise UserError(f"unknown genotype {form!r}: {nearest(form, list(GENOTYPES))}")
            return cls(*_cells_in(form))

        cells = [form[n] if isinstance(form, Mapping) else getattr(form, n, ()) for n in ("normal", "reduce")]
        return cls(*(_checked(name, cell) for name, cell in zip(("normal", "reduce"), cells, strict=True)))


def _number(number: int) -> str:
    return OPERATIONS[1 + number % (len(OPERATIONS) - 1)]


def _cells_in(text: str) -> list[Cell]:
    parts = dict(re.findall(r"(\w+)\s*:([^;:]*)", text))
    if set(parts) != {"normal", "reduce"}:
        raise UserError(
            "a genotype is written as `normal: sep3 0, skip 1 | …; reduce: …`, four nodes of two edges each"
        )

    cells = []
    for name in ("normal", "reduce"):
        edges = [edge.split() for node in parts[name].split("|") for edge in node.split(",")]
        wrong = next((edge for edge in edges if len(edge) != 2 or not edge[1].isdigit()), None)
        if wrong is not None:
            raise UserError(f"genotype, {name}: {' '.join(wrong)!r} is no operation and the number of a state")
        cells.append(_checked(name, [(operation, int(state)) for operation, state in edges]))

    return cells


def _checked(name: str, cell: Iterable[Any]) -> Cell:
    """Return the cell of a list of eight edges, or of four nodes with two edges each."""
    edges: list[Any] = []
    for entry in cell:
        pair = isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], str)
        edges += [entry] if pair else list(entry)

    if len(edges) != 2 * NODES:
        raise UserError(f"genotype, {name}: {len(edges)} edges, but {NODES} nodes have two each")

    choices: list[Choice] = []
    for index, (operation, state) in enumerate(edges):
        canonical, states = _ALIASES.get(operation, operation), index // 2 + 2
        if canonical not in OPERATIONS or canonical == "none":
            raise UserError(f"genotype, {name}: unknown operation {operation!r}: {nearest(operation, OPERATIONS[1:])}")
        if not 0 <= int(state) < states:
            raise UserError(f"genotype, {name}: node {index // 2} reads state {state}; it may read 0 to {states - 1}")
        choices.append((canonical, int(state)))

    return tuple((choices[2 * node], choices[2 * node + 1]) for node in range(NODES))


def _cell(text: str) -> Cell:
    return _checked(
        "known", [(operation, int(state)) for operation, state in (edge.split() for edge in text.split(", "))]
    )


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
}  # S1 and S2 are those of E2RNAS, results of the author's code


def discretised(normal: Tensor, reduce: Tensor) -> Genotype:
    """Return the genotype that the weights [14, 8] of the edges' operations choose.

    Each node gets the two edges with the largest weights of operations other than `none`, with these operations.
    """
    return Genotype(_as_genotype(normal), _as_genotype(reduce))


def _as_genotype(weights: Tensor) -> Cell:
    operation_weights = weights.detach()[:, 1:]
    best_operation = first_largest(operation_weights)
    best_weight = operation_weights.gather(1, best_operation[:, None])[:, 0]
    nodes = []
    for node in range(NODES):
        edges = [edge for edge, (_, target) in enumerate(EDGES) if target == node]
        strongest = edges.pop(int(first_largest(best_weight[edges])))
        next_strongest = edges[int(first_largest(best_weight[edges]))]
        chosen_edges = sorted((strongest, next_strongest))
        (first, second) = [(OPERATIONS[1 + int(best_operation[edge])], EDGES[edge][0]) for edge in chosen_edges]
        nodes.append((first, second))
    return tuple(nodes)
