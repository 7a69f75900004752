"""The TextCNN encoder: one set of parameters behind two ways to compute it."""

import pytest
import torch
from torch import nn

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.encoders import EncoderModule
from mtlscale.encoders.text import textcnn as textcnn_module


def suite(kind: str = "tokens", length: int = 64, vocabulary: int | None = 300) -> TaskSuite:
    return TaskSuite(
        name="texts", tasks=(), inputs="shared", input_kind=kind, input_shape=(length,), vocabulary_size=vocabulary
    )


def module(seed: int = 0, **options: object) -> EncoderModule:
    torch.manual_seed(seed)
    return build("encoders", "textcnn", {"dimensions": 64, "filters": 16, **options}).build(suite())


def batch(documents: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 300, (documents, 64), generator=generator)
    tokens[0] = 0
    tokens[1, 2:] = 0
    return tokens


def gradients(encoder: EncoderModule, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    encoder.zero_grad()
    encoder(tokens).square().sum().backward()
    return {name: parameter.grad for name, parameter in encoder.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_paths_share_parameters_and_results(monkeypatch, dtype):
    chosen = []
    fast = textcnn_module.text_features
    monkeypatch.setattr(textcnn_module, "text_features", lambda *operands: chosen.append(True) or fast(*operands))
    first, second = module(0).to(dtype), module(1).to(dtype)
    second.load_state_dict(first.state_dict())
    ours = gradients(first, batch())
    assert chosen
    with monkeypatch.context() as plain:
        plain.setattr(textcnn_module, "is_faster", lambda *operands: False)
        right = gradients(second, batch())
    assert len(chosen) == 1
    assert (
        ours.keys()
        == right.keys()
        == {"embedding.weight", *(f"convolutions.{i}.{p}" for i in range(3) for p in ("weight", "bias"))}
    )
    for name, gradient in right.items():
        error = (ours[name] - gradient).abs().max() / gradient.abs().max()
        assert error <= (1e-5 if dtype == torch.float32 else 1e-10), name


def test_is_the_textbook_network():
    encoder = module()
    embedded = encoder.embedding(batch()).transpose(1, 2)
    expected = torch.cat([conv(embedded).relu().amax(dim=2) for conv in encoder.convolutions], dim=1)
    torch.testing.assert_close(encoder(batch()), expected)
    assert expected.shape == (32, encoder.features) == (32, 48)


@pytest.mark.parametrize("documents", [1, 32])
def test_sparse_gradient_equals_the_dense_one_on_both_paths(documents):
    encoders = [module(), module()]
    encoders[1].embedding.sparse = True
    dense, sparse = (gradients(encoder, batch(documents + 1)[1:]) for encoder in encoders)
    assert sparse["embedding.weight"].is_sparse
    for name in dense:
        torch.testing.assert_close(sparse[name].to_dense(), dense[name])


def test_initialisation_follows_the_seed():
    first, again, other = (module(seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_padding_stays_zero_under_training():
    encoder = module()
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.1)
    encoder(batch()).sum().backward()
    optimiser.step()
    assert not encoder.embedding.weight[0].any()


def test_many_models_in_one_vmap():
    models, tokens = [module(seed) for seed in range(3)], batch()

    def features(parameters: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(models[0], (parameters, buffers), (tokens,))

    together = torch.func.vmap(features)(*torch.func.stack_module_state(models))
    torch.testing.assert_close(together, torch.stack([model(tokens) for model in models]))


def test_dropout_acts_on_the_features_in_training_only():
    encoder = module(dropout=0.5)
    full = encoder.eval()(batch())
    kept = encoder.train()(batch())
    assert ((kept == 0) & (full != 0)).any()
    torch.testing.assert_close(kept[kept != 0], 2 * full[kept != 0])


def test_layers_on_top_drop_in_training_only():
    recipe = build("encoders", "textcnn_mlp", {"dimensions": 4, "filters": 3, "hidden": [50, 40], "dropout": 0.5})
    for layer in recipe.build(suite()).stages[1:]:
        given = torch.randn(32, layer[0].in_features)
        full, kept = layer.eval()(given), layer.train()(given)
        assert ((kept == 0) & (full != 0)).any()
        torch.testing.assert_close(kept[kept != 0], 2 * full[kept != 0])


def test_empty_batch():
    assert module()(torch.zeros(0, 64, dtype=torch.int64)).shape == (0, 48)


@pytest.mark.parametrize(
    ("options", "of", "mistake"),
    [
        ({"widths": [3, 65]}, suite(), "width 65 exceeds the 64 tokens of texts"),
        ({"widths": []}, suite(), "widths"),
        ({"widths": [0]}, suite(), "widths"),
        ({}, suite("vector", vocabulary=None), "textcnn reads tokens, texts has vector"),
        ({"filters": 0}, suite(), "filters"),
    ],
)
def test_mistakes_are_named(options, of, mistake):
    with pytest.raises(UserError, match=mistake) as raised:
        build("encoders", "textcnn", options).build(of)
    assert "\n" not in str(raised.value)


def test_short_documents_work_where_the_suite_is_long_enough():
    encoder = build("encoders", "textcnn", {"dimensions": 4, "filters": 3}).build(suite(length=7))
    tokens = torch.tensor([[5, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]])
    assert isinstance(encoder.convolutions, nn.ModuleList)
    assert encoder(tokens).shape == (2, 9)
