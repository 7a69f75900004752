"""Ensembles of decision trees that scikit-learn has grown, as tensors: the base of the floors of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtlscale.architectures.fitted import FittedModule
from mtlscale.architectures.floors._regressions import Examples, labelled
from mtlscale.architectures.hooks import LabelledData
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.data import Batch, Outputs
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.data.format.molecules import fingerprint

Array = npt.NDArray[Any]

RARE = 1e-6  # the probability of a class that no leaf has
_LEVELS = 4  # decisions after which the rows and trees that came to a leaf are left out
_VALUES_AT_ONCE = 1 << 22  # leaves' values that are in memory for a block of rows


@dataclass(frozen=True)
class Tree:
    """A decision tree whose nodes are in depth-first order: the left child of an inner node follows it.

    Attributes:
        column: [nodes] The column that a node looks at, counted on behind the last one if it looks at codes of a
            category; -1 for a leaf.
        threshold: [nodes] A row goes left if its number is at most this; of a category, the row of `codes`.
        right: [nodes] The right child of an inner node.
        leaf: [nodes, outputs] The values of a leaf.
        depth: The most decisions before a leaf.
        codes: [sets, codes] Whether a code of a category goes left.
    """

    column: Array
    threshold: Array
    right: Array
    leaf: Array
    depth: int
    codes: Array | None = None

    @classmethod
    def single_leaf(cls, values: Array) -> Tree:
        """Return the tree that predicts the same values [outputs] for all rows."""
        return cls(np.array([-1]), np.zeros(1), np.zeros(1, int), np.asarray(values, float)[None], 0)


class TreesModule(FittedModule):
    """Predictors that add up the leaves of a task's trees."""

    reader = ""  # the name of the floor in messages

    def __init__(self, suite: TaskSuite, most_rows: int | None = None) -> None:
        super().__init__(suite)
        if suite.per_token or suite.input_kind != "vector":
            raise UserError(
                f"{self.reader} reads numbers, categories and molecules, {suite.name} has "
                f"{'tokens' if suite.per_token or suite.input_kind == 'tokens' else 'images'}; leave it out of `floors`"
            )
        self.suite, self.most_rows = suite, most_rows
        layout = GraphLayout.of(suite.extras)
        self.molecules = layout if layout is not None and layout.edges else None
        # The generator has the run's seed here, and no encoder has drawn from it.
        self.seed = int(torch.randint(2**31 - len(suite.tasks), (), device="cpu"))
        self.depths = [0] * len(suite.tasks)
        for index, task in enumerate(suite.tasks):
            self._keep(index, [Tree.single_leaf(np.zeros(task.outputs))])

    def grown(self, task: Task, examples: Examples, seed: int) -> Sequence[Tree]:
        """Return the trees of a task; the sum of their leaves is what `linked` gets."""
        raise NotImplementedError

    def linked(self, task: Task, sums: Tensor) -> Tensor:
        """Return the prediction [B, outputs] from sums of leaves."""
        return sums

    def forward(self, batch: Batch) -> Outputs:
        rows = self._rows(batch.inputs)
        predictions = {}
        for name in batch.tasks:
            index = self.index(name)
            block = max(1, _VALUES_AT_ONCE // self.get_buffer(f"root{index}").numel() // self.tasks[name].outputs)
            blocks = [rows] if torch.compiler.is_exporting() else rows.split(block)
            sums = torch.cat([self._sums(index, part) for part in blocks])
            predictions[name] = self.with_graph(name, self.linked(self.tasks[name], sums))
        return Outputs(predictions)

    def _rows(self, inputs: Tensor) -> Tensor:
        """Return the columns [B, F] that trees look at."""
        return inputs.flatten(1) if self.molecules is None else fingerprint(self.molecules, inputs)

    def _sums(self, index: int, rows: Tensor) -> Tensor:
        """Return the sums [B, outputs] of the leaves that rows come to."""
        column, right, root = (self.get_buffer(f"{name}{index}") for name in ("column", "right", "root"))
        trees, (count, width) = root.numel(), rows.shape  # not `len`, which an exported graph takes for a constant
        node = root.repeat(count)  # of each row and tree
        start = (torch.arange(count, device=rows.device) * width)[:, None].expand(count, trees).reshape(-1)
        numbers, depth = rows.flatten(), self.depths[index]

        # The same work for all rows; on a GPU every mask would wait for it.
        if torch.compiler.is_exporting() or rows.device.type != "cpu":
            node = self._below(index, node, start, numbers, width, depth)
        else:
            going = torch.arange(len(node), device=rows.device)
            for level in range(0, depth, _LEVELS):
                levels = min(_LEVELS, depth - level)
                below = self._below(index, node[going], start[going], numbers, width, levels)
                node[going] = below
                going = going[column[below] >= 0]

        leaf = self.get_buffer(f"value_leaf{index}")[right[node]]
        return leaf.to(rows.dtype).reshape(count, trees, -1).sum(1)

    def _below(self, index: int, node: Tensor, start: Tensor, numbers: Tensor, columns: int, levels: int) -> Tensor:
        """Return the nodes that `levels` decisions lead to; `start` are the places in `numbers` of the nodes' rows."""
        of_task = {name: self.get_buffer(f"{name}{index}") for name in ("column", "value", "right", "codes")}
        coded = len(of_task["codes"]) > 0

        for _ in range(levels):
            column, value = of_task["column"][node], of_task["value"][node]
            place = column.clamp(min=0)
            number = numbers[start + (place % columns if coded else place)]
            goes_left = number <= value
            if coded:  # columns are counted twice: first as numbers, then as categories
                of_codes = column >= columns
                code = number.long().clamp(0, of_task["codes"].shape[1] - 1)
                goes_left = torch.where(
                    of_codes, of_task["codes"][torch.where(of_codes, value, 0.0).long(), code], goes_left
                )
            child = torch.where(goes_left, node + 1, of_task["right"][node])
            node = torch.where(column < 0, node, child)
        return node

    # -- fitting -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def from_data(self, data: LabelledData) -> None:
        for stream, names in self.suite.streams.items():
            samples = list(data.samples("train", stream, self.most_rows)) if names else []
            if not samples:
                continue
            rows = torch.cat([self._rows(block.inputs.cpu()) for block in samples]).float().numpy()
            for name in names:
                task, index = self.tasks[name], self.index(name)
                labels = torch.cat([block.targets[name].cpu() for block in samples]).numpy()
                examples = labelled(task, Examples(rows, labels))
                if len(examples.labels):
                    self._keep(index, self.grown(task, examples, self.seed + index))

    def _keep(self, index: int, trees: Sequence[Tree]) -> None:
        """Keep the trees of a task as one list of nodes: a leaf's `right` is its row of values."""
        sizes = np.array([len(tree.column) for tree in trees])
        roots = np.cumsum(sizes) - sizes
        column = np.concatenate([tree.column for tree in trees])
        inner = column >= 0

        codes = [np.zeros((0, 1), bool), *(tree.codes for tree in trees if tree.codes is not None)]
        sets = np.cumsum([0, *(0 if tree.codes is None else len(tree.codes) for tree in trees)])
        threshold = np.concatenate([tree.threshold for tree in trees]).astype(np.float64)
        threshold += np.where(column >= self.width, np.repeat(sets[:-1], sizes), 0)
        threshold[~inner] = 0.0
        right = np.concatenate([tree.right + root for tree, root in zip(trees, roots, strict=True)])
        right[~inner] = np.arange((~inner).sum())
        leaf = np.concatenate([tree.leaf for tree in trees])[~inner]

        # Inputs have 32 bits: a threshold rounded down to as many divides them as the one of 64 bits does.
        value = threshold.astype(np.float32)
        value = np.where(value > threshold, np.nextafter(value, np.float32(-np.inf)), value)
        self.depths[index] = depth = max(tree.depth for tree in trees)
        device = self.nothing[index].device
        for name, array in {
            "column": column.astype(np.int32),
            "value": value,
            "right": right.astype(np.int32),
            "root": roots.astype(np.int32),
            "codes": np.concatenate(codes[1:] or codes),
            "value_leaf": leaf.astype(np.float32),
            "depth": np.array(depth),
        }.items():
            self.register_buffer(f"{name}{index}", torch.from_numpy(array).to(device))

    @property
    def width(self) -> int:
        """The number of columns that trees look at."""
        return self._rows(torch.zeros(1, *self.suite.input_shape, device="cpu")).shape[1]

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Take the sizes of the trees from the state, which only the data decide."""
        for name, buffer in self.named_buffers(recurse=False):
            stored = state_dict.get(prefix + name, buffer)
            if stored.shape != buffer.shape:
                self.register_buffer(name, buffer.new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.depths = [int(self.get_buffer(f"depth{index}")) for index in range(len(self.depths))]
