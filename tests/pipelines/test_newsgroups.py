from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import prepare

from mtlscale.config import SPLITS, UserError
from mtlscale.data.format.manifest import SPECIAL_WORDS
from mtlscale.data.readers.prepared import Manifest, load_prepared, read_ids, read_manifest
from pipelines.text.newsgroups import LABELS, OFFICIAL_SPLITS, TOPICS

# Messages in the official train and test parts (README of the data).
OFFICIAL = {
    "comp.graphics": (584, 389),
    "comp.os.ms-windows.misc": (591, 394),
    "comp.sys.mac.hardware": (578, 385),
    "comp.windows.x": (593, 395),
    "rec.autos": (594, 396),
    "rec.motorcycles": (598, 398),
    "rec.sport.baseball": (597, 397),
    "rec.sport.hockey": (600, 399),
    "sci.crypt": (595, 396),
    "sci.electronics": (591, 393),
    "sci.med": (594, 396),
    "sci.space": (593, 394),
    "talk.politics.guns": (546, 364),
    "talk.politics.mideast": (564, 376),
    "talk.politics.misc": (465, 310),
    "talk.religion.misc": (377, 251),
}


def class_count(manifest: Manifest, group: str, *splits: str) -> int:
    return sum(manifest.class_counts[LABELS[group][0]][split][group] for split in splits)


def ids_by_split(folder: Path) -> dict[str, set[str]]:
    return {split: {id for topic in TOPICS for id in read_ids(folder, split, topic)} for split in SPLITS}


@pytest.mark.parametrize(
    ("split", "strip"),
    [
        ("random", []),
        # Both options are tested on messages of a few words, below.
        pytest.param("bydate", ["headers", "footers", "quotes"], marks=pytest.mark.slow),
    ],
)
def test_real_messages(shared_data: Path, tmp_path: Path, split: str, strip: list[str]) -> None:
    source = shared_data / "20newsgroups"
    if not source.is_dir():
        pytest.skip("no 20newsgroups in the folder of real data")
    folder = prepare("newsgroups", {"split": split, "strip": strip}, source, tmp_path)
    manifest = read_manifest(folder)
    dropped = manifest.notes["messages_without_words_dropped"]
    kept = {group: class_count(manifest, group, *SPLITS) for group in LABELS}
    assert sum(kept.values()) + dropped == sum(map(sum, OFFICIAL.values()))
    assert manifest.suite.vocabulary_size == 20_000
    if split == "random":
        assert dropped == 0
        assert kept == {group: sum(counts) for group, counts in OFFICIAL.items()}
        total = sum(kept.values())
        for part, share in (("train", 0.6), ("val", 0.2), ("test", 0.2)):
            assert sum(manifest.counts[topic][part] for topic in TOPICS) / total == pytest.approx(share, abs=0.015)
    else:
        assert 0 < dropped < 500
        for group, (train, test) in OFFICIAL.items():
            assert class_count(manifest, group, "test") == pytest.approx(test, abs=60)
            assert class_count(manifest, group, "train", "val") == pytest.approx(train, abs=60)


def test_four_topics_of_four_groups_with_their_texts(newsgroups_folder: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("newsgroups", {"length": 40}, newsgroups_folder, tmp_path))
    assert [(task.name, task.outputs) for task in data.suite.tasks] == [(topic, 4) for topic in TOPICS]
    words = data.suite.extras["vocabulary"]
    for topic, groups in TOPICS.items():
        for split in SPLITS:
            samples = data.splits[split][topic]
            ids = read_ids(data.folder, split, topic)
            for id, tokens, label in zip(ids, samples.inputs.tolist(), samples.targets[topic].tolist(), strict=True):
                text = [words[token] for token in tokens]
                assert id.startswith(f"{groups[label]}/")
                assert " ".join(text).startswith("from ")
                assert " ".join(groups[label].replace(".", " ").replace("-", " ").split()) in " ".join(text)
                assert "café" in text


def test_the_split_of_a_message_does_not_depend_on_the_others(newsgroups_folder: Path, tmp_path: Path) -> None:
    before = ids_by_split(prepare("newsgroups", {}, newsgroups_folder, tmp_path / "before"))
    (newsgroups_folder / OFFICIAL_SPLITS[0] / "sci.med" / "10003").unlink()
    after = ids_by_split(prepare("newsgroups", {}, newsgroups_folder, tmp_path / "after"))
    for split in SPLITS:
        assert before[split] - after[split] <= {"sci.med/10003"}
        assert after[split] <= before[split]


def test_bydate_keeps_the_official_test_part(newsgroups_folder: Path, tmp_path: Path) -> None:
    ids = ids_by_split(prepare("newsgroups", {"split": "bydate"}, newsgroups_folder, tmp_path))
    assert ids["test"] == {f"{group}/{number}" for group in LABELS for number in range(20_000, 20_009)}
    assert 0 < len(ids["val"]) < len(ids["train"])


