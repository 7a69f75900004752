import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_sets import (
    assert_statistics_of_train,
    by_id,
    ids_by_split,
    picture,
    save,
)
from in_process import prepare
from PIL import Image
from rich.console import Console
from rich.text import Text

from mtlscale.cli.output.preparation import PreparationBar
from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from pipelines.image.celeba import NINE

NAMES = ("Attractive", "Bald", *NINE, "Young")
COUNT = 120  # the own split of the first 60 happens to have none in val


def labels() -> dict[str, list[int]]:
    """Image -> its values, -1 or 1, every attribute with both in every part."""
    return {
        f"{n:06d}.jpg": [1 if (n * (place + 1) + n // 12) % 2 else -1 for place in range(len(NAMES))]
        for n in range(1, COUNT + 1)
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The official files, as small pictures of the official size."""
    root = tmp_path / "celeba"
    rng = np.random.default_rng(0)
    for image in labels():
        save(root / "img_align_celeba" / image, picture(rng, 218, 178))
    write_attributes(root, labels())
    write_partition(root, {image: (n % 6 > 3) + (n % 6 > 4) for n, image in enumerate(labels())})
    return root


def write_attributes(root: Path, values: dict[str, list[int]]) -> None:
    lines = [str(len(values)), " ".join(NAMES) + " "]
    lines += [f"{image} {' '.join(f'{value:2d}' for value in row)}" for image, row in values.items()]
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


def write_partition(root: Path, parts: dict[str, int]) -> None:
    (root / "list_eval_partition.txt").write_text("".join(f"{image} {part}\n" for image, part in parts.items()))


def partition(root: Path) -> dict[str, int]:
    rows = [line.split() for line in (root / "list_eval_partition.txt").read_text().splitlines()]
    return {image: int(part) for image, part in rows}


def test_the_official_partition_with_pixels_and_labels(source: Path, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with PreparationBar(console, "celeba") as bar:
        data = load_prepared(prepare("celeba", {"size": 48}, source, tmp_path, progress=bar))
    rows, written = len(labels()), sum(file.bytes for file in data.manifest.files)
    shown = Text.from_ansi(console.file.getvalue()).plain  # type: ignore[attr-defined]
    counts = rf" {rows} of {rows} rows,( [\d,]+ rows/s,)? {written / 1e6:.1f} MB\b"
    assert "preparing celeba: decode " in shown and re.search(counts, shown)

    assert data.suite.input_kind == "image"
    assert data.suite.input_shape == (3, 48, 48)
    assert [task.name for task in data.suite.tasks] == list(NINE)
    assert {(task.loss, task.outputs) for task in data.suite.tasks} == {("bce", 1)}
    where = by_id(data.folder)
    assert {f"{id}.jpg": SPLITS.index(split) for id, (split, _) in where.items()} == partition(source)
    for id, (split, row) in where.items():
        samples = data.splits[split]["all"]
        expected = Image.open(source / "img_align_celeba" / f"{id}.jpg").resize((48, 48), Image.Resampling.BILINEAR)
        assert np.array_equal(samples.inputs[row].numpy(), np.asarray(expected).transpose(2, 0, 1))
        got = {name: int(samples.targets[name][row]) for name in NINE}
        assert got == {name: int(labels()[f"{id}.jpg"][NAMES.index(name)] == 1) for name in NINE}
    assert_statistics_of_train(data)
    counted = data.manifest.class_counts["Goatee"]["train"]
    assert counted["1"] == int((data.splits["train"]["all"].targets["Goatee"] == 1).sum())
    assert sum(counted.values()) == len(data.splits["train"]["all"])


def test_all_attributes_are_those_of_the_file(source: Path, tmp_path: Path) -> None:
    manifest = read_manifest(prepare("celeba", {"attributes": "all", "size": 8}, source, tmp_path))
    assert [task.name for task in manifest.suite.tasks] == list(NAMES)


def test_zips_and_folders_give_the_same_data(source: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "zipped"
    (zipped / "Img").mkdir(parents=True)
    with zipfile.ZipFile(zipped / "Img" / "img_align_celeba.zip", "w") as archive:
        for path in sorted((source / "img_align_celeba").iterdir()):
            archive.write(path, f"img_align_celeba/{path.name}")
    with zipfile.ZipFile(zipped / "annotations.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in source.glob("*.txt"):
            archive.write(path, path.name)
    one, other = (read_manifest(prepare("celeba", {"size": 8}, path, tmp_path)) for path in (source, zipped))
    assert one.fingerprint == other.fingerprint
    assert one.source.fingerprint != other.source.fingerprint


def test_no_person_is_in_two_splits(source: Path, tmp_path: Path) -> None:
    person = {image: str(n % 20) for n, image in enumerate(labels())}
    (source / "identity_CelebA.txt").write_text("".join(f"{image} {number}\n" for image, number in person.items()))
    ids = ids_by_split(prepare("celeba", {"split": "own", "size": 8}, source, tmp_path))
    assert sum(map(len, ids.values())) == COUNT
    people = [{person[f"{id}.jpg"] for id in ids[split]} for split in SPLITS]
    assert not people[0] & people[1] | people[0] & people[2] | people[1] & people[2]


def test_the_own_split_of_an_image_does_not_depend_on_the_others(source: Path, tmp_path: Path) -> None:
    options = {"split": "own", "size": 8}
    before = by_id(prepare("celeba", options, source, tmp_path))
    (source / "img_align_celeba" / "000007.jpg").unlink()
    after = by_id(prepare("celeba", options, source, tmp_path))
    assert set(before) - set(after) == {"000007"}
    assert all(before[id][0] == split for id, (split, _) in after.items())


@pytest.mark.parametrize("options", [{"split": "own"}, {"split": "official"}])
def test_a_corrupt_image_stops_unless_told_to_skip(source: Path, tmp_path: Path, options: dict[str, str]) -> None:
    (source / "img_align_celeba" / "000003.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    cut = source / "img_align_celeba" / "000005.jpg"
    cut.write_bytes(cut.read_bytes()[:-200])
    message = r"^image img_align_celeba/00000[35]\.jpg is corrupt \(.*; mend it, or pass --skip-bad"
    with pytest.raises(UserError, match=message):
        prepare("celeba", {**options, "size": 8}, source, tmp_path)
    assert not (tmp_path / "data" / "celeba").exists()
    folder = prepare("celeba", {**options, "size": 8}, source, tmp_path, skip_bad=True)
    skipped = read_manifest(folder).notes["skipped"]
    assert skipped["count"] == 2
    assert re.match(r"img_align_celeba/000005\.jpg is corrupt \(image file is truncated", skipped["first"][1])
    assert set(by_id(folder)) == {image[:6] for image in labels()} - {"000003", "000005"}
    assert_statistics_of_train(load_prepared(folder))


def test_a_partition_that_disagrees_with_the_images_is_named(source: Path, tmp_path: Path) -> None:
    parts = partition(source)
    (source / "img_align_celeba" / "000002.jpg").unlink()
    del parts["000004.jpg"]
    write_partition(source, parts)
    with pytest.raises(UserError, match=r"^2 images .*000002\.jpg is in list_eval_partition\.txt, but the image"):
        prepare("celeba", {}, source, tmp_path)
    folder = prepare("celeba", {}, source, tmp_path, skip_bad=True)
    assert read_manifest(folder).notes["skipped"]["first"][1] == "000004.jpg is not in list_eval_partition.txt"
    assert not {"000002", "000004"} & set(by_id(folder))
    write_partition(source, {**parts, "000004.jpg": 7})
    with pytest.raises(UserError, match=r"has 000004\.jpg in part '7', expected 0, 1 or 2"):
        prepare("celeba", {}, source, tmp_path)
    write_partition(source, {image: part for image, part in parts.items() if part} | {"999999.jpg": 0})
    with pytest.raises(UserError, match=r"none of the 119 images is in the train part .* `split: own`"):
        prepare("celeba", {}, source, tmp_path)


def test_labels_that_are_missing_or_odd_are_named(source: Path, tmp_path: Path) -> None:
    values = labels()
    del values["000009.jpg"]
    values["000010.jpg"] = [*values["000010.jpg"][:-1], 0]
    write_attributes(source, values)
    with pytest.raises(UserError, match=r"^2 images .*000009\.jpg is not in list_attr_celeba\.txt"):
        prepare("celeba", {}, source, tmp_path)
    skipped = read_manifest(prepare("celeba", {}, source, tmp_path, skip_bad=True)).notes["skipped"]
    assert skipped["first"][1] == f"000010.jpg has no {len(NAMES)} values of 1 or -1 in list_attr_celeba.txt"
    text = (source / "list_attr_celeba.txt").read_text()
    (source / "list_attr_celeba.txt").write_text(text.replace("119\n", "202599\n", 1))
    with pytest.raises(UserError, match="announces '202599' images and lists 119"):
        prepare("celeba", {}, source, tmp_path)


def test_a_damaged_zip_is_named(source: Path, tmp_path: Path) -> None:
    (source / "broken.zip").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(UserError, match=r"broken\.zip is truncated or is no tar or zip"):
        prepare("celeba", {}, source, tmp_path)


LIMITED = """
import resource, sys
from pathlib import Path
from mtlscale.config import UserError
from mtlscale.execution.preparing.prepare import prepare
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000,) * 2)
try:
    prepare("celeba", {}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local")
except UserError as error:
    print(error)
"""


def test_a_disk_that_fills_while_shards_are_written_leaves_nothing(source: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-c", LIMITED, str(source), str(home)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert output.startswith(f"no space left below {home} (") and output.count("\n") == 1
    assert not (home / "data" / "celeba").exists()
    assert sum(map(len, ids_by_split(prepare("celeba", {}, source, home)).values())) == COUNT


def test_real_images(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "celeba").is_dir():
        pytest.skip("no celeba in the folder of real data")
    options = {"split": "own", "limit": 400}
    data = load_prepared(prepare("celeba", options, shared_data / "celeba", tmp_path))
    assert data.manifest.notes == {"images_found": 10_000, "images_listed": 202_599}
    assert sum(len(data.splits[split]["all"]) for split in SPLITS) == 400
    train = data.splits["train"]["all"]
    assert float((train.targets["No_Beard"] == 1).float().mean()) == pytest.approx(0.83, abs=0.06)
    # Hair, at the top of the head: brighter where it is blond.
    hair = train.inputs[:, :, 4:16, 20:44].float().mean((1, 2, 3))
    assert hair[train.targets["Blond_Hair"] == 1].mean() > hair[train.targets["Black_Hair"] == 1].mean() + 20
    with pytest.raises(UserError, match=r"none of the 10000 images is in the val part.*`split: own`"):
        prepare("celeba", {}, shared_data / "celeba", tmp_path)
