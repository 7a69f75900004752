"""The encoders of text without recurrence or convolutions: what they compute, and that padding is not read."""

import pytest
import torch
from torch.nn import functional as F

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.encoders import EncoderModule, StagedModule

NAMES = ("averaged", "transformer")
DOCUMENTS = [[4, 9, 3], [7], [5, 0, 6, 2, 8], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]]


def module(name: str, **options: object) -> EncoderModule:
    torch.manual_seed(0)
    suite = TaskSuite(
        name="texts", tasks=(), inputs="shared", input_kind="tokens", input_shape=(12,), vocabulary_size=50
    )
    recipe = build("encoders", name, {"dimensions": 8, "dropout": 0.0, **options})
    encoder = recipe.build(suite).double()
    assert isinstance(encoder, StagedModule) and len(encoder.stages) == len(encoder.widths) == recipe.stage_count
    return encoder


def padded(documents: list[list[int]], length: int) -> torch.Tensor:
    return torch.tensor([document + [0] * (length - len(document)) for document in documents])


@pytest.mark.parametrize("name", NAMES)
def test_each_document_is_read_alone_and_without_its_padding(name):
    encoder = module(name)
    together = encoder(padded(DOCUMENTS, 12))
    assert together.shape == (4, encoder.features)
    for document, features in zip(DOCUMENTS, together, strict=True):
        torch.testing.assert_close(encoder(torch.tensor([document]))[0], features)


def test_the_mean_of_word_vectors_goes_through_the_layers():
    encoder = module("averaged", hidden=[5])
    (layer, *_), embedding = encoder.stages[1], encoder.stages[0].embedding
    expected = F.relu(F.linear(embedding(torch.tensor(DOCUMENTS[0])).mean(0), layer.weight, layer.bias))
    torch.testing.assert_close(encoder(padded(DOCUMENTS, 12))[0], expected)


def test_a_block_is_torch_s_encoder_layer():
    encoder = module("transformer", layers=2, heads=2, inner=6)
    below, *blocks = encoder.stages
    for document in DOCUMENTS:
        values = below(torch.tensor([document]))
        for block in blocks:
            layer = torch.nn.TransformerEncoderLayer(8, 2, 6, 0.0, "gelu", batch_first=True, norm_first=True).double()
            state = {"self_attn.in_proj_weight": block.asked.weight, "self_attn.in_proj_bias": block.asked.bias}
            for theirs, ours in (
                ("self_attn.out_proj", block.joined), ("linear1", block.layer[0]), ("linear2", block.layer[2]),
                ("norm1", block.before_attention), ("norm2", block.before_layer),
            ):  # fmt: skip
                state |= {f"{theirs}.weight": ours.weight, f"{theirs}.bias": ours.bias}
            layer.load_state_dict(state)
            values = layer(values)
        found = encoder(padded([document], 12))[0]
        torch.testing.assert_close(found, F.layer_norm(values[0].mean(0), (8,)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_document_has_finite_features_and_gradients(name):
    encoder = module(name)
    features = encoder(torch.zeros(2, 12, dtype=torch.int64))
    features.square().sum().backward()
    assert features.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())
    assert not encoder.stages[0].embedding.weight.grad[0].any()


def test_mistakes_are_named():
    with pytest.raises(UserError, match="no multiple of heads"):
        module("transformer", heads=3)
    vectors = TaskSuite(name="numbers", tasks=(), inputs="shared", input_kind="vector", input_shape=(3,))
    with pytest.raises(UserError, match="averaged reads tokens, numbers has vector"):
        build("encoders", "averaged").build(vectors)