def test_the_vocabulary_is_that_of_train_alone(newsgroups_folder: Path, tmp_path: Path) -> None:
    options = {"split": "bydate", "min_count": 2}
    for number in range(20_000, 20_009):
        path = newsgroups_folder / OFFICIAL_SPLITS[1] / "sci.med" / str(number)
        path.write_bytes(path.read_bytes() + b" hapaxtest")
    train = ids_by_split(prepare("newsgroups", options, newsgroups_folder, tmp_path / "first"))["train"]
    group, number = min(train).split("/")
    path = newsgroups_folder / OFFICIAL_SPLITS[0] / group / number
    path.write_bytes(path.read_bytes() + b" traintwice traintwice trainonce")
    data = load_prepared(prepare("newsgroups", options, newsgroups_folder, tmp_path / "second"))
    words = data.suite.extras["vocabulary"]
    assert tuple(words[:2]) == SPECIAL_WORDS
    assert "traintwice" in words
    assert not {"hapaxtest", "trainonce"} & set(words)


def test_stripping_leaves_headers_out(newsgroups_folder: Path, tmp_path: Path) -> None:
    words = load_prepared(prepare("newsgroups", {"strip": ["headers"]}, newsgroups_folder, tmp_path)).suite.extras[
        "vocabulary"
    ]
    assert "café" in words
    assert not {"subject", "from"} & set(words)


@pytest.mark.parametrize("part", ["headers", "footers", "quotes"])
def test_each_part_is_stripped_by_itself(newsgroups_folder: Path, tmp_path: Path, part: str) -> None:
    said = b"From: headerword\nSubject: x\n\nShe writes:\n> quotedword\nkeptword\n\n--\nfooterword\n"
    for path in (newsgroups_folder / OFFICIAL_SPLITS[0] / "sci.med").iterdir():
        path.write_bytes(said)
    folder = prepare("newsgroups", {"strip": [part]}, newsgroups_folder, tmp_path)
    words = load_prepared(folder).suite.extras["vocabulary"]
    of_part = {"headers": "headerword", "footers": "footerword", "quotes": "quotedword"}
    assert {word for word in (*of_part.values(), "keptword") if word not in words} == {of_part[part]}


def test_messages_without_words_are_dropped_and_counted(newsgroups_folder: Path, tmp_path: Path) -> None:
    (newsgroups_folder / OFFICIAL_SPLITS[0] / "sci.med" / "10003").write_bytes(b" \n-- ...\n")
    folder = prepare("newsgroups", {}, newsgroups_folder, tmp_path)
    assert read_manifest(folder).notes["messages_without_words_dropped"] == 1
    assert "sci.med/10003" not in set.union(*ids_by_split(folder).values())


def test_a_document_that_is_not_text_stops_unless_told_to_skip(newsgroups_folder: Path, tmp_path: Path) -> None:
    (newsgroups_folder / OFFICIAL_SPLITS[0] / "sci.med" / "10003").write_bytes(b"\x7fELF\x00\x00")
    (newsgroups_folder / OFFICIAL_SPLITS[0] / "sci.space" / "10004").write_bytes(b"\x00")
    with pytest.raises(UserError, match=r"^2 messages .* first: .*sci\.med/10003 is not text.*--skip-bad"):
        prepare("newsgroups", {}, newsgroups_folder, tmp_path)
    assert not (tmp_path / "data" / "newsgroups").exists()
    folder = prepare("newsgroups", {}, newsgroups_folder, tmp_path, skip_bad=True)
    skipped = read_manifest(folder).notes["skipped"]
    assert skipped["count"] == 2
    assert "sci.med/10003" in skipped["first"][0]
    assert not {"sci.med/10003", "sci.space/10004"} & set.union(*ids_by_split(folder).values())


def test_an_empty_class_is_named(newsgroups_folder: Path, tmp_path: Path) -> None:
    for part in OFFICIAL_SPLITS:
        for path in (newsgroups_folder / part / "rec.autos").iterdir():
            path.unlink()
    with pytest.raises(UserError, match=r"20news-bydate-train/rec\.autos: a class of task rec is empty"):
        prepare("newsgroups", {}, newsgroups_folder, tmp_path)


def test_the_first_missing_folder_is_named(
    newsgroups_folder: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    for group in ("comp.windows.x", "sci.med"):
        for part in OFFICIAL_SPLITS:
            (newsgroups_folder / part / group).rename(tmp_path / f"{part}-{group}")
    with pytest.raises(UserError, match=rf"20news-bydate-train/comp\.windows\.x is missing in {newsgroups_folder}"):
        prepare("newsgroups", {}, newsgroups_folder, tmp_path)
    archive = pack(newsgroups_folder, tmp_path / "20news-bydate.tar.xz")
    with pytest.raises(UserError, match=rf"{archive} has no message in 20news-bydate-train/comp\.windows\.x"):
        prepare("newsgroups", {}, archive, tmp_path)


def test_another_folder_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{tmp_path} has neither 20news-bydate-train/.* nor 20news-bydate\.tar\.xz"):
        prepare("newsgroups", {}, tmp_path, tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        prepare("newsgroups", {}, tmp_path / "nowhere", tmp_path)


def test_unknown_parts_to_strip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="strip = 'header' is none of headers, footers, quotes"):
        prepare("newsgroups", {"strip": ["header"]}, None, tmp_path)
