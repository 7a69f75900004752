"""LSTM and BiLSTM encoders: sizes, poolings, and that padding is not read."""

import itertools

import pytest
import torch

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.encoders import EncoderModule

SIZES = {"lstm": 200, "bilstm": 64}


def module(name: str, length: int = 12, **options: object) -> EncoderModule:
    torch.manual_seed(0)
    suite = TaskSuite(
        name="texts", tasks=(), inputs="shared", input_kind="tokens", input_shape=(length,), vocabulary_size=50
    )
    return build("encoders", name, {"dimensions": 8, **options}).build(suite).double()


def padded(documents: list[list[int]], length: int) -> torch.Tensor:
    return torch.tensor([document + [0] * (length - len(document)) for document in documents])


DOCUMENTS = [[4, 9, 3], [7], [5, 0, 6, 2, 8], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]]


@pytest.mark.parametrize(("name", "pooling"), itertools.product(SIZES, ("last", "max", "mean")))
def test_each_document_is_read_alone_and_without_its_padding(name, pooling):
    encoder = module(name, pooling=pooling)
    together = encoder(padded(DOCUMENTS, 12))
    assert together.shape == (len(DOCUMENTS), encoder.features) == (4, SIZES[name])
    for document, features in zip(DOCUMENTS, together, strict=True):
        outputs, (states, _) = encoder.lstm(encoder.embedding(torch.tensor([document])))
        if pooling == "max":
            expected = outputs[0].amax(dim=0)
        elif pooling == "mean":
            expected = outputs[0].mean(dim=0)
        else:
            expected = states[-2:].flatten() if name == "bilstm" else states[-1, 0]
        torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("name", SIZES)
def test_an_empty_document_has_finite_features_and_gradients(name):
    encoder = module(name, pooling="max")
    features = encoder(torch.zeros(2, 12, dtype=torch.int64))
    features.sum().backward()
    assert features.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())
    assert not encoder.embedding.weight.grad[0].any()


def test_defaults_are_the_published_ones():
    lstm, bilstm = module("lstm").lstm, module("bilstm").lstm
    assert (lstm.num_layers, lstm.hidden_size, lstm.bidirectional) == (1, 200, False)
    assert (bilstm.num_layers, bilstm.hidden_size, bilstm.bidirectional) == (2, 32, True)


def test_sparse_gradient_equals_the_dense_one():
    found = []
    for flag in (False, True):
        encoder = module("bilstm")
        encoder.embedding.sparse = flag
        encoder(padded(DOCUMENTS, 12)).sum().backward()
        found.append(encoder.embedding.weight.grad)
    assert found[1].is_sparse
    torch.testing.assert_close(found[1].to_dense(), found[0])


@pytest.mark.parametrize("name", SIZES)
def test_other_inputs_are_refused(name):
    suite = TaskSuite(name="numbers", tasks=(), inputs="shared", input_kind="vector", input_shape=(3,))
    with pytest.raises(UserError, match=f"{name} reads tokens, numbers has vector"):
        build("encoders", name, {}).build(suite)
