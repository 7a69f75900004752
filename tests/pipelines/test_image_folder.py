"""Pictures of a user's own in a folder: labels in a table or in the names of folders, and what is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from image_sets import picture, save

from mtlscale.config import SPLITS, UserError
from mtlscale.data import PreparedData
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare

COUNT = 60
BLACK = np.zeros((9, 9, 3), "u1")
Ready = Callable[..., PreparedData]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty pictures and their labels: a class, a number with gaps, and tags."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    for number in range(COUNT):
        save(folder / "all" / f"{number:03d}.jpg", picture(rng, 20, 24))
    frame = pd.DataFrame({"photo": [f"{number:03d}.jpg" for number in range(COUNT)]})
    frame["kind"] = rng.choice(["cat", "dog", "owl"], COUNT)
    frame["weight"] = rng.normal(40, 5, COUNT)
    frame.loc[::6, "weight"] = np.nan
    frame["tags"] = [";".join(tag for tag in ("old", "red") if rng.random() > 0.5) for _ in range(COUNT)]
    frame.to_csv(folder / "labels.csv", index=False)
    return folder


@pytest.fixture
def ready(folder: Path, tmp_path: Path) -> Ready:
    def make(**options: Any) -> PreparedData:
        skip_bad = options.pop("skip_bad", False)
        return load_prepared(
            prepare("image_folder", {"size": 16, **options}, folder, tmp_path / "home", skip_bad=skip_bad)
        )

    return make


def test_every_column_of_the_labels_is_a_task(ready: Ready, folder: Path) -> None:
    data, labels = ready(), pd.read_csv(folder / "labels.csv")
    assert [task.name for task in data.suite.tasks] == ["kind", "weight", "tags_old", "tags_red"]
    assert data.suite.input_shape == (3, 16, 16) and len(data.suite.extras["mean"]) == 3
    mean, deviation = data.suite.extras["target_scaling"]["weight"]
    for split in SPLITS:
        ids, samples = read_ids(data.folder, split, "all"), data.splits[split]["all"]
        rows = [int(Path(id).stem) for id in ids]
        kinds = [data.suite.tasks[0].classes[code] for code in samples.targets["kind"]]
        assert kinds == labels["kind"][rows].tolist()
        np.testing.assert_allclose(samples.targets["weight"] * deviation + mean, labels["weight"][rows], rtol=1e-4)
    assert sum(data.manifest.counts["weight"].values()) == 50 and sum(data.manifest.counts["kind"].values()) == COUNT


def test_chosen_targets_groups_and_a_parquet_file_with_stems(ready: Ready, folder: Path) -> None:
    labels = pd.read_csv(folder / "labels.csv").assign(shelter=[row % 12 for row in range(COUNT)])
    labels["photo"] = labels["photo"].str.removesuffix(".jpg")
    (folder / "labels.csv").unlink()
    labels.to_parquet(folder / "labels.parquet")
    data = ready(targets={"kind": "class"}, group="shelter")
    shelters = [{int(Path(id).stem) % 12 for id in read_ids(data.folder, split, "all")} for split in SPLITS]
    assert sum(map(len, shelters)) == 12 == len(set().union(*shelters))


def test_folders_of_classes_and_of_splits(folder: Path, ready: Ready) -> None:
    (folder / "labels.csv").unlink()
    for number, path in enumerate(sorted((folder / "all").iterdir())):
        part = folder / ("train" if number < 40 else "test") / ("cat" if number % 2 else "dog")
        part.mkdir(parents=True, exist_ok=True)
        path.rename(part / path.name)
    data = ready()
    assert data.manifest.counts == {"class": {"train": 32, "val": 8, "test": 20}}
    assert data.suite.tasks[0].classes == ("cat", "dog")
    (folder / "test").rename(folder / "late")
    assert ready().manifest.counts["class"] == {"train": 38, "val": 10, "test": 12}


def test_pictures_in_a_zip_give_the_same_samples(folder: Path, ready: Ready) -> None:
    known = ready().manifest.fingerprint
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for path in sorted((folder / "all").iterdir()):
            archive.write(path, f"all/{path.name}")
            path.unlink()
    assert ready().manifest.fingerprint == known


def test_pictures_may_stay_encoded_and_be_limited(ready: Ready) -> None:
    data = ready(encoded=True, limit=40, targets={"kind": "class"})
    assert data.manifest.types["input"] == "encoded" and sum(data.manifest.counts["kind"].values()) == 40


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda f: save(f / "new.jpg", BLACK), "new.jpg is a picture that labels.csv does not name"),
        (lambda f: (f / "all" / "007.jpg").unlink(), "labels.csv row 8 names '007.jpg', which is not in the folder"),
        (lambda f: add(f, "009.jpg,cat,41,old"), "labels.csv row 61 names all/009.jpg, as row 10 does"),
        (lambda f: add(f, "009.jpg,cat,41,old,more"), "row 61 has 5 fields, not 4"),
    ],
)  # fmt: skip
def test_a_picture_without_a_row_and_a_row_without_a_picture(
    change: Callable[[Path], Any], expected: str, folder: Path, ready: Ready
) -> None:
    change(folder)
    with pytest.raises(UserError, match=f"^1 image cannot be used, the first: {expected}; mend or pass --skip-bad$"):
        ready()
    manifest = read_manifest(ready(skip_bad=True).folder)
    assert manifest.notes["skipped"]["count"] == 1 and sum(manifest.counts["kind"].values()) in (COUNT, COUNT - 1)


def add(folder: Path, line: str) -> None:
    with (folder / "labels.csv").open("a") as file:
        file.write(f"{line}\n")


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (None, {"labels": "other.csv"}, "image_folder: other.csv is missing in .*, which has labels.csv"),
        (None, {"image": "foto"}, "image_folder: labels.csv has no column 'foto'; did you mean photo"),
        (None, {"targets": {"knd": "class"}}, "image_folder: there is no column 'knd'; did you mean kind"),
        (None, {"targets": {"kind": "clas"}}, "image_folder: target 'kind' is of kind 'clas'; choose"),
        (None, {"group": "shelter"}, "image_folder: there is no column 'shelter'; .*; correct `group`"),
        (None, {"image": "kind"}, "image_folder: column 'kind' of labels.csv names no picture of the folder"),
        (lambda f: (f / "labels.csv").write_text("a,b\n1,2\n"), {}, "image_folder: no column of labels.csv"),
        (lambda f: (f / "more.csv").write_text("a,b\n1,2\n"), {}, "image_folder: .* holds labels.csv, more.csv"),
        (lambda f: [p.unlink() for p in (f / "all").iterdir()], {}, "image_folder: .* has no picture"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line(
    change: Callable[[Path], Any] | None, options: dict[str, Any], expected: str, folder: Path, ready: Ready
) -> None:
    if change is not None:
        change(folder)
    with pytest.raises(UserError, match=f"^{expected}") as caught:
        ready(**options)
    assert "\n" not in str(caught.value)
