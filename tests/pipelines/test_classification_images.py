"""CIFAR, SVHN, MNIST and ImageNet in each layout they are known in, and a set out of their distribution beside them."""

from __future__ import annotations

import gzip
import os
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_sets import encoded, picture
from scipy.io import savemat

from mtlscale.config import SPLITS, UserError, component
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare
from pipelines.image.cifar100 import COARSE, FINE

CLASSES = component("datasets", "cifar10").classes  # type: ignore[attr-defined]
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
EACH = 20  # pictures of a batch

Drawn = tuple[np.ndarray, np.ndarray]  # pictures [N, 32, 32, 3], labels [N]


def drawn(seed: int, count: int = EACH, classes: int = 10) -> Drawn:
    rng = np.random.default_rng(seed)
    return np.stack([picture(rng, 32, 32) for _ in range(count)]), np.arange(count) % classes


def planes(pictures: np.ndarray) -> np.ndarray:
    """[N, 3072], red before green before blue."""
    return pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)


def binary(folder: Path) -> Path:
    below = folder / "cifar-10-batches-bin"
    below.mkdir(parents=True)
    for seed, batch in enumerate(BATCHES):
        pictures, labels = drawn(seed)
        rows = np.concatenate([labels[:, None].astype(np.uint8), planes(pictures)], 1)
        (below / f"{batch}.bin").write_bytes(rows.tobytes())
    return folder


