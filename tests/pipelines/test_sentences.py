from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare
from pipelines.text.sentences import DEFAULT, SETS

# Lines in the files (README of the data).
ROWS = {"MR": 10662, "SUBJ": 10000, "CR": 3775, "MPQA": 10606, "TREC": 5952, "SST-1": 11855, "SST-2": 9613}
COUNT = 80


def sentence(task: str, number: int) -> str:
    """MR, SUBJ and SST share every other one."""
    if task in ("MR", "SUBJ", "SST-2") and number % 2:
        return f"the film number {number} is so shared -"
    return f"{task} has the café sentence {number}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "sentence_tasks"
    root.mkdir()
    for task, known in SETS.items():
        for part, file in known.files.items():
            numbers = (
                range(COUNT) if part in ("", "train") else range(1000, 1020) if part == "test" else range(500, 520)
            )
            lines = [f"{n // 2 % len(known.classes)} {sentence(task, n)} ." for n in numbers]
            (root / file).write_bytes("".join(f"{line}\n" for line in lines).encode(known.encoding))
    return root


def where(folder: Path) -> dict[str, str]:
    """id -> split."""
    return {id: split for split in SPLITS for task in DEFAULT for id in read_ids(folder, split, task)}


def test_tasks_classes_and_words(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("sentences", {}, source, tmp_path / "home"))
    assert {task.name: task.outputs for task in data.suite.tasks} == {
        "MR": 2, "SUBJ": 2, "CR": 2, "MPQA": 2, "TREC": 6, "SST-2": 2
    }  # fmt: skip
    words = data.suite.extras["vocabulary"]
    assert "café" in words and "." not in words
    for split in SPLITS:
        samples = data.splits[split]["TREC"]
        for id, label in zip(read_ids(data.folder, split, "TREC"), samples.targets["TREC"].tolist(), strict=True):
            part, line = id.removeprefix("TREC/")[:-6], int(id[-6:])
            assert label == (line - 1 + (1000 if part == "test" else 0)) // 2 % 6


def test_a_sentence_is_in_one_split_in_all_tasks(source: Path, tmp_path: Path) -> None:
    folder = prepare("sentences", {}, source, tmp_path / "home")
    found = where(folder)
    for number in range(1, COUNT, 2):
        assert (
            len(
                {found[f"{task}/{number + 1:06d}"] for task in ("MR", "SUBJ")} | {found[f"SST-2/train{number + 1:06d}"]}
            )
            == 1
        )
    notes = read_manifest(folder).notes
    assert notes["sentences_in_several_tasks"] == dict.fromkeys(("MR", "SUBJ", "SST-2"), COUNT // 2)
    assert "test_texts_in_train_or_val" not in notes


def test_official_parts_stay_and_draw_others_along(source: Path, tmp_path: Path) -> None:
    lines = [f"1 {sentence('SST-2', number)} ." for number in range(1001, 1021, 2)]
    (source / "subj.all").write_text((source / "subj.all").read_text("latin-1") + "\n".join(lines), "latin-1")
    folder = prepare("sentences", {"split": "official"}, source, tmp_path / "home")
    found = where(folder)
    for id, split in found.items():
        task, part = id.split("/")[0], id.split("/")[1][:-6]
        assert part in ("", split) or (task == "TREC" and (part, split) == ("train", "val"))
    for number in range(1, COUNT, 2):  # in SST's training part, so in training
        assert found[f"MR/{number + 1:06d}"] == "train"
    assert {found[f"SUBJ/{COUNT + 1 + n:06d}"] for n in range(10)} == {"test"}
    assert 0 < read_manifest(folder).counts["TREC"]["val"] < COUNT / 3
    assert "test_texts_in_train_or_val" not in read_manifest(folder).notes


def test_bad_sources_get_one_line(source: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(UserError, match=r"^sentences: tasks has 'SST2'; did you mean SST-2"):
        prepare("sentences", {"tasks": ["SST2"]}, source, home)
    with pytest.raises(UserError, match="should name each set once"):
        prepare("sentences", {"tasks": ["MR", "MR"]}, source, home)
    (source / "custrev.all").write_text((source / "custrev.all").read_text() + "7 none\nwithout\n")
    with pytest.raises(
        UserError, match=r"2 lines .* first: custrev\.all line 81 begins with '7', which is no class of C"
    ):
        prepare("sentences", {}, source, home)
    folder = prepare("sentences", {}, source, home, skip_bad=True)
    assert sum(read_manifest(folder).counts["CR"].values()) == COUNT
    (source / "mpqa.all").unlink()
    with pytest.raises(UserError, match=r"sentences: mpqa\.all is missing in"):
        prepare("sentences", {}, source, home)
    prepare("sentences", {"tasks": ["MR", "TREC"]}, source, home)
    (source / "stsa.binary.dev").write_bytes(b"1 caf\xe9\n")
    with pytest.raises(UserError, match=r"stsa\.binary\.dev is not utf-8 .*; fetch it again"):
        prepare("sentences", {"tasks": ["SST-2"]}, source, home)


def test_an_archive_with_unsafe_members_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "sentence_tasks.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("../rt-polarity.all")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"1 a\n"))
    with pytest.raises(UserError, match=r"unsafe member '\.\./rt-polarity\.all'"):
        prepare("sentences", {}, tmp_path, tmp_path / "home")


@pytest.mark.parametrize("split", [pytest.param("own", marks=pytest.mark.slow), "official"])
def test_the_sets_themselves(shared_data: Path, tmp_path: Path, split: str) -> None:
    source = shared_data / "sentence_tasks"
    if not source.is_dir():
        pytest.skip("no sentence_tasks in the folder of real data")
    manifest = read_manifest(prepare("sentences", {"split": split}, source, tmp_path))
    for task in DEFAULT:
        assert sum(manifest.counts[task].values()) == ROWS[task]
    if split == "own":
        assert "test_texts_in_train_or_val" not in manifest.notes
        for task in DEFAULT:
            assert 0.78 < manifest.counts[task]["train"] / ROWS[task] < 0.82
    else:
        assert manifest.counts["SST-2"] == {"train": 6920, "val": 872, "test": 1821}
        assert manifest.counts["TREC"]["test"] == 500
        assert manifest.notes["test_texts_in_train_or_val"] == {"SST-2": 2, "TREC": 11}
