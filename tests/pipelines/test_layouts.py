"""Other layouts that sets circulate in: Kaggle's CelebA, NYUD_MT, Blitzer's processed_acl, AwA2's zip."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_sets import IN_PROCESS, assert_same_bytes, by_id, picture, save
from in_process import prepare
from scipy.io import savemat

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from pipelines._images.nyu_classes import TO_13
from pipelines.image.celeba import NINE

# -- CelebA as on Kaggle -----------------------------------------------------------------------------------------------


def write_celeba(root: Path, kaggle: bool) -> Path:
    rng, images = np.random.default_rng(0), [f"{number:06d}.jpg" for number in range(1, 61)]
    folder = root / "img_align_celeba" / "img_align_celeba" if kaggle else root / "img_align_celeba"
    values = {image: rng.choice([-1, 1], len(NINE)) for image in images}
    for image in images:
        save(folder / image, picture(rng, 55, 44))
    if kaggle:
        rows = [f"{image},{','.join(map(str, its))}" for image, its in values.items()]
        (root / "list_attr_celeba.csv").write_text("\n".join([f"image_id,{','.join(NINE)}", *rows]) + "\n")
        parts = [f"{image},{number % 3}" for number, image in enumerate(images)]
        (root / "list_eval_partition.csv").write_text("\r\n".join(["image_id,partition", *parts]) + "\r\n")
    else:
        rows = [f"{image} {' '.join(map(str, its))}" for image, its in values.items()]
        (root / "list_attr_celeba.txt").write_text("\n".join([str(len(images)), " ".join(NINE), *rows]) + "\n")
        parts = [f"{image} {number % 3}" for number, image in enumerate(images)]
        (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


@pytest.mark.parametrize("packed", [False, True])
def test_kaggles_celeba_is_the_official_one(tmp_path: Path, packed: bool) -> None:
    kaggle = write_celeba(tmp_path / "kaggle", kaggle=True)
    if packed:
        kaggle = Path(shutil.make_archive(str(tmp_path / "archive"), "zip", kaggle))
    one, other = (
        read_manifest(prepare("celeba", {"size": 16}, source, tmp_path))
        for source in (write_celeba(tmp_path / "official", kaggle=False), kaggle)
    )
    assert one.fingerprint == other.fingerprint
    assert one.class_counts == other.class_counts


@pytest.mark.parametrize(
    ("file", "lines", "message"),
    [
        ("list_attr_celeba.csv", "000001.jpg,1,1", r"list_attr_celeba\.csv should begin with a line of names"),
        ("list_attr_celeba.csv", f"image_id,{','.join(NINE)}\n000001.jpg,2", "000001.jpg has no 9 values of 1 or -1"),
        ("list_attr_celeba.csv", "image_id,Bald\n000001.jpg,1", "has no attribute 5_o_Clock_Shadow"),
        ("list_eval_partition.csv", "image_id,partition\n000001.jpg,4", "in part '4', expected 0, 1 or 2"),
    ],
)
def test_odd_csv_is_named(tmp_path: Path, file: str, lines: str, message: str) -> None:
    source = write_celeba(tmp_path / "kaggle", kaggle=True)
    (source / file).write_text(f"{lines}\n")
    with pytest.raises(UserError, match=message):
        prepare("celeba", {"size": 16}, source, tmp_path)


# -- NYUD_MT -----------------------------------------------------------------------------------------------------------

HEIGHT, WIDTH = 24, 32
SIZE = {"size": [HEIGHT, WIDTH], "validation": 0.4}


def write_nyud(root: Path, matlab: bool = False, normals: bool = True) -> dict[str, dict[str, np.ndarray]]:
    """Sixteen frames, four of them of test, in the forms that MTI-Net's (arrays) and ASTMT's (MATLAB) loaders read."""
    rng, frames = np.random.default_rng(0), {}
    parts: dict[str, list[str]] = {"train": [], "val": []}
    for number in range(1, 17):
        stem, labels = f"{number:04d}", rng.integers(0, 41, (HEIGHT, WIDTH)).astype(np.uint8)
        slopes = np.linspace(1, 1.5, WIDTH) + np.linspace(0, 0.3, HEIGHT)[:, None]
        depth = (rng.uniform(1, 5) * slopes).astype(np.float32)
        depth[0] = 0
        normal = rng.choice(np.array([[1, 0, 0], [0, -1, 0], [0, 0, 1], [0, 0, 0]], np.float32), (HEIGHT, WIDTH))
        frames[stem] = {"label": labels, "depth": depth, "normal": normal}
        parts["val" if number % 4 == 0 else "train"].append(stem)
        save(root / "images" / f"{stem}.jpg", picture(rng, HEIGHT, WIDTH))
        for folder in ("segmentation", "depth", "normals"):
            (root / folder).mkdir(exist_ok=True)
        if matlab:
            savemat(root / "segmentation" / f"{stem}.mat", {"segmentation": labels})
            savemat(root / "depth" / f"{stem}.mat", {"depth": depth})
            bytes_ = np.rint((normal + 1) * 127.5).astype(np.uint8)
            if normals:
                save(root / "normals" / f"{stem}.png", bytes_)
        else:
            save(root / "segmentation" / f"{stem}.png", labels)
            np.save(root / "depth" / f"{stem}.npy", depth)
            if normals:
                np.save(root / "normals" / f"{stem}.npy", normal)
    (root / "gt_sets").mkdir()
    for part, stems in parts.items():
        (root / "gt_sets" / f"{part}.txt").write_text("\n".join(stems) + "\n")
    return frames


@pytest.mark.parametrize("classes", [13, 40])
@pytest.mark.parametrize("matlab", [False, True])
def test_nyud_mt(tmp_path: Path, classes: int, matlab: bool) -> None:
    frames = write_nyud(tmp_path / "NYUD_MT", matlab)
    data = load_prepared(prepare("nyuv2", {**SIZE, "classes": classes}, tmp_path / "NYUD_MT", tmp_path))
    assert [task.name for task in data.suite.tasks] == ["segmentation", "depth", "normals"]
    assert data.manifest.notes["layout"] == "nyud_mt"
    table = np.array([-1, *(TO_13 if classes == 13 else range(40))])
    where = by_id(data.folder)
    assert {id for id, (split, _) in where.items() if split == "test"} == {f"val/{n:04d}" for n in (4, 8, 12, 16)}
    for id, (split, row) in where.items():
        stored = frames[id.partition("/")[2]]
        targets = {name: values[row].numpy() for name, values in data.splits[split]["all"].targets.items()}
        assert np.array_equal(targets["segmentation"], table[stored["label"]])
        np.testing.assert_allclose(targets["depth"][0], np.where(stored["depth"] > 0, stored["depth"], np.nan))
        absent = (stored["normal"] == 0).all(2, keepdims=True)
        unit = np.where(absent, np.nan, stored["normal"])
        np.testing.assert_allclose(targets["normals"].transpose(1, 2, 0), unit, atol=0.01)


def test_nyud_mt_gives_the_same_bytes_in_blocks_of_any_size_and_may_lack_normals(tmp_path: Path) -> None:
    write_nyud(tmp_path / "NYUD_MT", normals=False)
    source = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "NYUD_MT"))
    assert_same_bytes("nyuv2", {**SIZE, "normals": "none"}, source, tmp_path / "out", IN_PROCESS)
    tasks = load_prepared(prepare("nyuv2", SIZE, tmp_path / "NYUD_MT", tmp_path)).suite.tasks
    assert tasks[-1].name == "normals_estimated"


def spoil_label(root: Path) -> None:
    save(root / "segmentation" / "0003.png", np.full((HEIGHT, WIDTH), 41, np.uint8))


def spoil_mat(root: Path) -> None:
    (root / "depth" / "0003.npy").write_bytes(b"MATLAB 5.0 MAT-file, cut")


def lose_depth(root: Path) -> None:
    (root / "depth" / "0003.npy").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil_label, r"segmentation/0003\.png has the label 41, outside the 40 classes"),
        (spoil_mat, r"depth/0003\.npy is no MATLAB file with depth"),
        (lose_depth, r"images/0003\.jpg has no depth beside it"),
        (lambda root: (root / "gt_sets" / "val.txt").unlink(), r"gt_sets/val\.txt is missing in"),
        (lambda root: (root / "gt_sets" / "val.txt").write_text("0003\n"), r"frame 0003 in train\.txt and in val\.txt"),
        (lambda root: (root / "gt_sets" / "val.txt").write_text("0099\n"), r"val/0099 has no image and no label"),
    ],
)
def test_odd_frames_of_nyud_mt_are_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    write_nyud(tmp_path / "NYUD_MT")
    damage(tmp_path / "NYUD_MT")
    with pytest.raises(UserError, match=message):
        prepare("nyuv2", {**SIZE, "classes": 40}, tmp_path / "NYUD_MT", tmp_path)


# -- Blitzer's processed_acl -------------------------------------------------------------------------------------------

DOMAINS = ["books", "kitchen"]


@pytest.fixture
def processed(tmp_path: Path) -> Path:
    """Reviews as counted unigrams and bigrams; the label stands in the unlabelled file, too."""
    rng, root = np.random.default_rng(0), tmp_path / "source" / "processed_acl"
    words = [f"{c}{v}" for c in "bdfgklm" for v in "aeiou"]
    for domain in DOMAINS:
        (root / domain).mkdir(parents=True)
        for part in ("positive", "negative", "unlabeled"):
            lines = []
            for number in range(40):
                chosen = rng.choice(words, 6, replace=False)
                label = part if part != "unlabeled" else ("positive", "negative")[number % 2]
                pairs = f"{chosen[0]}_{chosen[1]}:1 a:b:2"
                lines.append(f"{pairs} {' '.join(f'{word}:3' for word in chosen)} {part}word:1 #label#:{label}")
            (root / domain / f"{part}.review").write_text("\n".join(lines) + "\n")
    return root.parent


def texts(folder: Path, domain: str, split: str) -> list[tuple[int, list[str]]]:
    vocabulary = (folder / "vocabulary.txt").read_text().split("\n")
    samples = load_prepared(folder, [split]).splits[split][domain]
    return [
        (label, [vocabulary[token] for token in row if token])
        for row, label in zip(samples.inputs.tolist(), samples.targets[domain].tolist(), strict=True)
    ]


def test_processed_reviews_repeat_their_features(processed: Path, tmp_path: Path) -> None:
    folder = prepare("amazon", {"domains": DOMAINS}, processed, tmp_path)
    manifest = read_manifest(folder)
    for domain in DOMAINS:
        for label in ("positive", "negative"):
            assert sum(manifest.class_counts[domain][split][label] for split in SPLITS) == 40
        for split in SPLITS:
            for label, found in texts(folder, domain, split):
                assert len(found) == 1 + 2 + 6 * 3 + 1
                assert found[1:3] == ["a:b", "a:b"] or found[1:3] == ["<unk>"] * 2
                assert found[-1] in (f"{'positive' if label else 'negative'}word", "<unk>")
    assert not any("unlabeledword" in text for split in SPLITS for _, text in texts(folder, "books", split))


def test_a_processed_archive_is_read_as_its_folder(
    processed: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    archive = pack(processed, tmp_path / "processed_acl.tar.gz")
    prints = {
        read_manifest(prepare("amazon", {"domains": DOMAINS}, source, tmp_path)).fingerprint
        for source in (processed, processed / "processed_acl", archive)
    }
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("good:1 bad:1", "ends with 'bad:1', which is no #label#:positive or negative"),
        ("good:1 #label#:neutral", "ends with '#label#:neutral'"),
        ("good:one #label#:positive", "has 'good:one', which is no feature:count"),
        ("good #label#:positive", "has 'good', which is no feature:count"),
        ("good:999999999 #label#:positive", "has 'good:999999999', which is no feature:count"),
    ],
)
def test_an_odd_processed_review_is_named(processed: Path, tmp_path: Path, line: str, message: str) -> None:
    with (processed / "processed_acl" / "books" / "negative.review").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match=rf"books/negative\.review line 41 {message}"):
        prepare("amazon", {"domains": DOMAINS}, processed, tmp_path)
    folder = prepare("amazon", {"domains": DOMAINS}, processed, tmp_path, skip_bad=True)
    assert read_manifest(folder).notes["skipped"]["count"] == 1
    with pytest.raises(UserError, match=r"has no apparel/positive\.review; domains it has: books, kitchen; name"):
        prepare("amazon", {}, processed, tmp_path, skip_bad=True)


# -- AwA2's zip --------------------------------------------------------------------------------------------------------

SMALL = {"positives": 8, "negatives": 2, "components": 3}
BELOW = "Animals_with_Attributes2/Features/ResNet101"


@pytest.fixture
def awa2(tmp_path: Path) -> Path:
    rng, folder = np.random.default_rng(0), tmp_path / "awa2" / BELOW
    labels = rng.permutation(np.repeat(np.arange(1, 5), 20))
    folder.mkdir(parents=True)
    np.savetxt(folder / "AwA2-labels.txt", labels, fmt="%d")
    np.savetxt(folder / "AwA2-features.txt", rng.normal(size=(80, 6)) + labels[:, None], fmt="%.4f")
    (folder / "AwA2-filenames.txt").write_text("x.jpg\n" * 80)
    return tmp_path / "awa2"


def test_the_zip_of_awa2_is_read_as_its_folder(awa2: Path, tmp_path: Path) -> None:
    (tmp_path / "zipped").mkdir()
    packed = Path(shutil.make_archive(str(tmp_path / "zipped" / "AwA2-features"), "zip", awa2))
    prints = {
        read_manifest(prepare("awa2", SMALL, source, tmp_path)).fingerprint for source in (awa2, packed, packed.parent)
    }
    assert len(prints) == 1


def test_other_zips_of_awa2_are_named(awa2: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "AwA2-data.zip", "w") as archive:
        archive.writestr("Animals_with_Attributes2/classes.txt", "1 antelope")
    with pytest.raises(UserError, match=r"AwA2-data\.zip holds no AwA2-labels\.txt; pass AwA2-features\.zip"):
        prepare("awa2", SMALL, tmp_path / "AwA2-data.zip", tmp_path)
    (tmp_path / "AwA2-data.zip").write_bytes(b"PK cut")
    with pytest.raises(UserError, match=r"AwA2-data\.zip is truncated or is no zip archive"):
        prepare("awa2", SMALL, tmp_path / "AwA2-data.zip", tmp_path)
    (awa2 / BELOW / "AwA2-labels.txt").write_text("")
    with pytest.raises(UserError, match=r"AwA2-labels\.txt has no line"):
        prepare("awa2", SMALL, awa2, tmp_path)
