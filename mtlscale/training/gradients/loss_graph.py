"""Checks of a user's losses against the parameters that they should move, read off autograd's graph.

Every step is looked at: `GraphLook` visits each node once, however many losses share it. Only where something is odd,
`check_loss` and `check_features` look at the losses one by one, to say what it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from mtlscale.config import UserError

Node = Any  # torch.autograd.graph.Node: its type does not declare the leaf of a node that accumulates
Owners = Mapping[int, int | None]  # id of a parameter -> the task that owns it, None for shared ones

_COMMON = -1  # in the place of a task: of the graph above features, or nobody's
_SHARED, _NOBODY = 1, 2  # bits of owners beside those of tasks
_PICKED = frozenset({"UnbindBackward0", "SelectBackward0", "SplitBackward0", "IndexBackward0"})
_JOINED = frozenset({"StackBackward0", "CatBackward0"})
# Nodes whose backward pass is known to run for all tasks at once (`torch.func.vmap`) and faster so.
_BATCHABLE = frozenset(
    f"{name}Backward{number}"
    for name in (
        *("Addmm", "Mm", "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Expand", "Squeeze"),
        *("Unsqueeze", "Relu", "LeakyRelu", "Elu", "Tanh", "Sigmoid", "Silu", "Gelu", "Mul", "Div", "Add", "Sub"),
        *("Mean", "Sum", "Cat", "NativeLayerNorm", "Softplus", "ToCopy"),
    )
    for number in range(3)
) | {"AccumulateGrad"}


class Fit(NamedTuple):
    """Whether losses and features fit the parameters, and whether tasks may go back through the features at once.

    `nodes` is the size of the graph.
    """

    right: bool
    batchable: bool
    nodes: int


class GraphLook:
    """Looks at the graphs of one step after the other, for parameters that stay the same.

    A node costs less than a microsecond. The nodes at which the parameters' gradients accumulate are kept: torch then
    uses them in every step.
    """

    def __init__(self, owners: Owners) -> None:
        self.owners = owners
        self._has_shared = None in owners.values()
        self._ends: dict[Node, int] = {}  # node of a parameter -> the bit of its owner
        self._batchable: set[type] = set()  # kinds of nodes that are known to be so

    def fits(self, tasks: Sequence[int], losses: Sequence[Tensor], features: Sequence[Tensor | None]) -> Fit:
        """Return whether each loss reaches what is shared or its task's own, and no parameter else.

        Args:
            tasks: The positions of the losses' tasks.
            features: What each task's head reads, if it was handed over: shared parameters are then reached through it.
        """
        seen: dict[Node, int] = {}  # node -> the task whose loss came first
        joints: dict[Node, int] = {}  # node that several losses come to -> owners of the parameters above it
        right, batchable, ends = True, True, self._ends

        common = {id(z): z for z in features if z is not None}.values()
        roots = [(_COMMON, z, None) for z in common]
        for task, root, z in (*roots, *zip(tasks, losses, features, strict=True)):
            owners, through = 0, False
            stop, stop_slot = (None, 0) if z is None else (z.grad_fn, z.output_nr)
            waiting: list[tuple[Node, int]] = [(root.grad_fn, root.output_nr)]
            while waiting:
                node, slot = waiting.pop()
                if node in ends:
                    owners |= ends[node]
                elif node is None:
                    continue
                elif node is stop and slot == stop_slot:
                    through = True
                elif node not in seen:
                    seen[node] = task
                    before = node.next_functions
                    waiting += before
                    if not before:
                        owners |= self._end(node)
                elif seen[node] != task:
                    owners |= joints.get(node) or joints.setdefault(node, self._above(node))

            if task == _COMMON:
                right = right and owners == _SHARED
                batchable = self._all_batchable(seen)
            else:
                shared = bool(owners & _SHARED)
                as_meant = shared == self._has_shared if z is None else through and not shared
                right = right and as_meant and owners | _SHARED | _bit(task) == _SHARED | _bit(task)

        return Fit(right, batchable, len(seen))

    def _end(self, node: Node) -> int:
        """Return the bit of the owner of the parameter that a node stands for; 0 if it stands for none."""
        leaf = getattr(node, "variable", None)
        if leaf is None or not _is_parameter(leaf, self.owners):
            return 0
        if id(leaf) not in self.owners:
            return _NOBODY
        self._ends[node] = _bit(self.owners[id(leaf)])
        return self._ends[node]

    def _above(self, root: Node) -> int:
        """Return the bits of the owners of all parameters above a node."""
        bits = 0
        for node in _nodes([root]):
            bits |= self._ends.get(node) or self._end(node)
        return bits

    def _all_batchable(self, nodes: Iterable[Node]) -> bool:
        kinds = {*map(type, nodes)}
        if not kinds <= self._batchable:
            self._batchable |= {kind for kind in kinds if kind.__name__ in _BATCHABLE}
        return kinds <= self._batchable

    def __getstate__(self) -> dict[str, Any]:
        """Return what can be copied and pickled, without the nodes."""
        return {**self.__dict__, "_ends": {}}


def _bit(owner: int | None) -> int:
    return _SHARED if owner is None else 4 << owner


def _is_parameter(leaf: Tensor, owners: Owners) -> bool:
    """Return whether a leaf is to be trained; inputs of which a loss wants the derivative are not."""
    return id(leaf) in owners or isinstance(leaf, nn.Parameter)


def _nodes(roots: Iterable[Node]) -> set[Node]:
    seen: set[Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return seen


def changed_in_place(features: Tensor, loss: Tensor) -> bool:
    """Return whether a head has changed the features in place, so that a loss reads what they were before."""
    if features._version == 0 or reached(loss, features).through:
        return False
    common = _nodes([features.grad_fn]) & _nodes([loss.grad_fn])
    return any(node.next_functions for node in common)


def graph_bytes(losses: Iterable[Tensor]) -> int:
    """Return about how much memory the graph of losses holds: that of the values that went through its nodes."""
    outputs = [entry for node in _nodes(loss.grad_fn for loss in losses) for entry in node._input_metadata]
    return sum(math.prod(map(int, entry.shape)) * entry.dtype.itemsize for entry in outputs)


def is_compiled(losses: Iterable[Tensor]) -> bool:
    """Return whether a compiled network is part of the graph of losses; its graph may give up its buffers."""
    return any("CompiledFunction" in node.name() for node in _nodes(loss.grad_fn for loss in losses))


@dataclass
class Reached:
    """Parts of the graph above some tensor: the leaves, the kinds of nodes, and whether it goes through `features`.

    A compiled network is one node with many outputs: what is `hidden` behind such a node may concern another output.
    """

    leaves: dict[int, Tensor] = field(default_factory=dict)
    hidden: dict[int, Tensor] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    through: bool = False
    beside: bool = False  # another output of the node that made the features is read

    def everything(self) -> dict[int, Tensor]:
        return self.leaves | self.hidden


def reached(root: Tensor, features: Tensor | None = None) -> Reached:
    """Walk the graph above `root`; where it comes to `features`, it goes no further."""
    result = Reached()
    stop = None if features is None else (features.grad_fn, features.output_nr)
    seen: set[Node] = set()
    opaque: list[tuple[Node, int]] = []

    for leaves, waiting in ((result.leaves, [(root.grad_fn, root.output_nr)]), (result.hidden, opaque)):
        while waiting:
            edge = waiting.pop()
            if edge == stop:
                result.through = True
                continue

            node = edge[0]
            if node is None or node in seen:
                continue
            seen.add(node)
            result.kinds.add(node.name())
            result.beside |= stop is not None and node is stop[0]

            leaf = getattr(node, "variable", None)
            if leaf is not None:
                leaves[id(leaf)] = leaf
            mixes = issubclass(type(node), BackwardCFunction) and len(node._input_metadata) > 1
            (opaque if mixes else waiting).extend(node.next_functions)

    return result


def check_loss(loss: Tensor, task: int, names: Sequence[str], owners: Owners, features: Tensor | None) -> None:
    """Raise `UserError` where the gradient of a loss would not be what its user means.

    Args:
        task: Its position among `names`.
        owners: The tasks that own the parameters.
        features: What the task's head reads, if it was handed over.
    """
    name, graph = names[task], reached(loss, features)
    everything = {key: leaf for key, leaf in graph.everything().items() if _is_parameter(leaf, owners)}
    shared = [leaf for key, leaf in everything.items() if owners.get(key, task) is None]

    if features is not None and graph.beside and not graph.through:
        raise UserError(
            f"the loss of task {name} and the features come out of one compiled or custom function, which keeps to "
            "itself how they are connected: leave features out, or compile the shared part alone"
        )
    if features is not None and not graph.through:
        raise UserError(
            f"the loss of task {name} does not depend on the features: hand over those of the same forward pass"
        )
    if features is not None and shared:
        raise UserError(
            f"the loss of task {name} depends on a shared parameter {_shape(shared[0])} beside the features; leave "
            "features out"
        )
    if features is None and None in owners.values() and not shared:
        raise UserError(
            f"the loss of task {name} does not depend on the shared parameters: compute it with the network whose "
            f"parameters are given as shared{_hidden_in_checkpoint(graph)}"
        )

    for key, leaf in everything.items():
        owner = owners.get(key, _COMMON)
        if owner == _COMMON:
            raise UserError(
                f"the loss of task {name} depends on a parameter {_shape(leaf)} that is neither in shared nor in "
                "heads; add it, or set its requires_grad to False"
            )
        if owner is not None and owner != task and key in graph.leaves:
            tasks = {owners[key] for key in graph.leaves if owners.get(key) is not None}
            if graph.kinds & _PICKED and graph.kinds & _JOINED and len(tasks) == len({*owners.values()} - {None}):
                raise UserError(
                    f"the loss of task {name} depends on the heads of all tasks, as every part of torch.stack(losses) "
                    "does: give a list of losses"
                )
            mend = "; put it into shared" if task in tasks else ": are heads and losses in one order?"
            raise UserError(
                f"the loss of task {name} depends on a parameter {_shape(leaf)} of the head of task {names[owner]}"
                f"{mend}"
            )


def _hidden_in_checkpoint(graph: Reached) -> str:
    if "CheckpointFunctionBackward" in graph.kinds:
        return "; checkpoint hides parameters with use_reentrant=True, set it to False"
    return ""


def check_features(features: Tensor, owners: Owners) -> None:
    """Raise `UserError` where features do not come from shared parameters alone."""
    graph = reached(features)
    parameters = {key: leaf for key, leaf in graph.everything().items() if _is_parameter(leaf, owners)}
    if not any(owners.get(key, _COMMON) is None for key in parameters):
        raise UserError(
            "the features do not depend on the shared parameters: hand over the output of the shared part"
            f"{_hidden_in_checkpoint(graph)}"
        )
    for key, leaf in parameters.items():
        owner = owners.get(key, _COMMON)
        if owner == _COMMON or (owner is not None and key in graph.leaves):
            raise UserError(f"the features depend on a parameter {_shape(leaf)} that is not in shared; add it")


def _shape(parameter: Tensor) -> str:
    return f"of shape {list(parameter.shape)}"