def class_folders(folder: Path, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for seed, batch in enumerate(BATCHES):
        part = "test" if batch == "test_batch" else "train"
        for row, (pixels, label) in enumerate(zip(*drawn(seed), strict=True)):
            files[f"{part}/{CLASSES[label]}/{seed}{row:03d}.png"] = encoded(pixels, "PNG")
    if zipped:
        with zipfile.ZipFile(folder / "some_name.zip", "w") as archive:
            for name, raw in files.items():
                archive.writestr(name, raw)
        return folder
    for name, raw in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    return folder


def archive(folder: Path, made: Path, name: str) -> Path:
    with tarfile.open(folder / name, "w:gz") as tar:
        tar.add(next(made.iterdir()), arcname=next(made.iterdir()).name)
    return folder / name


def mats(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for seed, (part, count) in enumerate((("train", 40), ("test", 12))):
        pictures, labels = drawn(50 + seed, count)
        named = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": np.moveaxis(pictures, 0, 3), "y": named})
    return folder


def idx(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for seed, (stem, count) in enumerate((("train", 40), ("t10k", 12))):
        pictures, labels = drawn(60 + seed, count)
        small = np.ascontiguousarray(pictures[:, 2:30, 2:30, 0])
        for kind, array in (("images-idx3", small), ("labels-idx1", labels.astype(np.uint8))):
            head = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (folder / f"{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return folder


def ready(name: str, source: Path | None, home: Path, **options: Any) -> PreparedData:
    return load_prepared(prepare(name, options, source, home))


def content(data: PreparedData) -> set[tuple[str, int, bytes]]:
    """(part, class, pixels) of every picture: what layouts may not differ in."""
    found = set()
    for split in SPLITS:
        samples = data.splits[split]["class"]
        part = "test" if split == "test" else "train"
        rows = zip(samples.inputs, samples.targets["class"].tolist(), strict=True)
        found |= {(part, label, pixels.numpy().tobytes()) for pixels, label in rows}
    return found


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTLSCALE_DATA", raising=False)


def expected(seeds: range, part: str) -> set[tuple[str, int, bytes]]:
    pictures = (row for seed in seeds for row in zip(*drawn(seed), strict=True))
    return {(part, int(label), pixels.transpose(2, 0, 1).tobytes()) for pixels, label in pictures}


def test_cifar10_is_the_same_in_every_layout(tmp_path: Path) -> None:
    wanted = expected(range(5), "train") | expected(range(5, 6), "test")
    made = binary(tmp_path / "bin")
    sources = [
        made,
        made / "cifar-10-batches-bin",
        archive(tmp_path, made, "cifar-10-binary.tar.gz"),
        class_folders(tmp_path / "folders"),
        class_folders(tmp_path / "zip", zipped=True),
    ]
    for number, source in enumerate(sources):
        data = ready("cifar10", source, tmp_path / f"home{number}", validation=0.3)
        assert content(data) == wanted, source
        assert data.suite.input_shape == (3, 32, 32) and data.suite.tasks[0].classes == CLASSES
    train = data.splits["train"]["class"].inputs.double()
    means, deviations = train.mean((0, 2, 3)), train.std((0, 2, 3), correction=0)
    assert np.allclose(data.suite.extras["mean"], means) and np.allclose(data.suite.extras["std"], deviations)


def test_cifar10_of_the_datasets_library(tmp_path: Path) -> None:
    import datasets

    parts = {}
    for part, seeds in (("train", range(5)), ("test", range(5, 6))):
        rows = [row for seed in seeds for row in zip(*drawn(seed), strict=True)]
        raw = [{"bytes": encoded(pixels, "PNG"), "path": None} for pixels, _ in rows]
        features = datasets.Features(img=datasets.Image(), label=datasets.ClassLabel(names=list(CLASSES)))
        parts[part] = datasets.Dataset.from_dict({"img": raw, "label": [int(label) for _, label in rows]}, features)
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    data = ready("cifar10", tmp_path / "saved", tmp_path / "home")
    assert content(data) == expected(range(5), "train") | expected(range(5, 6), "test")


@pytest.mark.parametrize(("labels", "names"), [("fine", FINE), ("coarse", COARSE)])
def test_cifar100_has_fine_and_coarse_classes(labels: str, names: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "cifar-100-binary").mkdir()
    wanted = set()
    for seed, (part, count) in enumerate((("train", 200), ("test", 100))):
        pictures, fine = drawn(70 + seed, count, 100)
        both = np.stack([fine % 20, fine], 1)
        rows = np.concatenate([both.astype(np.uint8), planes(pictures)], 1)
        (tmp_path / "cifar-100-binary" / f"{part}.bin").write_bytes(rows.tobytes())
        codes = fine if labels == "fine" else fine % 20
        wanted |= {(part, int(code), row.tobytes()) for code, row in zip(codes, planes(pictures), strict=True)}
    data = ready("cifar100", tmp_path, tmp_path / "home", labels=labels, validation=0.01)
    assert content(data) == wanted and data.suite.tasks[0].classes == names and len(names) in (20, 100)


def test_svhn_has_zeros_for_tens(tmp_path: Path) -> None:
    data = ready("svhn", mats(tmp_path / "svhn"), tmp_path / "home")
    wanted = {
        (part, int(label), pixels.transpose(2, 0, 1).tobytes())
        for part, seed, count in (("train", 50, 40), ("test", 51, 12))
        for pixels, label in zip(*drawn(seed, count), strict=True)
    }
    assert content(data) == wanted and "pictures" not in data.manifest.notes  # none was made another size


def test_mnist_becomes_three_equal_channels_of_another_size(tmp_path: Path) -> None:
    data = ready("mnist", idx(tmp_path / "mnist"), tmp_path / "home", image_size=16)
    inputs = data.splits["train"]["class"].inputs
    assert inputs.shape[1:] == (3, 16, 16) and (inputs == inputs[:, :1]).all() and inputs.float().std() > 0
    assert "28x28 gray made 16x16" in data.manifest.notes["pictures"]


def test_a_set_out_of_the_distribution(tmp_path: Path) -> None:
    source = binary(tmp_path / "cifar10")
    idx(tmp_path / "mnist"), mats(tmp_path / "svhn")
    options: dict[str, Any] = {"image_size": 24, "validation": 0.25, "ood": "mnist"}
    data = ready("cifar10", source, tmp_path / "home", **options)
    assert data.suite.streams == {"class": ("class",), "ood": ()} and data.suite.unlabelled == ("ood",)
    sizes = {split: len(data.splits[split]["ood"]) for split in SPLITS}
    assert sizes["test"] == 12 and sizes["train"] + sizes["val"] == 40 and min(sizes.values()) > 0
    assert data.splits["test"]["ood"].inputs.shape == (12, 3, 24, 24) and not data.splits["test"]["ood"].targets
    assert "28x28 gray made 24x24" in data.manifest.notes["ood (mnist)"]
    # The labelled part is what it is without the other set.
    alone = ready("cifar10", source, tmp_path / "home", **{**options, "ood": "none"})
    assert content(alone) == content(data) and alone.manifest.suite.extras == data.manifest.suite.extras
    ids = {split: read_ids(data.folder, split, "ood") for split in SPLITS}
    assert all(id.startswith("ood/mnist/") for split in SPLITS for id in ids[split])
    other = ready("cifar10", source, tmp_path / "home", **{**options, "ood": "svhn", "ood_limit": 9})
    assert sum(len(other.splits[split]["ood"]) for split in SPLITS) == 18
    # Another set there is another source.
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1] + b"\x07"))
    assert prepare("cifar10", options, source, tmp_path / "home") != data.folder


def test_validation_and_limit_are_drawn_by_hash(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "folders")
    one, other = (ready("cifar10", source, tmp_path / "home", split=split, validation=0.3) for split in (0, 1))
    held = [set(read_ids(data.folder, "val", "class")) for data in (one, other)]
    assert held[0] != held[1] and 15 < len(held[0]) < 45
    few = ready("cifar10", source, tmp_path / "home", limit=60, validation=0.1)
    assert sum(len(few.splits[split]["class"]) for split in ("train", "val")) == 60
    assert len(few.splits["test"]["class"]) == EACH


def test_imagenet_in_folders_of_classes(tmp_path: Path) -> None:
    rng, source = np.random.default_rng(0), tmp_path / "imagenet"
    for part, count in (("train", 12), ("val", 3)):
        for name in ("n01440764", "n01443537", "n01484850"):
            (source / part / name).mkdir(parents=True)
            for row in range(count):
                (source / part / name / f"{name}_{row}.JPEG").write_bytes(encoded(picture(rng, 20, 30 + row), "JPEG"))
    data = ready("imagenet", source, tmp_path / "home", size=16, validation=0.3)
    assert data.suite.input_shape == (3, 16, 16) and data.suite.tasks[0].outputs == 3
    assert data.manifest.class_counts["class"]["test"] == dict.fromkeys(data.suite.tasks[0].classes, 3)
    assert sum(data.manifest.counts["class"][split] for split in ("train", "val")) == 36
    (source / "train" / "n01484850").rename(source / "gone")
    with pytest.raises(UserError, match=r"^imagenet: class n01484850 of val has no picture in train of "):
        ready("imagenet", source, tmp_path / "home", size=16)


def _cut(source: Path) -> None:
    path = source / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-100])


