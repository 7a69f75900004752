"""Fast TextCNN step on a CPU: embedding, parallel convolutions, ReLU and maximum over time in one function.

Two facts make it cheap. First, a convolution over embeddings is a table lookup and a sum: with one product of the
*distinct* tokens' vectors and the filters, the output at time t is the sum of `width` rows of that table. Second, the
maximum over time sends its gradient to one window per filter and document, so the gradients of filters and word vectors
are sums over those windows alone. Forward and backward compute what `nn.Conv1d` computes, in another order of
summation; nothing is approximated.

Padding is id 0. Rows of a table, and of the gradients, are numbered by (width, offset inside the filter, filter)
throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mtlscale.data.format.sequences import lengths

# The next two numbers are per thread, so that the number of parallel sections, each with a barrier, does not grow with
# the threads. One BLAS call over all distinct tokens runs at two thirds of the speed of calls over as many as stay in
# cache.
PRODUCT_ROWS = 512
# Elements of the convolution held at once: the outputs of some documents, so that the maximum reads them from cache.
POOL_ELEMENTS = 2**19
# Terms of a gradient summed one after another.
SUM_TERMS = 512
# Multiplications of the plain convolution below which a handful of small operations costs more than it saves.
SMALLEST = 2**23


def is_faster(tokens: Tensor, embedding: Tensor, weights: Sequence[Tensor]) -> bool:
    """Return True if `text_features` beats `plain_text_features` on these operands: a CPU, and enough to do."""
    return (
        embedding.device.type == "cpu"
        and embedding.dtype in (torch.float32, torch.float64)
        and tokens.numel() * sum(weight.numel() for weight in weights) >= SMALLEST
        and not torch._C._are_functorch_transforms_active()  # the distinct tokens of a vmapped batch have no fixed size
    )


def plain_text_features(
    tokens: Tensor, embedding: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], sparse: bool = False
) -> Tensor:
    """Return TextCNN features [B, sum of F] by `conv1d`.

    Args:
        tokens: Token ids [B, L].
        embedding: Word vectors [V, D].
        weights: Filters [F, D, w] of each width.
        biases: Biases [F] of each width.
        sparse: Whether the gradient of `embedding` is sparse.
    """
    embedded = F.embedding(tokens, embedding, padding_idx=0, sparse=sparse).transpose(1, 2)
    pooled = [F.conv1d(embedded, w, b).max(dim=2).values for w, b in zip(weights, biases, strict=True)]
    return torch.cat(pooled, dim=1).relu()  # the order of ReLU and maximum does not matter, and this one is cheaper


def text_features(
    tokens: Tensor, embedding: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], sparse: bool = False
) -> Tensor:
    """Return the same features and gradients as `plain_text_features`, by distinct tokens and winning windows.

    Among equal windows the first wins, in both. Gradients may be differentiated again.

    Args:
        tokens: Token ids [B, L].
        embedding: Word vectors [V, D].
        weights: Filters [F, D, w] of each width.
        biases: Biases [F] of each width.
        sparse: Whether the gradient of `embedding` is a coalesced sparse tensor over the distinct tokens of the batch.
    """
    features: Tensor = _TextFeatures.apply(tokens, embedding, sparse, *weights, *biases)  # type: ignore[no-untyped-call]
    return features


class _TextFeatures(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, tokens: Tensor, embedding: Tensor, sparse: bool, *parameters: Tensor) -> Tensor:
        half = len(parameters) // 2
        distinct, inverse = torch.unique(tokens, return_inverse=True)
        distinct, inverse = distinct.long(), inverse.int()
        vectors = embedding[distinct]

        windows = _windows(tokens)
        pooled, winners = zip(
            *(
                _convolve_and_pool(vectors, inverse, weight, bias, *windows)
                for weight, bias in zip(parameters[:half], parameters[half:], strict=True)
            ),
            strict=True,
        )

        features = torch.cat(pooled, dim=1).relu_()
        ctx.sparse = sparse
        ctx.save_for_backward(distinct, inverse, features, embedding, *parameters, *winners)
        return features

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        distinct, inverse, features, embedding, *per_width = ctx.saved_tensors
        third = len(per_width) // 3
        weights, biases, winners = per_width[:third], per_width[third : 2 * third], per_width[2 * third :]
        filters = [len(bias) for bias in biases]
        active = gradient.masked_fill(features <= 0, 0).t().contiguous().split(filters)  # per width [F, B]
        sums = [part.sum(dim=1) for part in active]
        ids = torch.cat([_winning_tokens(inverse, best, w.shape[2]) for best, w in zip(winners, weights, strict=True)])
        scale = torch.cat([part.repeat(w.shape[2], 1) for part, w in zip(active, weights, strict=True)])

        vectors = embedding[distinct]
        rows = F.embedding_bag(ids, vectors, mode="sum", per_sample_weights=scale)
        sizes = [w.shape[2] * len(w) for w in weights]
        filter_gradients = [
            part.view(w.shape[2], len(w), -1).permute(1, 2, 0)
            for part, w in zip(rows.split(sizes), weights, strict=True)
        ]

        word_gradient = None
        if ctx.needs_input_grad[1]:
            token_indices, totals = _word_gradient(ids, scale, torch.cat([_filter_rows(w) for w in weights]))
            word_gradient = _scatter(distinct[token_indices], totals, len(embedding), ctx.sparse)
        return None, word_gradient, None, *filter_gradients, *sums


def _filter_rows(weight: Tensor) -> Tensor:
    """Return filters [F, D, w] as the rows [w * F, D] of a matrix."""
    return weight.permute(2, 0, 1).reshape(-1, weight.shape[1])


def _windows(tokens: Tensor) -> tuple[Tensor, list[int]]:
    """Return the order of documents from long to short, and how many windows of each differ, in that order."""
    descending, order = lengths(tokens).sort(descending=True)
    # Windows after the last token hold padding alone; the first one stands for all of them.
    return order, (descending + 1).tolist()


def _table(vectors: Tensor, weight: Tensor) -> Tensor:
    """Return products [U * w, F] of vectors [U, D] and filters [F, D, w]: row u * w + j is token u at offset j."""
    rows = _filter_rows(weight).t()
    table = vectors.new_empty(len(vectors), rows.shape[1])
    block = PRODUCT_ROWS * torch.get_num_threads()
    for part, out in zip(vectors.split(block), table.split(block), strict=True):
        torch.mm(part, rows, out=out)
    return table.view(-1, weight.shape[0])


def _convolve_and_pool(
    vectors: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor, order: Tensor, windows: list[int]
) -> tuple[Tensor, Tensor]:
    """Return the maximum over time [B, F] of one convolution, and the first time [B, F] that reaches it."""
    documents, length = inverse.shape
    filters, _, width = weight.shape
    table = _table(vectors, weight)
    offsets = torch.arange(width, dtype=inverse.dtype)

    values = vectors.new_empty(documents, filters)
    winners = torch.empty(documents, filters, dtype=torch.int64)
    step = max(1, POOL_ELEMENTS * torch.get_num_threads() // (length * filters))

    for start in range(0, documents, step):
        times = min(windows[start], length - width + 1)
        index = order[start : start + step]
        starts = inverse[index].unfold(1, width, 1)[:, :times]
        sums = F.embedding_bag((starts * width + offsets).reshape(-1, width), table, mode="sum")
        # As an image in channels-last layout, for which pooling with indices is vectorised over the filters.
        image = sums.view(-1, times, 1, filters).permute(0, 3, 1, 2)
        maxima, times_of_maxima = F.max_pool2d(image, (times, 1), return_indices=True)
        values[index] = maxima.flatten(1)
        winners[index] = times_of_maxima.flatten(1)

    return values.add_(bias), winners


def _winning_tokens(inverse: Tensor, winners: Tensor, width: int) -> Tensor:
    """Return the indices [width * F, B] among the distinct tokens of those in the winning windows [B, F]."""
    documents, length = inverse.shape
    start = winners.t().contiguous() + torch.arange(documents) * length
    positions = start + torch.arange(width)[:, None, None]
    return inverse.view(-1)[positions].view(-1, documents)


def _word_gradient(ids: Tensor, scale: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct tokens [W] in winning windows, and the gradient [W, D] of their vectors."""
    flat, order = ids.flatten().sort(stable=True)
    begins = F.pad(flat[1:] != flat[:-1], (1, 0))
    # Frequent tokens have tens of thousands of terms: sums in pieces keep pairwise rounding errors.
    begins[::SUM_TERMS] = True
    starts = begins.nonzero().flatten()

    filter_rows = torch.div(order, ids.shape[1], rounding_mode="floor")
    pieces = F.embedding_bag(filter_rows, rows, starts, mode="sum", per_sample_weights=scale.reshape(-1)[order])

    token_indices, counts = flat[starts].unique_consecutive(return_counts=True)
    return token_indices, F.embedding_bag(torch.arange(len(pieces)), pieces, counts.cumsum(0) - counts, mode="sum")


def _scatter(words: Tensor, gradient: Tensor, size: int, sparse: bool) -> Tensor:
    """Return gradient rows [W, D] of words in ascending order as the embedding's gradient [V, D]; padding gets none."""
    padding = int(words[0] == 0)
    words, gradient = words[padding:], gradient[padding:]
    shape = (size, gradient.shape[1])
    if sparse:
        return torch.sparse_coo_tensor(words[None], gradient, shape, check_invariants=False, is_coalesced=True)
    return gradient.new_zeros(shape).index_copy_(0, words.long(), gradient)
