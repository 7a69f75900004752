"""Uses of shared parameters in a forward pass, read off autograd's graph.

So nothing a model does with them goes unseen: a module called twice, a weight used by two layers, a function that is no
layer.

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
_TURNED = ("TBackward0", "TransposeBackward0", "PermuteBackward0")  # transpositions between a parameter and its use
_ACCUMULATE = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True)
class LinearLayer:
    """Linear layer Y = X Wᵀ + b with X [n, i]."""

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
    """Convolution over one or two axes, as a linear layer of its patches [B · positions, C · kernel]."""

    node: Node

    @property
    def rows(self) -> int:
        """The number of samples times positions of the output."""
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
    """Embedding: rows of a table by their ids [n]."""

    node: Node

    @property
    def rows(self) -> int:
        return int(self.node._saved_indices.numel())

    def inputs(self) -> Tensor:
        ids: Tensor = self.node._saved_indices.flatten()
        return ids

    def deltas(self, found: Tensor) -> Tensor:
        """Return the deltas, with zeros for the padding."""
        found = found.flatten(1, -2)
        padding = self.node._saved_padding_idx
        return found if padding < 0 else found * (self.inputs() != padding).unsqueeze(-1)


Use = LinearLayer | Convolution | Embedding


@dataclass(frozen=True)
class Layer:
    """Layer by the positions of its weight and bias among the shared parameters, with all uses of them.

    The uses are of the same kind; there is more than one where a module is called twice or layers share a weight.
    """

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
        """The edges at which the gradients of the uses' outputs arrive."""
        return [GradientEdge(use.node, 0) for use in self.uses]

    def inputs(self) -> Tensor:
        """Return X [n, i] with a column of ones for the bias, or the ids [n], of all uses."""
        parts = [use.inputs() for use in self.uses]
        stacked = parts[0] if len(parts) == 1 else torch.cat(parts)
        return stacked if self.bias is None else torch.cat([stacked, stacked.new_ones(len(stacked), 1)], 1)

    def deltas(self, found: Sequence[Tensor]) -> Tensor:
        """Return [T, n, o] from the gradients at the edges, which have a dimension of tasks in front."""
        parts = [use.deltas(gradient) for use, gradient in zip(self.uses, found, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def read_layers(root: Tensor, shared: Sequence[Tensor]) -> list[Layer]:
    """Return the known layers above `root` whose parameters are shared, in the order of their weights.

    Return none where a shared parameter has a hook, which wants to see the gradients.
    """
    if root.grad_fn is None or any(parameter._backward_hooks for parameter in shared):
        return []

    consumers = _consumers(root.grad_fn)
    index_of = {id(parameter): index for index, parameter in enumerate(shared)}
    uses_of: dict[int, list[tuple[Node, str]] | None] = {}
    for node in list(consumers):
        if node.name() == _ACCUMULATE and id(node.variable) in index_of:
            uses_of[index_of[id(node.variable)]] = _uses(node, consumers)

    bias_of = {
        id(node): index for index, weight_uses in uses_of.items() for node, part in weight_uses or () if part == "bias"
    }

    layers = []
    for index, weight_uses in sorted(uses_of.items()):
        if weight_uses and {part for _, part in weight_uses} in ({"weight"}, {"weight turned"}):
            layer = _layer(index, weight_uses, bias_of, shared)
            if layer is not None and (layer.bias is None or len(uses_of[layer.bias] or ()) == len(weight_uses)):
                layers.append(layer)

    return layers


def uses(root: Tensor, leaves: Sequence[Tensor]) -> list[int]:
    """Return how many nodes of the graph above `root` take each leaf."""
    index_of, counts = {id(leaf): index for index, leaf in enumerate(leaves)}, [0] * len(leaves)
    for node, users in _consumers(root.grad_fn).items():
        if node.name() == _ACCUMULATE and id(node.variable) in index_of:
            counts[index_of[id(node.variable)]] = len(users)
    return counts


def _consumers(root: Node) -> dict[Node, list[tuple[Node, int]]]:
    """Return node -> the nodes that use its output, and at which input; empty for too many nodes."""
    consumers: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
    consumers[root], waiting = [], [root]

    while waiting:
        node = waiting.pop()
        for slot, (before, _) in enumerate(node.next_functions):
            if before is None:
                continue
            if before not in consumers:
                waiting.append(before)
            consumers[before].append((node, slot))

        if len(consumers) > _MOST_NODES:
            return {}

    return consumers


def _uses(node: Node, consumers: dict[Node, list[tuple[Node, int]]]) -> list[tuple[Node, str]] | None:
    """Return the nodes that use a parameter, with its role in each; None where one of them is not known."""
    parameter_uses: list[tuple[Node, str]] = []
    for user, slot in consumers[node]:
        name = user.name()
        if name in _TURNED or name == "ToCopyBackward0":
            inner_uses = _uses(user, consumers)
            if inner_uses is None:
                return None
            parameter_uses += [
                (inner_user, part + " turned" if name in _TURNED else part) for inner_user, part in inner_uses
            ]
            continue

        part = _part(user, name, slot)
        if part is None:
            return None

        parameter_uses.append((user, part))

    return parameter_uses


def _part(node: Node, name: str, slot: int) -> str | None:
    """Return whether a node's input is the "weight" or the "bias" of a layer of a known kind; None if neither."""
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
    """Return the layer of these uses of a weight; None where they do not fit together."""
    nodes = [node for node, _ in found]
    names, biases = {node.name() for node in nodes}, {bias_of.get(id(node)) for node in nodes}
    if len(names) > 1 or len(biases) > 1:
        return None

    (name,), (bias,), turned = names, biases, found[0][1] != "weight"
    if turned and name not in ("AddmmBackward0", "MmBackward0"):
        return None
    if bias is None and name in ("AddmmBackward0", "ConvolutionBackward0") and any(_has_bias(node) for node in nodes):
        return None  # it is trained, but is no bias among the shared parameters

    shape, size = shared[weight].shape, shared[weight].numel()
    if name == "EmbeddingBackward0":
        return Layer(weight, None, [Embedding(node) for node in nodes], int(shape[0]), int(shape[1]))

    kind = Convolution if name == "ConvolutionBackward0" else LinearLayer
    layer_uses: list[Use] = [kind(node) for node in nodes]
    outputs = int(shape[0]) if kind is Convolution else size // int(layer_uses[0].inputs().shape[1])
    return Layer(weight, bias, layer_uses, size // outputs + (bias is not None), outputs)


def _has_bias(node: Node) -> bool:
    """Return whether gradients flow to what is added."""
    slot = 0 if node.name() == "AddmmBackward0" else 2
    return node.next_functions[slot][0] is not None


def targets_of(layers: Iterable[Layer]) -> Iterator[int]:
    """Yield the positions of the parameters that the layers account for."""
    for layer in layers:
        yield layer.weight
        if layer.bias is not None:
            yield layer.bias
