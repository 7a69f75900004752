from dataclasses import replace

import pytest
import torch

from mtlscale.config import TaskSuite, UserError, build


def suite(kind: str, *shape: int, **extras: object) -> TaskSuite:
    return TaskSuite(name="numbers", tasks=(), inputs="shared", input_kind=kind, input_shape=shape, extras=extras)


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5)])
@pytest.mark.parametrize("hidden", [[], [7], [7, 2]])
def test_flattens_any_input(shape, hidden):
    encoder = build("encoders", "mlp", {"hidden": hidden}).build(suite("image" if len(shape) > 1 else "vector", *shape))
    inputs = torch.randn(5, *shape)
    assert encoder(inputs).shape == (5, encoder.features)
    assert encoder.features == (hidden[-1] if hidden else inputs[0].numel())


def test_bytes_of_images_are_normalised_as_the_data_set_says():
    images = TaskSuite(
        name="numbers",
        tasks=(),
        inputs="shared",
        input_kind="image",
        input_shape=(2, 3, 3),
        extras={"mean": [10.0, 20.0], "std": [2.0, 4.0]},
    )
    encoder = build("encoders", "mlp", {"hidden": []}).build(images)
    pixels = torch.randint(0, 256, (5, 2, 3, 3), dtype=torch.uint8)
    expected = (pixels.float() - torch.tensor([10.0, 20.0]).reshape(2, 1, 1)) / torch.tensor([2.0, 4.0]).reshape(
        2, 1, 1
    )
    torch.testing.assert_close(encoder(pixels), expected.flatten(1))
    torch.testing.assert_close(encoder.read(encoder.embed(pixels), pixels), encoder(pixels))
    torch.testing.assert_close(encoder(expected), expected.flatten(1))  # numbers are taken as they are
    assert not encoder.state_dict()


def test_is_linear_activation_linear_activation():
    encoder = build("encoders", "mlp", {"hidden": [4, 3], "activation": "tanh"}).build(suite("vector", 6)).double()
    inputs = torch.randn(5, 6, dtype=torch.float64)
    first, first_bias, second, second_bias = encoder.parameters()
    expected = ((inputs @ first.T + first_bias).tanh() @ second.T + second_bias).tanh()
    torch.testing.assert_close(encoder(inputs), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_are_normalised_by_channel(dtype):
    of = suite("image", 2, 3, 4, mean=[100.0, 120.0], std=[50.0, 60.0])
    encoder = build("encoders", "mlp", {"hidden": [5]}).build(of).to(dtype)
    pixels = torch.randint(0, 256, (6, 2, 3, 4), dtype=torch.uint8)
    mean, std = (torch.tensor(of.extras[name], dtype=dtype).reshape(2, 1, 1) for name in ("mean", "std"))
    numbers = (pixels.to(dtype) - mean) / std
    torch.testing.assert_close(encoder(pixels), encoder(numbers), rtol=0, atol=0)
    torch.testing.assert_close(encoder.embed(pixels), numbers.flatten(1), rtol=0, atol=0)
    assert set(encoder.state_dict()) == {"layers.1.weight", "layers.1.bias"}


def test_dropout_acts_in_training_only():
    encoder = build("encoders", "mlp", {"dropout": 0.5, "activation": "tanh"}).build(suite("vector", 6))
    inputs = torch.randn(5, 6)
    assert (encoder(inputs) == 0).any()
    assert (encoder.eval()(inputs) != 0).all()


@pytest.mark.parametrize(
    ("options", "kind", "mistake"),
    [
        ({"hidden": [4, 0]}, "vector", r"hidden = \[.*\] is outside \[1, ∞\)"),
        ({"activation": "sine"}, "vector", "relu | tanh"),
        ({"dropout": 1.0}, "vector", "dropout"),
        ({}, "tokens", "mlp reads vectors or images"),
    ],
)
def test_mistakes_are_named(options, kind, mistake):
    with pytest.raises(UserError, match=mistake):
        build("encoders", "mlp", options).build(suite(kind, 6))


def test_category_codes_enter_as_one_hot_columns() -> None:
    """As a layer on numbers and one-hot columns beside them, trained alone or as one of several trials."""
    numbers = replace(suite("vector", 3), categories=(4, 0, 2))
    module = build("encoders", "mlp", {"hidden": [5], "activation": "identity"}).build(numbers)
    inputs = torch.tensor([[0.0, 1.5, 1.0], [3.0, -2.0, 0.0]])
    wide = torch.tensor([[1, 0, 0, 0, 1.5, 0, 1], [0, 0, 0, 1, -2.0, 1, 0]])
    linear = module.layers[1]
    assert linear.weight.shape == (5, 7)
    torch.testing.assert_close(module(inputs), linear(wide))
    torch.testing.assert_close(torch.vmap(module)(inputs[None]), linear(wide)[None])
