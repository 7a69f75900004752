"""Where shared parameters take part in a forward pass: read off autograd's graph, so that nothing a model does with
them goes unseen - a module called twice, a weight used by two layers, a function that is no layer.

A layer is known where its gradient is Δᵀ X (linear layers, convolutions) or a sum of Δ's rows by id (embeddings), and
each of its parameters' uses in the graph is of that one kind. Everything else is left to be differentiated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import functional

Node = Any  # torch.autograd.graph.Node: what it saved are attributes that its type does not declare

_MOST_NODES = 4000  # walking a graph of more (a recurrence) costs more than it can save
_TURNED = ("TBackward0", "TransposeBackward0", "PermuteBackward0")  # between a parameter and its use
_ACCUMULATE = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True)
class Linear:
    """Y = X Wᵀ + b with X [n, i]."""

    node: Node

    @property
    def rows(self) -> int:
        return len(self._saved)

    def inputs(self) -> Tensor:
        return self._saved

    def deltas(self, found: Tensor) -> Tensor:
        return found.flatten(1, -2)

    @property
    def _saved(self) -> Tensor:
        saved: Tensor = self.node._saved_mat1 if self.node.name() == "AddmmBackward0" else self.node._saved_self
        return saved.detach()


@dataclass(frozen=True)
class Convolution:
    """A convolution over one or two axes as a linear layer of its patches [B · places, C · kernel]."""

    node: Node

    @property
    def rows(self) -> int:
        """Samples times places of the output."""
        shape, kernel = self.node._saved_input.shape, self.node._saved_weight.shape[2:]
        count = int(shape[0])
        for size, k, s, p, d in zip(shape[2:], kernel, *self._options, strict=True):
            count *= (size + 2 * p - d * (k - 1) - 1) // s + 1
        return count

    def inputs(self) -> Tensor:
        images, kernel = self.node._saved_input.detach(), tuple(self.node._saved_weight.shape[2:])
        stride, padding, dilation = (tuple(option) for option in self._options)
        if images.ndim == 3:
            images, kernel = images.unsqueeze(2), (1, *kernel)
            stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        return functional.unfold(images, kernel, dilation, padding, stride).mT.flatten(0, 1)

    def deltas(self, found: Tensor) -> Tensor:
        return found.flatten(3).mT.flatten(1, 2)

    @property
    def _options(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        return self.node._saved_stride, self.node._saved_padding, self.node._saved_dilation


@dataclass(frozen=True)
class Embedding:
    """Rows of a table by their ids [n]."""

    node: Node

    @property
    def rows(self) -> int:
        return int(self.node._saved_indices.numel())

    def inputs(self) -> Tensor:
        ids: Tensor = self.node._saved_indices.flatten()
        return ids

    def deltas(self, found: Tensor) -> Tensor:
        """Of the padding there are none."""
        found = found.flatten(1, -2)
        padding = self.node._saved_padding_idx
        return found if padding < 0 else found * (self.inputs() != padding).unsqueeze(-1)


Use = Linear | Convolution | Embedding


@dataclass(frozen=True)
class Layer:
    """A weight, and its bias, by their places among the shared parameters, with all that they are used for: the same
    kind of use, of which there is more than one where a module is called twice or layers share a weight."""

    weight: int
    bias: int | None
    uses: list[Use]
    fan_in: int
    fan_out: int

    @property
    def embedding(self) -> bool:
        return isinstance(self.uses[0], Embedding)

    @property
    def rows(self) -> int:
        return sum(use.rows for use in self.uses)

    @property
    def edges(self) -> list[GradientEdge]:
        """Where the gradients at the uses' outputs arrive."""
        return [GradientEdge(use.node, 0) for use in self.uses]

    def inputs(self) -> Tensor:
        """X [n, i] with a column of ones for the bias, or the ids [n], of all uses."""
        parts = [use.inputs() for use in self.uses]
        found = parts[0] if len(parts) == 1 else torch.cat(parts)
        return found if self.bias is None else torch.cat([found, found.new_ones(len(found), 1)], 1)

    def deltas(self, found: Sequence[Tensor]) -> Tensor:
        """[T, n, o] from what arrived at the edges, with a dimension of tasks in front."""
        parts = [use.deltas(at) for use, at in zip(self.uses, found, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def read_layers(root: Tensor, shared: Sequence[Tensor]) -> list[Layer]:
    """The known layers above `root` whose parameters are shared, in the order of their weights.

    None where somebody hooked a shared parameter: a hook wants to see the gradients.
    """
    if root.grad_fn is None or any(parameter._backward_hooks for parameter in shared):
        return []
    consumers = _consumers(root.grad_fn)
    place = {id(parameter): index for index, parameter in enumerate(shared)}
    uses: dict[int, list[tuple[Node, str]] | None] = {}
    for node in list(consumers):
        if node.name() == _ACCUMULATE and id(node.variable) in place:
            uses[place[id(node.variable)]] = _uses(node, consumers)
    bias_of = {id(node): index for index, found in uses.items() for node, part in found or () if part == "bias"}
    layers = []
    for index, found in sorted(uses.items()):
        if found and {part for _, part in found} in ({"weight"}, {"weight turned"}):
            layer = _layer(index, found, bias_of, shared)
            if layer is not None and (layer.bias is None or len(uses[layer.bias] or ()) == len(found)):
                layers.append(layer)
    return layers


def uses(root: Tensor, leaves: Sequence[Tensor]) -> list[int]:
    """How many nodes of the graph above `root` take each leaf."""
    place, found = {id(leaf): index for index, leaf in enumerate(leaves)}, [0] * len(leaves)
    for node, users in _consumers(root.grad_fn).items():
        if node.name() == _ACCUMULATE and id(node.variable) in place:
            found[place[id(node.variable)]] = len(users)
    return found


def _consumers(root: Node) -> dict[Node, list[tuple[Node, int]]]:
    """Each node above the root with the nodes that use its output, and the places of their inputs where they do; empty
    where there are too many."""
    found: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
    found[root], waiting = [], [root]
    while waiting:
        node = waiting.pop()
        for slot, (before, _) in enumerate(node.next_functions):
            if before is None:
                continue
            if before not in found:
                waiting.append(before)
            found[before].append((node, slot))
        if len(found) > _MOST_NODES:
            return {}
    return found


def _uses(node: Node, consumers: dict[Node, list[tuple[Node, int]]]) -> list[tuple[Node, str]] | None:
    """What a parameter is to the nodes that use it; None where one of them is not known."""
    found: list[tuple[Node, str]] = []
    for user, slot in consumers[node]:
        name = user.name()
        if name in _TURNED or name == "ToCopyBackward0":
            more = _uses(user, consumers)
            if more is None:
                return None
            found += [(at, part + " turned" if name in _TURNED else part) for at, part in more]
            continue
        part = _part(user, name, slot)
        if part is None:
            return None
        found.append((user, part))
    return found


def _part(node: Node, name: str, slot: int) -> str | None:
    """Whether a node's input is the weight or the bias of a layer of a known kind."""
    if name == "AddmmBackward0":
        plain = node._saved_alpha == 1 and node._saved_beta == 1
        return {0: "bias", 2: "weight"}.get(slot) if plain else None
    if name == "MmBackward0":
        return "weight" if slot == 1 else None
    if name == "ConvolutionBackward0":
        plain = node._saved_groups == 1 and not node._saved_transposed and node._saved_input.ndim in (3, 4)
        return {1: "weight", 2: "bias"}.get(slot) if plain else None
    if name == "EmbeddingBackward0":
        return None if node._saved_scale_grad_by_freq else "weight"
    return None


def _layer(
    weight: int, found: list[tuple[Node, str]], bias_of: dict[int, int], shared: Sequence[Tensor]
) -> Layer | None:
    """The layer of these uses of a weight; None where they do not fit together."""
    nodes = [node for node, _ in found]
    names, biases = {node.name() for node in nodes}, {bias_of.get(id(node)) for node in nodes}
    if len(names) > 1 or len(biases) > 1:
        return None
    (name,), (bias,), turned = names, biases, found[0][1] != "weight"
    if turned and name not in ("AddmmBackward0", "MmBackward0"):
        return None
    if bias is None and name in ("AddmmBackward0", "ConvolutionBackward0") and any(_has_bias(node) for node in nodes):
        return None  # it learns, but is nobody's bias here
    shape, most = shared[weight].shape, shared[weight].numel()
    if name == "EmbeddingBackward0":
        return Layer(weight, None, [Embedding(node) for node in nodes], int(shape[0]), int(shape[1]))
    kind = Convolution if name == "ConvolutionBackward0" else Linear
    uses: list[Use] = [kind(node) for node in nodes]
    outputs = int(shape[0]) if kind is Convolution else most // int(uses[0].inputs().shape[1])
    return Layer(weight, bias, uses, most // outputs + (bias is not None), outputs)


def _has_bias(node: Node) -> bool:
    """Whether gradients flow to what is added."""
    slot = 0 if node.name() == "AddmmBackward0" else 2
    return node.next_functions[slot][0] is not None


def targets_of(layers: Iterable[Layer]) -> Iterator[int]:
    """Places of the parameters that the layers account for."""
    for layer in layers:
        yield layer.weight
        if layer.bias is not None:
            yield layer.bias