def _label(source: Path) -> None:
    path = source / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(b"\x0b" + path.read_bytes()[1:])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_cut, r"^cifar10: data_batch_3.bin has 61,360 bytes, no whole number of records of 3073: it is cut off"),
        (_label, r"^cifar10: .* has the class 11 in train; there are 0 to 9"),
    ],
)
def test_spoilt_binaries(spoil: Any, message: str, tmp_path: Path) -> None:
    spoil(binary(tmp_path / "cifar10"))
    with pytest.raises(UserError, match=message):
        prepare("cifar10", {}, tmp_path / "cifar10", tmp_path / "home")
    assert not list((tmp_path / "home").rglob("manifest.json"))


def test_bad_sources(tmp_path: Path) -> None:
    home, source = tmp_path / "home", class_folders(tmp_path / "cifar10")
    for path in (source / "test" / "cat").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"^cifar10: class cat has no picture in test of "):
        prepare("cifar10", {}, source, home)
    with pytest.raises(UserError, match=r"^cifar10: ood = cifar10 is the set itself"):
        prepare("cifar10", {"ood": "cifar10"}, source, home)
    with pytest.raises(UserError, match=r"^cifar10: ood = 'places' is outside none \| cifar10 \| cifar100 \| mnist"):
        prepare("cifar10", {"ood": "places"}, source, home)
    with pytest.raises(UserError, match=r"^cifar10: ood = svhn needs its files: a folder svhn below \$MTLSCALE_DATA"):
        prepare("cifar10", {"ood": "svhn"}, source, home)
    mats(tmp_path / "svhn")
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(UserError, match=r"^svhn: test_32x32.mat is damaged "):
        prepare("svhn", {}, tmp_path / "svhn", home)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"^cifar10: .*none has neither cifar-10-batches-bin nor cifar-10-binary"):
        prepare("cifar10", {}, tmp_path / "none", home)
    # The same files under the name of another set are no other set.
    zipped = class_folders(tmp_path / "one" / "cifar10", zipped=True)
    (tmp_path / "one" / "cifar100").mkdir()
    (tmp_path / "one" / "cifar100" / "x.zip").write_bytes((zipped / "some_name.zip").read_bytes())
    with pytest.raises(UserError, match=r"^cifar10: .* holds the same files as "):
        prepare("cifar10", {"ood": "cifar100"}, zipped, home)


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path("ran").touch, ()


@pytest.mark.parametrize(("name", "below", "file"), [("cifar10", "cifar-10-batches-py", "data_batch_2"),
                                                     ("cifar100", "cifar-100-python", "train")])  # fmt: skip
def test_pickles_are_refused_and_never_run(
    name: str, below: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "py"
    (made / below).mkdir(parents=True)
    (made / below / file).write_bytes(pickle.dumps({b"data": _Runs(), b"labels": []}, 2))
    for source in (made, made / below, archive(tmp_path, made, f"{below}.tar.gz")):
        with pytest.raises(UserError, match=rf"^{name}: .* holds torchvision's pickles.*fetch the binary version, or"):
            prepare(name, {}, source, tmp_path / "home")
    assert not Path("ran").exists()


@pytest.mark.slow  # 12,000 pictures; the layouts are read above, of a few
@pytest.mark.skipif(not Path(os.environ.get("MTLSCALE_DATA", "/"), "cifar10").is_dir(), reason="needs CIFAR-10")
def test_the_real_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTLSCALE_DATA", REAL)
    folder = prepare("cifar10", {"image_size": 16, "ood": "mnist", "ood_limit": 300}, None, tmp_path)
    manifest = read_manifest(folder)
    assert manifest.class_counts["class"]["test"] == dict.fromkeys(CLASSES, 200)
    assert sum(manifest.counts["class"].values()) == 12_000


REAL = os.environ.get("MTLSCALE_DATA", "")
