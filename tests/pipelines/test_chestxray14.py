"""Files written in the layout of ChestX-ray14's."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_sets import (
    IN_PROCESS,
    assert_same_bytes,
    assert_statistics_of_train,
    by_id,
    ids_by_split,
    picture,
    save,
)
from PIL import Image

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from mtlscale.execution.preparing.prepare import prepare
from pipelines.image.chestxray14 import FINDINGS, NO_FINDING

PATIENTS, TESTED = 60, 12  # with two images each; the last are the test list's
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)


def images() -> dict[str, tuple[int, set[str]]]:
    """Image -> patient and findings; every finding occurs in every part."""
    found = {}
    for patient in range(1, PATIENTS + 1):
        for visit in range(2):
            number = 2 * patient + visit
            named = {FINDINGS[number % 14], FINDINGS[(number * 5 + 3) % 14]} if number % 4 else set()
            found[f"{patient:08d}_{visit:03d}.png"] = (patient, named)
    return found


def is_test(patient: int) -> bool:
    return patient > PATIENTS - TESTED


def write_table(root: Path, changes: dict[str, str] | None = None) -> None:
    lines = [HEADER]
    for image, (patient, named) in images().items():
        labels = (changes or {}).get(image, "|".join(sorted(named)) or NO_FINDING)
        lines.append(f"{image},{labels},0,{patient},58,M,PA,2682,2749,0.143,0.143,")
    (root / "Data_Entry_2017.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root, rng = tmp_path / "chestxray14", np.random.default_rng(0)
    for number, image in enumerate(images()):
        path = root / f"images_{1 + number % 3:03d}" / "images" / image
        save(path, picture(rng, 40, 36))
        Image.open(path).convert("RGBA" if number == 5 else "L").save(path)
    write_table(root)
    for file, test in (("train_val_list.txt", False), ("test_list.txt", True)):
        names = [image for image, (patient, _) in images().items() if is_test(patient) == test]
        (root / file).write_text("\n".join(names))
    return root


def patients(ids: set[str]) -> set[str]:
    return {id.partition("_")[0] for id in ids}


def test_pixels_findings_and_lists(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("chestxray14", {"size": 16}, source, tmp_path))
    assert [task.name for task in data.suite.tasks] == list(FINDINGS) and data.suite.input_shape == (3, 16, 16)
    assert {(task.loss, task.outputs, task.metrics[0]) for task in data.suite.tasks} == {("bce", 1, "auroc")}
    where = by_id(data.folder)
    assert {f"{id}.png" for id in where} == set(images())
    for id, (split, row) in where.items():
        patient, named = images()[f"{id}.png"]
        assert (split == "test") == is_test(patient)
        samples = data.splits[split]["all"]
        (path,) = source.glob(f"*/images/{id}.png")
        expected = Image.open(path).convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
        assert np.array_equal(samples.inputs[row].numpy(), np.asarray(expected).transpose(2, 0, 1))
        assert {name for name in FINDINGS if int(samples.targets[name][row])} == named
    assert_statistics_of_train(data)


@pytest.mark.parametrize("split", ["official", "own"])
def test_no_patient_is_in_two_splits(split: str, source: Path, tmp_path: Path) -> None:
    ids = ids_by_split(prepare("chestxray14", {"size": 8, "split": split}, source, tmp_path))
    people = [patients(ids[part]) for part in SPLITS]
    assert all(people) and sum(map(len, people)) == PATIENTS
    assert not people[0] & people[1] | people[0] & people[2] | people[1] & people[2]


def test_one_folder_and_zips_give_the_same_data(source: Path, tmp_path: Path) -> None:
    flat, zipped = tmp_path / "flat", tmp_path / "zipped"
    (flat / "images").mkdir(parents=True)
    zipped.mkdir()
    for path in source.glob("*.*"):
        for other in (flat, zipped):
            (other / path.name.replace("2017.csv", "2017_v2020.csv")).write_bytes(path.read_bytes())
    with zipfile.ZipFile(zipped / "images.zip", "w") as archive:
        for path in source.glob("*/images/*.png"):
            (flat / "images" / path.name).write_bytes(path.read_bytes())
            archive.write(path, f"images/{path.name}")
    found = [read_manifest(prepare("chestxray14", {"size": 8}, at, tmp_path)) for at in (source, flat, zipped)]
    assert len({manifest.fingerprint for manifest in found}) == 1


def test_pictures_that_stay_encoded_are_the_same_twice(source: Path, tmp_path: Path) -> None:
    assert_same_bytes("chestxray14", {"size": 8, "encoded": True}, source, tmp_path / "kept", IN_PROCESS[:2])


def test_findings_without_a_picture_are_told_or_stop_it(source: Path, tmp_path: Path) -> None:
    ill = {image: patient for image, (patient, named) in images().items() if "Hernia" in named}
    write_table(source, {image: NO_FINDING for image, patient in ill.items() if is_test(patient)})
    manifest = read_manifest(prepare("chestxray14", {"size": 8}, source, tmp_path))
    assert manifest.notes["without_positives"]["test"] == ["Hernia"]
    write_table(source, dict.fromkeys(ill, NO_FINDING))
    with pytest.raises(UserError, match="class 1 of task Hernia is empty: it has no training sample"):
        prepare("chestxray14", {"size": 8}, source, tmp_path)


def test_pictures_and_lists_that_disagree(source: Path, tmp_path: Path) -> None:
    first, second, third = list(images())[:3]
    next(source.glob(f"*/images/{first}")).unlink()
    write_table(source, {second: "Mass|Gout"})
    next(source.glob(f"*/images/{third}")).write_bytes(b"\x89PNG no picture")
    (source / "images_001" / "images" / "99999999_000.png").write_bytes(b"")
    with pytest.raises(
        UserError, match=rf"^3 images .* first: {first} is in train_val_list\.txt, but the image is missin"
    ):
        prepare("chestxray14", {"size": 8}, source, tmp_path)
    folder = prepare("chestxray14", {"size": 8}, source, tmp_path, skip_bad=True)
    assert read_manifest(folder).notes["skipped"]["count"] == 4
    assert {f"{id}.png" for id in by_id(folder)} == set(images()) - {first, second, third}


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("Data_Entry_2017.csv", "Image,Label\n", "has no column 'Image Index'; fetch it again"),
        ("test_list.txt", "00000001_000.png", r"patient of 00000001_000\.png is in test_list\.txt and in train_val"),
        ("test_list.txt", "../a.png", r"test_list\.txt names '\.\./a\.png', which is no image"),
        ("test_list.txt", "99999999_000.png", r"none of the 120 images is in test_list\.txt; add the missing"),
    ],
)
def test_a_bad_file_is_one_line(file: str, content: str, said: str, source: Path, tmp_path: Path) -> None:
    (source / file).write_text(content)
    with pytest.raises(UserError, match=f"^chestxray14: .*{said}") as caught:
        prepare("chestxray14", {"size": 8}, source, tmp_path)
    assert "\n" not in str(caught.value)
