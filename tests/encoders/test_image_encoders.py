"""Encoders of images: stages, dilation, resolution, pixels, weights from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.config.registry import components
from mtlscale.encoders import StagedModule
from mtlscale.torchvision_ops import declare

SEGMENTATION = Task(name="segmentation", loss="cross_entropy", outputs=5, metrics=("miou",))
FACE = Task(name="smiling", loss="bce", outputs=1, metrics=("error",))
SMALL: dict[str, dict[str, Any]] = {
    "resnet18": {"width": 4},
    "resnet50": {"width": 2, "bottleneck": 5},
    "deeplab_resnet18": {"width": 4, "head_width": 6, "rates": [1, 2]},
    "deeplab_resnet50": {"width": 2, "head_width": 6, "rates": [1, 2]},
    "segnet": {"width": 3},
}

OF_IMAGES = ("resnet18", "resnet50")  # one vector per image


def suite(task: Task = SEGMENTATION, height: int = 32, width: int = 48, **extras: Any) -> TaskSuite:
    return TaskSuite(
        name="pictures",
        tasks=(task,),
        inputs="shared",
        input_kind="image",
        input_shape=(3, height, width),
        extras=extras,
    )


def build(name: str, of: TaskSuite | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    of = of or suite(FACE if name in OF_IMAGES else SEGMENTATION)
    return components.build("encoders", name, {**SMALL[name], **options}).build(of)


def pixels(height: int = 32, width: int = 48) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SMALL)
def test_stages_one_by_one_are_the_whole_encoder(name: str) -> None:
    encoder = build(name).eval()
    assert isinstance(encoder, StagedModule) and len(encoder.stages) == len(encoder.widths)
    features, memory = encoder.prepare(pixels()), {}
    for index, width in enumerate(encoder.widths):
        features = encoder.stage(index, features, memory)
        assert features.shape[:2] == (2, width)
    assert torch.equal(encoder.finish(features), encoder(pixels()))
    owned = {id(p) for stage in encoder.stages for p in stage.parameters()}
    assert owned == {id(p) for p in encoder.parameters()}


@pytest.mark.parametrize("name", SMALL)
def test_heads_predict_a_value_per_image_or_per_pixel(name: str) -> None:
    encoder = build(name, suite(FACE if name in OF_IMAGES else SEGMENTATION, 40, 56))
    features = encoder(pixels(40, 56))
    task = FACE if name in OF_IMAGES else SEGMENTATION
    prediction = encoder.head(task, 0.1)(features)
    assert features.shape[1] == encoder.features
    assert prediction.shape == ((2, 1) if name in OF_IMAGES else (2, 5, 40, 56))


@pytest.mark.parametrize(("stride", "places"), [(8, (8, 12)), (16, (4, 6)), (32, (2, 3))])
@pytest.mark.parametrize("name", ["deeplab_resnet18", "deeplab_resnet50"])
def test_dilation_keeps_the_resolution(name: str, stride: int, places: tuple[int, int]) -> None:
    encoder = build(name, suite(height=64, width=96), stride=stride)
    assert encoder(pixels(64, 96)).shape[-2:] == places


def test_a_dilated_resnet50_is_torchvisions() -> None:
    declare()
    from torchvision.models import resnet50

    ours = build("deeplab_resnet50", width=64).eval()
    theirs = resnet50(replace_stride_with_dilation=[False, True, True]).eval()
    state = {key: value for key, value in theirs.state_dict().items() if not key.startswith("fc.")}
    from mtlscale.encoders.image_layers import _own_name

    ours.load_state_dict({_own_name(key): value for key, value in state.items()})
    image = torch.randn(1, 3, 64, 64)
    x = theirs.maxpool(theirs.relu(theirs.bn1(theirs.conv1(image))))
    for layer in (theirs.layer1, theirs.layer2, theirs.layer3, theirs.layer4):
        x = layer(x)
    torch.testing.assert_close(ours(image), x, rtol=1e-4, atol=1e-4)


def test_basic_blocks_dilate_as_torchvisions_bottlenecks_do() -> None:
    """The first block of a dilated layer has the dilation of the layer before, as in torchvision."""
    encoder = build("deeplab_resnet18", stride=8)
    found = [[block.conv1.dilation[0], block.conv2.dilation[0]] for stage in encoder.stages[1:] for block in stage]
    assert found == [[1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [2, 2], [2, 2], [4, 4]]
    assert [stage[0].conv1.stride[0] for stage in encoder.stages[1:]] == [1, 2, 1, 1]
    bottlenecks = build("deeplab_resnet50", stride=8)
    deep = [[block.conv2.dilation[0] for block in stage] for stage in bottlenecks.stages[3:]]
    assert deep == [[1, 2, 2, 2, 2, 2], [2, 4, 4]]


def test_pixels_are_normalised_by_the_sets_mean_and_deviation() -> None:
    encoder = build("resnet18", suite(FACE, mean=[10.0, 20.0, 30.0], std=[2.0, 4.0, 5.0]))
    prepared = encoder.prepare(torch.full((1, 3, 32, 48), 50, dtype=torch.uint8))
    assert prepared[0, :, 0, 0].tolist() == [20.0, 7.5, 4.0]
    without = build("resnet18").prepare(torch.full((1, 3, 32, 48), 255, dtype=torch.uint8))
    assert without.unique().item() == pytest.approx(127.5 / 64)
    numbers = torch.randn(1, 3, 32, 48)
    assert torch.equal(encoder.prepare(numbers), numbers)
    assert not any("mean" in key and "running" not in key for key in encoder.state_dict())


def test_segnet_puts_the_largest_back_where_it_was() -> None:
    encoder = build("segnet")
    memory: dict[str, Any] = {}
    x = encoder.stage(0, encoder.prepare(pixels()), memory)
    up = functional.max_unpool2d(x, memory["places 0"], 2, output_size=memory["size 0"])
    assert up.shape[-2:] == (32, 48) and torch.equal(functional.max_pool2d(up, 2), x.clamp(min=0))


@pytest.mark.parametrize("name", ["resnet18", "deeplab_resnet18"])
def test_weights_from_a_file(name: str, tmp_path: Path) -> None:
    declare()
    from torchvision.models import resnet18

    theirs = resnet18().eval()
    path = tmp_path / "resnet18.pt"
    torch.save(theirs.state_dict(), path)
    ours = build(name, width=64, weights=str(path)).eval()
    assert torch.equal(ours.stages[3][0].conv1.weight, theirs.layer3[0].conv1.weight)
    if name == "resnet18":
        image = torch.randn(1, 3, 64, 64)
        theirs.fc = torch.nn.Identity()
        torch.testing.assert_close(ours(image), theirs(image), rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match=r"stages.0.0.weight is \[64, 3, 7, 7\] in .* need width 64"):
        build(name, width=8, weights=str(path))


def test_the_trunk_of_a_whole_network_is_taken_and_its_heads_are_left_out(tmp_path: Path) -> None:
    declare()
    from torchvision.models import resnet50

    theirs = resnet50(replace_stride_with_dilation=[False, True, True])
    path = tmp_path / "deeplab.pth"
    state = {f"backbone.{key}": value for key, value in theirs.state_dict().items() if not key.startswith("fc.")}
    torch.save({**state, "classifier.4.weight": torch.zeros(2), "aux_classifier.4.bias": torch.zeros(1)}, path)
    ours = build("deeplab_resnet50", width=64, weights=str(path))
    assert torch.equal(ours.stages[4][2].conv3.weight, theirs.layer4[2].conv3.weight)
    assert torch.equal(ours.stages[0][1].running_var, theirs.bn1.running_var)


def test_files_that_hold_no_weights_are_named(tmp_path: Path) -> None:
    declare()
    from torchvision.models import resnet18

    with pytest.raises(UserError, match=r"missing\.pt is not on this machine"):
        build("resnet18", weights=str(tmp_path / "missing.pt"))
    path = tmp_path / "other.pt"
    torch.save({"something": torch.zeros(1)}, path)
    with pytest.raises(UserError, match=r"other\.pt has none for stages\.0\.0\.weight"):
        build("resnet18", weights=str(path))
    state = resnet18().state_dict()
    torch.save({**state, "layer4.2.conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(UserError, match=r"has stages\.4\.2\.conv1\.weight, which is not here"):
        build("resnet18", width=64, weights=str(path))
    torch.save({"model": state}, path)
    with pytest.raises(UserError, match="holds no state dictionary"):
        build("resnet18", weights=str(path))
    torch.save(resnet18(), path)  # a pickled module, whose code would run
    with pytest.raises(UserError, match="cannot be read as weights"):
        build("resnet18", weights=str(path))
    path.write_bytes(b"not weights")
    with pytest.raises(UserError, match="cannot be read as weights"):
        build("resnet18", weights=str(path))
    with pytest.raises(UserError, match="weights = 5 should be the path of a file"):
        build("resnet18", weights=5)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match="task segmentation predicts pixels; choose deeplab_resnet18"):
        build("resnet18", suite(SEGMENTATION))
    with pytest.raises(UserError, match="at least 32 pixels"):
        build("segnet", suite(height=16))
    with pytest.raises(UserError, match=r"rates = \[0\]"):
        build("deeplab_resnet18", rates=[0])
