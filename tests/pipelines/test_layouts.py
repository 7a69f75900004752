"""Other layouts that sets circulate in: Kaggle's CelebA, NYUD_MT (by the page), Blitzer's processed_acl, AwA2's zip."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_sets import by_id, picture, save
from in_process import prepare
from scipy.io import savemat

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
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


def converted(word: str, folder: Path) -> None:
    """Run the program of the page that has a word in it, in a folder."""
    page = Path(__file__).parents[2].joinpath("docs", "datasets_images.md").read_text(encoding="utf-8")
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in block)
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)


def test_kaggles_celeba_becomes_the_official_one(tmp_path: Path) -> None:
    kaggle = write_celeba(tmp_path / "kaggle", kaggle=True)
    with pytest.raises(UserError, match=r"list_attr_celeba\.txt .*datasets_images\.md makes it of Kaggle's"):
        prepare("celeba", {"size": 16}, kaggle, tmp_path)
    converted("list_eval_partition", kaggle)
    one, other = (
        read_manifest(prepare("celeba", {"size": 16}, source, tmp_path))
        for source in (write_celeba(tmp_path / "official", kaggle=False), kaggle)
    )
    assert one.fingerprint == other.fingerprint
    assert one.class_counts == other.class_counts


# -- NYUD_MT -----------------------------------------------------------------------------------------------------------

HEIGHT, WIDTH = 24, 32
SIZE = {"size": [HEIGHT, WIDTH], "validation": 0.4}


def write_nyud(root: Path, matlab: bool) -> dict[str, dict[str, np.ndarray]]:
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
            save(root / "normals" / f"{stem}.png", bytes_)
        else:
            save(root / "segmentation" / f"{stem}.png", labels)
            np.save(root / "depth" / f"{stem}.npy", depth)
            np.save(root / "normals" / f"{stem}.npy", normal)
    (root / "gt_sets").mkdir()
    for part, stems in parts.items():
        (root / "gt_sets" / f"{part}.txt").write_text("\n".join(stems) + "\n")
    return frames


@pytest.mark.parametrize("matlab", [False, True])
def test_nyud_mt_becomes_arrays(tmp_path: Path, matlab: bool) -> None:
    frames = write_nyud(tmp_path / "NYUD_MT", matlab)
    with pytest.raises(UserError, match=r"convert another layout as docs/datasets_images\.md says"):
        prepare("nyuv2", SIZE, tmp_path / "NYUD_MT", tmp_path)
    converted("NYUD_MT", tmp_path)
    data = load_prepared(prepare("nyuv2", {**SIZE, "classes": 40}, tmp_path / "nyuv2", tmp_path))
    assert [task.name for task in data.suite.tasks] == ["segmentation", "depth", "normals"]
    table = np.array([-1, *range(40)])
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
