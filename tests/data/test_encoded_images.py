"""Pictures kept as their files have them: what is read is what decoding them beforehand gives, to the last bit."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from image_sets import IN_PROCESS, assert_same_bytes, encoded, picture, save
from in_process import prepare

from mtlscale.config import SPLITS, UserError, load_experiment
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_manifest
from mtlscale.data.readers.random_access import open_reader
from mtlscale.data.readers.reader_selection import OnDisk, bound, choose, needed
from mtlscale.data.remote import fetch, publish
from mtlscale.execution.preparing.prepare import SOURCES
from mtlscale.records import Storage
from mtlscale.training import train
from pipelines.image.celeba import NINE

COUNT, SIZE = 48, 16
PARTS = ("train", "train", "train", "val", "test", "train")
READERS = ("device", "memory", "mapped")


def faces() -> list[tuple[bytes, list[int]]]:
    """Pictures of several sizes, and their attributes."""
    rng = np.random.default_rng(0)
    return [
        (encoded(picture(rng, 30 + n % 3, 24), "JPEG" if n % 4 else "PNG"), rng.choice([-1, 1], len(NINE)).tolist())
        for n in range(COUNT)
    ]


def as_folder(root: Path) -> Path:
    (root / "img_align_celeba").mkdir(parents=True)
    lines, parts = [str(COUNT), " ".join(NINE)], []
    for number, (content, labels) in enumerate(faces()):
        name = f"{number:06d}.jpg"
        (root / "img_align_celeba" / name).write_bytes(content)
        lines.append(f"{name} {' '.join(map(str, labels))}")
        parts.append(f"{name} {SPLITS.index(PARTS[number % len(PARTS)])}")
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


def as_zip(root: Path) -> Path:
    as_folder(root)
    with zipfile.ZipFile(root / "img_align_celeba.zip", "w") as archive:
        for path in sorted((root / "img_align_celeba").iterdir()):
            archive.write(path, f"img_align_celeba/{path.name}")
            path.unlink()
    (root / "img_align_celeba").rmdir()
    return root


def as_hub(root: Path) -> Path:
    """As on the Hugging Face hub."""
    (root / "data").mkdir(parents=True)
    for split in SPLITS:
        chosen = [face for number, face in enumerate(faces()) if PARTS[number % len(PARTS)] == split]
        images = pa.array([{"bytes": content, "path": None} for content, _ in chosen])
        labels = {name: [row[place] for _, row in chosen] for place, name in enumerate(NINE)}
        pq.write_table(pa.table({"image": images, **labels}), root / "data" / f"{split}-00000-of-00001.parquet")
    return root


def both(source: Path, home: Path) -> tuple[PreparedData, PreparedData]:
    options = {"size": SIZE}
    kept = prepare("celeba", {**options, "encoded": True}, source, home)
    return load_prepared(kept), load_prepared(prepare("celeba", options, source, home))


@pytest.mark.parametrize("layout", [as_folder, as_zip, as_hub])
def test_all_readers_give_the_decoded_pixels(layout: Callable[[Path], Path], tmp_path: Path) -> None:
    kept, decoded = both(layout(tmp_path / "celeba"), tmp_path / "home")
    assert kept.manifest.types["input"] == "encoded" and decoded.manifest.types["input"] == "uint8"
    assert kept.manifest.counts == decoded.manifest.counts and kept.suite == decoded.suite
    for split in SPLITS:
        expected = decoded.splits[split]["all"]
        index = torch.tensor([[3, 0], [1, 3]])
        for kind in READERS:
            reader, _ = open_reader(kept, kind, device=torch.device("cpu"), dtype=torch.float32)
            assert reader.sizes(split) == {"all": len(expected)}
            for places in (index, index.reshape(-1)):
                found = reader.take(split, "all", places)
                assert found.inputs.dtype == torch.uint8 and torch.equal(found.inputs, expected.inputs[places])
                for name, target in expected.targets.items():
                    assert torch.equal(found.targets[name].long(), target[places].long())
            if kind != "mapped":
                assert torch.equal(reader.whole(split, "a test")["all"].inputs, expected.inputs)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_decode_alike(threads: int, tmp_path: Path) -> None:
    kept, decoded = both(as_folder(tmp_path / "celeba"), tmp_path / "home")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        reader, _ = open_reader(kept, "mapped", device=torch.device("cpu"), dtype=torch.float32)
        found = reader.take("train", "all", torch.arange(20))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found.inputs, decoded.splits["train"]["all"].inputs[:20])


def test_a_run_is_the_same(tmp_path: Path) -> None:
    kept, decoded = both(as_folder(tmp_path / "celeba"), tmp_path / "home")
    records = []
    for data, reader in [(decoded, "memory"), *((kept, reader) for reader in READERS)]:
        path = tmp_path / "faces.yaml"
        path.write_text(
            f"name: faces\ndatasets: [{{name: celeba, options: {{size: {SIZE}}}}}]\nmethods: [equal]\nseeds: [0]\n"
            "model: {encoder: {name: resnet18, width: 4, stem: small}}\n"
            f"training: {{epochs: 2, batch_size: 8, lr: 1e-2, reader: {reader}}}\n"
        )
        run = next(iter(load_experiment(path).runs({"celeba": data.manifest.fingerprint})))
        record = train(run, data)
        assert record.status == "finished", record.error
        records.append(record)
    assert all(record.metrics == records[0].metrics for record in records)


def test_the_same_bytes_whoever_writes(tmp_path: Path) -> None:
    source = as_folder(tmp_path / "celeba")
    assert_same_bytes("celeba", {"size": SIZE, "encoded": True}, source, tmp_path / "out", IN_PROCESS[:2])


def test_what_it_takes_is_known(tmp_path: Path) -> None:
    kept, decoded = both(as_folder(tmp_path / "celeba"), tmp_path / "home")
    encoded_need, plain = (needed(data.folder, data.manifest, "float32") for data in (kept, decoded))
    pictures = sum(len(content) for content, _ in faces())
    assert pictures < encoded_need.stored < 1.5 * pictures + 40_000
    assert plain.stored == COUNT * (3 * SIZE * SIZE + len(NINE))
    assert encoded_need.placed >= plain.placed and bound(kept.manifest).placed >= encoded_need.placed
    assert choose(OnDisk(kept.folder, kept.manifest), "auto", "float32").reader == "device"


def test_a_corrupt_picture_is_met_before_training(tmp_path: Path) -> None:
    source = as_folder(tmp_path / "celeba")
    (source / "img_align_celeba" / "000004.jpg").write_bytes(b"\xff\xd8\xff no picture")
    options = {"size": SIZE, "encoded": True}
    with pytest.raises(UserError, match=r"000004\.jpg is corrupt"):
        prepare("celeba", options, source, tmp_path / "home")
    data = load_prepared(prepare("celeba", options, source, tmp_path / "home", skip_bad=True))
    assert sum(len(data.splits[split]["all"]) for split in SPLITS) == COUNT - 1


def test_maps_stay_as_they_are(tmp_path: Path) -> None:
    """Arrays and pictures of a dense set: the input alone is kept."""
    rng = np.random.default_rng(0)
    for suffix in ("npy", "png"):
        root = tmp_path / suffix
        for part, count in (("train", 12), ("val", 4)):
            for number in range(count):
                pixels = picture(rng, 20, 24)
                depth = rng.integers(1, 255, (20, 24)).astype(np.uint8)
                labels = rng.integers(0, 14, (20, 24)).astype(np.uint8)
                name = f"{number:04d}"
                if suffix == "npy":
                    save(root / part / "image" / f"{name}.npy", pixels.astype(np.float32) / 255)
                    save(root / part / "label" / f"{name}.npy", labels.astype(np.float32) - 1)
                    save(root / part / "depth" / f"{name}.npy", depth.astype(np.float32)[..., None] / 25)
                else:
                    save(root / part / "image" / f"{name}.jpg", pixels)
                    save(root / part / "label13" / f"{name}.png", labels)
                    save(root / part / "depth" / f"{name}.png", depth)
        options = {"size": [16, 16], "validation": 0.3, "normals": "none"}
        plain = load_prepared(prepare("nyuv2", options, root, tmp_path / "home"))
        kept = load_prepared(prepare("nyuv2", {**options, "encoded": True}, root, tmp_path / "home"))
        reader, _ = open_reader(kept, "mapped", device=torch.device("cpu"), dtype=torch.float32)
        for split in SPLITS:
            expected = plain.splits[split]["all"]
            found = reader.take(split, "all", torch.arange(len(expected)))
            assert torch.equal(found.inputs, expected.inputs)
            for name, target in expected.targets.items():
                assert torch.equal(torch.nan_to_num(found.targets[name]).double(), torch.nan_to_num(target).double())


def test_what_was_prepared_before_there_was_a_choice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOURCES, raising=False)
    folder = prepare("celeba", {"size": SIZE}, as_folder(tmp_path / "celeba"), tmp_path / "home")
    assert "encoded" not in read_manifest(folder).options
    assert prepare("celeba", {"size": SIZE, "encoded": False}, None, tmp_path / "home") == folder


def test_what_passes_by_is_decoded_where_it_is_read(tmp_path: Path) -> None:
    """From files here and from a storage alone."""
    kept, decoded = both(as_folder(tmp_path / "celeba"), tmp_path / "home")
    storage = Storage(f"file://{tmp_path}/storage")
    away = []
    for data in (kept, decoded):
        publish(storage, data.folder)
        folder = tmp_path / "away" / data.folder.relative_to(tmp_path / "home")
        assert fetch(storage, folder)
        away.append(load_prepared(folder))
        assert not (folder / data.manifest.shards("train", "all")[0].path).exists()
    expected = decoded.splits["train"]["all"]
    index = torch.tensor([5, 0, 2])
    for data in (kept, decoded, *away):
        reader, _ = open_reader(data, "stream", device=torch.device("cpu"), dtype=torch.float32)
        assert reader.sizes("train") == {"all": len(expected)}
        assert torch.equal(reader.take("train", "all", index).inputs, expected.inputs[index])
