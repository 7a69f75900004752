"""The fast TextCNN function is `nn.Conv1d`'s: values and all gradients, at any shape, with ties and padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mtlscale.encoders.text import _textcnn_fast
from mtlscale.encoders.text._textcnn_fast import is_faster, text_features

LIMIT = {torch.float64: 1e-10, torch.float32: 1e-5}


def reference(tokens: Tensor, embedding: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """The textbook TextCNN out of `nn.Embedding` and `nn.Conv1d`, ReLU before the maximum."""
    embedded = nn.functional.embedding(tokens, embedding, padding_idx=0).transpose(1, 2)
    pooled = []
    for weight, bias in zip(weights, biases, strict=True):
        convolution = nn.Conv1d(weight.shape[1], weight.shape[0], weight.shape[2])
        del convolution.weight, convolution.bias
        convolution.weight, convolution.bias = weight, bias
        pooled.append(convolution(embedded).relu().max(dim=2).values)
    return torch.cat(pooled, dim=1)


def operands(
    seed: int, vocabulary: int, dimensions: int, filters: int, widths: tuple[int, ...], dtype: torch.dtype
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    return [
        leaf(vocabulary, dimensions),
        *(leaf(filters, dimensions, width) for width in widths),
        *(leaf(filters) for _ in widths),
    ]


def call(function, tokens: Tensor, parameters: list[Tensor], **options: bool) -> Tensor:
    half = (len(parameters) + 1) // 2
    return function(tokens, parameters[0], parameters[1:half], parameters[half:], **options)


def documents(seed: int, count: int, length: int, vocabulary: int) -> Tensor:
    """Padded documents of every length, empty ones included."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocabulary, (count, length), generator=generator)
    lengths = torch.randint(0, length + 1, (count, 1), generator=generator)
    return torch.where(torch.arange(length) < lengths, tokens, 0)


def assert_same_function(tokens: Tensor, parameters: list[Tensor], seed: int = 0) -> None:
    limit = LIMIT[parameters[0].dtype]
    expected, found = call(reference, tokens, parameters), call(text_features, tokens, parameters)
    assert (found - expected).abs().max() <= limit * expected.abs().max()
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(seed)).to(expected)
    gradients = zip(
        torch.autograd.grad(expected, parameters, direction),
        torch.autograd.grad(found, parameters, direction),
        strict=True,
    )
    for right, ours in gradients:
        assert ours.shape == right.shape
        assert (ours - right).abs().max() <= limit * right.abs().max()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    count=st.integers(1, 9),
    length=st.integers(7, 20),
    vocabulary=st.integers(2, 40),
    dimensions=st.integers(1, 9),
    filters=st.integers(1, 9),
    widths=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
)
def test_equals_conv1d_in_double_precision(seed, count, length, vocabulary, dimensions, filters, widths):
    parameters = operands(seed, vocabulary, dimensions, filters, widths, torch.float64)
    assert_same_function(documents(seed, count, length, vocabulary), parameters, seed)


def test_equals_conv1d_in_single_precision():
    parameters = operands(0, 500, 50, 20, (3, 5, 7), torch.float32)
    assert_same_function(documents(0, 32, 100, 500), parameters)


@pytest.mark.parametrize("block", ["PRODUCT_ROWS", "POOL_ELEMENTS", "SUM_TERMS"])
@pytest.mark.parametrize("size", [1, 7])
def test_block_sizes_do_not_matter(monkeypatch, block, size):
    monkeypatch.setattr(_textcnn_fast, block, size)
    parameters = operands(1, 30, 6, 4, (2, 3), torch.float64)
    assert_same_function(documents(1, 12, 15, 30), parameters)


def test_equal_windows_give_the_gradient_to_the_first():
    """With one-dimensional words of equal value, windows of different words tie."""
    parameters = operands(2, 6, 1, 3, (2,), torch.float64)
    with torch.no_grad():
        parameters[0][1:] = 1.0
        parameters[-1].fill_(10.0)  # every filter is active
    tokens = torch.tensor([[3, 4, 5, 3, 4, 5], [5, 4, 3, 2, 1, 0]])
    assert_same_function(tokens, parameters)
    (gradient,) = torch.autograd.grad(call(text_features, tokens, parameters).sum(), parameters[:1])
    assert gradient[3].abs() > 0
    assert gradient[2] == 0


def test_a_repeated_word_sums_its_gradients():
    parameters = operands(3, 5, 4, 3, (3, 5), torch.float64)
    assert_same_function(torch.full((4, 9), 2), parameters)


def test_padding_only_gives_the_filters_no_gradient():
    parameters = operands(4, 5, 4, 3, (3,), torch.float64)
    with torch.no_grad():
        parameters[0][0] = 0
    tokens = torch.zeros(3, 8, dtype=torch.int64)
    assert_same_function(tokens, parameters)
    features = call(text_features, tokens, parameters)
    torch.testing.assert_close(features, parameters[-1].relu().expand(3, -1))
    embedding, weight, _ = torch.autograd.grad(features.sum(), parameters)
    assert not embedding.any()
    assert not weight.any()


def test_a_padding_vector_that_is_not_zero_is_read_but_not_trained():
    parameters = operands(5, 12, 4, 6, (3, 4), torch.float64)
    tokens = documents(5, 8, 12, 12)
    assert_same_function(tokens, parameters)
    (gradient,) = torch.autograd.grad(call(text_features, tokens, parameters).sum(), parameters[:1])
    assert not gradient[0].any()


def test_sparse_gradient_equals_the_dense_one_and_holds_only_words_of_the_batch():
    parameters = operands(6, 200, 5, 4, (3, 5), torch.float64)
    tokens = documents(6, 6, 20, 50)
    dense, sparse = (
        torch.autograd.grad(call(text_features, tokens, parameters, sparse=flag).sum(), parameters[:1])[0]
        for flag in (False, True)
    )
    assert sparse.is_sparse and sparse.is_coalesced()
    assert set(sparse.indices()[0].tolist()) <= set(tokens.unique().tolist()) - {0}
    assert (sparse.indices().diff() > 0).all()  # what "coalesced" promises and nobody checks
    torch.testing.assert_close(sparse.to_dense(), dense)


def test_numerical_gradients_first_and_second():
    parameters = operands(7, 7, 2, 2, (2, 3), torch.float64)
    tokens = documents(7, 3, 6, 7)

    def features(embedding: Tensor, *rest: Tensor) -> Tensor:
        words = torch.cat([torch.zeros(1, 2, dtype=torch.float64), embedding])  # padding is not trained
        return call(text_features, tokens, [words, *rest])

    inputs = (parameters[0][1:].detach().requires_grad_(), *parameters[1:])
    assert torch.autograd.gradcheck(features, inputs)
    assert torch.autograd.gradgradcheck(features, inputs)


@pytest.mark.parametrize("sparse", [False, True])
def test_token_ids_of_any_integer_type(sparse):
    parameters = operands(12, 20, 4, 3, (3, 5), torch.float64)
    tokens = documents(13, 5, 10, 20)
    wide, narrow = (
        torch.autograd.grad(call(text_features, ids, parameters, sparse=sparse).sum(), parameters)
        for ids in (tokens, tokens.int())
    )
    torch.testing.assert_close(narrow, wide, rtol=0, atol=0)


def test_two_batches_may_share_one_graph():
    parameters = operands(8, 20, 4, 3, (3, 5), torch.float64)
    first, second = documents(8, 5, 10, 20), documents(9, 7, 12, 20)

    def loss(function) -> Tensor:
        return call(function, first, parameters).square().sum() + call(function, second, parameters).sum()

    right, ours = (torch.autograd.grad(loss(f), parameters) for f in (reference, text_features))
    torch.testing.assert_close(ours, right, rtol=1e-10, atol=1e-10)


def test_frozen_parameters_get_no_gradient():
    parameters = operands(9, 20, 4, 3, (3,), torch.float64)
    parameters[0].requires_grad_(False)
    features = call(text_features, documents(10, 5, 10, 20), parameters)
    features.sum().backward()
    assert parameters[0].grad is None
    assert parameters[1].grad is not None


def test_batched_gradients_equal_one_at_a_time():
    parameters = operands(10, 20, 4, 3, (3, 5), torch.float64)
    features = call(text_features, documents(11, 5, 10, 20), parameters)
    directions = torch.randn(3, *features.shape, dtype=torch.float64)
    together = torch.autograd.grad(features, parameters, directions, is_grads_batched=True, retain_graph=True)
    for i, direction in enumerate(directions):
        alone = torch.autograd.grad(features, parameters, direction, retain_graph=True)
        torch.testing.assert_close([part[i] for part in together], list(alone))


def test_autocast_does_not_lower_its_precision():
    parameters = operands(11, 20, 4, 3, (3, 5), torch.float32)
    tokens = documents(12, 5, 10, 20)
    expected = call(text_features, tokens, parameters)
    with torch.autocast("cpu", torch.bfloat16):
        found = call(text_features, tokens, parameters)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_chosen_where_it_pays():
    tokens = torch.zeros(64, 256, dtype=torch.int64)
    words, filters = torch.empty(100, 32), [torch.empty(32, 32, 3)]
    assert is_faster(tokens, words, filters)
    assert not is_faster(tokens[:1], words, filters)
    assert not is_faster(tokens, words.bfloat16(), filters)
    assert not is_faster(tokens.to("meta"), words.to("meta"), filters)
    seen = []
    torch.func.vmap(lambda w: (seen.append(is_faster(tokens, w, filters)), w)[1])(words[None])
    assert seen == [False]
