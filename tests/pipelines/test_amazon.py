from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from in_process import prepare

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from pipelines.text.amazon import MOVIES, PRODUCTS, UNLABELLED

# Reviews in the train file, and distinct lines of it that are in the test file (README of the data; dvd has one more,
# whose bytes are UTF-8 in both files).
OFFICIAL = {
    "apparel": 1600,
    "baby": 1500,
    "books": 1600,
    "camera_photo": 1597,
    "dvd": 1600,
    "electronics": 1598,
    "health_personal_care": 1600,
    "kitchen_housewares": 1600,
    "magazines": 1570,
    "music": 1600,
    "software": 1515,
    "sports_outdoors": 1600,
    "toys_games": 1600,
    "video": 1600,
    "imdb": 1600,
    "MR": 1600,
}


@pytest.fixture
def real(shared_data: Path) -> Path:
    if not (shared_data / "fdu_mtl").is_dir():
        pytest.skip("no fdu_mtl in the folder of real data")
    return shared_data / "fdu_mtl"


def texts(folder: Path, split: str, domain: str) -> list[str]:
    data = load_prepared(folder, [split])
    words = data.suite.extras["vocabulary"]
    return [" ".join(words[token] for token in row if token) for row in data.splits[split][domain].inputs.tolist()]


def edit(fdu_folder: Path, name: str, line: bytes) -> None:
    """Put a line at the end of a file."""
    with (fdu_folder / "mtl-dataset" / name).open("ab") as file:
        file.write(line + b"\n")


def test_real_reviews_have_the_published_counts(real: Path, tmp_path: Path) -> None:
    manifest_folder = prepare("amazon", {}, real, tmp_path)
    manifest = read_manifest(manifest_folder)
    assert tuple(manifest.counts) == PRODUCTS
    assert sum(counts["train"] + counts["val"] for counts in manifest.counts.values()) == 22_180
    assert sum(counts["test"] for counts in manifest.counts.values()) == 5_600
    seen = manifest.notes["test_texts_in_train_or_val"]
    assert (sum(seen.values()), seen["magazines"], seen["video"]) == (559, 169, 107)
    data = load_prepared(manifest_folder)
    assert {split: sum(map(len, data.splits[split].values())) for split in ("test", "test_unseen")} == {
        "test": 5_600,
        "test_unseen": 5_041,
    }
    for domain, train in OFFICIAL.items():
        if domain in PRODUCTS:
            assert manifest.counts[domain]["train"] + manifest.counts[domain]["val"] == train
    assert manifest.class_counts["books"]["test"] == {"negative": 198, "positive": 202}
    assert manifest.notes["reviews_without_words"] == 1
    assert next(file for file in manifest.files if file.path == UNLABELLED).rows == 30_475 - 2 * 2_000
    assert manifest.suite.vocabulary_size == 20_000


def test_real_movies_and_dropped_duplicates(real: Path, tmp_path: Path) -> None:
    options = {"domains": ["dvd", "video", *MOVIES], "drop_duplicates": True}
    folder = prepare("amazon", options, real, tmp_path)
    manifest = read_manifest(folder)
    assert manifest.counts["MR"]["train"] + manifest.counts["MR"]["val"] == 1600
    assert manifest.class_counts["imdb"]["test"] == {"negative": 201, "positive": 199}
    # 223 and 14 lines that are in the test part of their own domain, 17 and 15 in that of the other.
    assert manifest.notes["duplicates_dropped"] == 240 + 29
    assert sum(counts["train"] + counts["val"] for counts in manifest.counts.values()) == 4 * 1600 - 269


def test_the_official_test_part_and_a_tenth_for_validation(fdu_folder: Path, tmp_path: Path) -> None:
    folder = prepare("amazon", {}, fdu_folder, tmp_path)
    manifest = read_manifest(folder)
    for domain in PRODUCTS:
        assert manifest.counts[domain]["train"] + manifest.counts[domain]["val"] == 30
        assert set(read_ids(folder, "test", domain)) == {f"{domain}/test/{n:06d}" for n in range(1, 11)}
    held_out = sum(counts["val"] for counts in manifest.counts.values())
    assert held_out / (30 * len(PRODUCTS)) == pytest.approx(0.1, abs=0.04)


def test_rows_are_the_reviews_of_the_files(fdu_folder: Path, tmp_path: Path) -> None:
    folder = prepare("amazon", {}, fdu_folder, tmp_path)
    lines = (fdu_folder / "mtl-dataset" / "music.task.train").read_text().splitlines()
    rows = 0
    for split in ("train", "val"):
        samples = load_prepared(folder, [split]).splits[split]["music"]
        for id, text, label in zip(
            read_ids(folder, split, "music"),
            texts(folder, split, "music"),
            samples.targets["music"].tolist(),
            strict=True,
        ):
            expected = lines[int(id.rsplit("/", 1)[1]) - 1].split()
            assert label == int(expected[0])
            assert all(a in (b, "<unk>") for a, b in zip(text.split(), expected[1:], strict=True))
            rows += 1
    assert rows == 30


@pytest.mark.parametrize("split", ["fdu", "aamtrl"])
def test_a_text_is_never_in_train_and_validation(fdu_folder: Path, tmp_path: Path, split: str) -> None:
    repeated = [b"same words number %d here" % number for number in range(20)]
    for number, text in enumerate(repeated):
        edit(fdu_folder, "books.task.train", b"1\t" + text)
        edit(fdu_folder, ("books" if number % 2 else "music") + ".task.train", b"0\t" + text)
    options = {"split": split, "domains": ["books", "music"], "validation": 0.4}
    folder = prepare("amazon", options, fdu_folder, tmp_path)
    ids = {split: {id for domain in ("books", "music") for id in read_ids(folder, split, domain)} for split in SPLITS}
    lines = {
        domain: (fdu_folder / "mtl-dataset" / f"{domain}.task.train").read_text().splitlines()
        for domain in ("books", "music")
    }
    where: dict[str, set[str]] = {}
    for part, members in ids.items():
        for id in members:
            domain, file, number = id.split("/")
            if file == "train":
                where.setdefault(lines[domain][int(number) - 1][2:], set()).add(part)
    assert {len(where[text.decode()]) for text in repeated} == {1}
    assert len({split for text in repeated for split in where[text.decode()]}) > 1


def test_aamtrl_is_70_10_20_of_all_labelled_reviews(fdu_folder: Path, tmp_path: Path) -> None:
    counts = read_manifest(prepare("amazon", {"split": "aamtrl"}, fdu_folder, tmp_path)).counts
    total = 40 * len(PRODUCTS)
    for split, share in (("train", 0.7), ("test", 0.1), ("val", 0.2)):
        assert sum(task[split] for task in counts.values()) / total == pytest.approx(share, abs=0.05)


def test_duplicates_across_train_and_test_are_counted_and_can_be_dropped(fdu_folder: Path, tmp_path: Path) -> None:
    for name in ("books.task.train", "books.task.train", "books.task.test", "music.task.train"):
        edit(fdu_folder, name, b"1\tthe same leaked review")
    kept_folder = prepare("amazon", {}, fdu_folder, tmp_path)
    kept = read_manifest(kept_folder)
    seen = kept.notes["test_texts_in_train_or_val"]
    assert {domain: count for domain, count in seen.items() if count} == {"books": 1}
    assert kept.splits == ("train", "val", "test", "test_unseen")
    unseen = load_prepared(kept_folder).splits["test_unseen"]
    assert {domain: len(unseen[domain]) - kept.counts[domain]["test"] for domain in PRODUCTS if domain in unseen} == {
        domain: -(domain == "books") for domain in PRODUCTS
    }
    assert kept.counts["books"]["train"] + kept.counts["books"]["val"] == 32
    folder = prepare("amazon", {"drop_duplicates": True}, fdu_folder, tmp_path)
    dropped = read_manifest(folder)
    assert dropped.notes["duplicates_dropped"] == 3
    assert dropped.splits == SPLITS
    assert dropped.counts["books"]["train"] + dropped.counts["books"]["val"] == 30
    assert dropped.counts["music"]["train"] + dropped.counts["music"]["val"] == 30
    assert dropped.counts["books"]["test"] == 11
    assert "leaked" not in load_prepared(folder).suite.extras["vocabulary"]


def test_unlabelled_text_is_kept_unless_told_not_to(fdu_folder: Path, tmp_path: Path) -> None:
    folder = prepare("amazon", {}, fdu_folder, tmp_path)
    table = pq.read_table(folder / UNLABELLED)
    assert len(table) == 5 * len(PRODUCTS)
    assert table["text"][0].as_py() == (fdu_folder / "mtl-dataset" / "apparel.task.unlabel").read_text().split("\n")[0]
    without = prepare("amazon", {"keep_unlabelled": False}, fdu_folder, tmp_path)
    assert not (without / UNLABELLED).exists()


def test_reviews_without_words_are_one_unknown_word_and_counted(fdu_folder: Path, tmp_path: Path) -> None:
    edit(fdu_folder, "books.task.test", b"1\t ")
    edit(fdu_folder, "books.task.test", b"")  # a blank line is none
    folder = prepare("amazon", {}, fdu_folder, tmp_path)
    assert read_manifest(folder).notes["reviews_without_words"] == 1
    assert read_manifest(folder).counts["books"]["test"] == 11
    assert texts(folder, "test", "books")[-1] == "<unk>"


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("books.task.train", b"2\ta label outside the set", r"books\.task\.train line 31 has the label '2'"),
        ("books.task.test", b"no label at all", r"books\.task\.test line 11 has the label 'no label at all'"),
        ("books.task.train", "1\tcaf\xe9".encode("latin-1"), r"books\.task\.train line 31 is not UTF-8"),
        ("books.task.unlabel", b"\xff\xfe", r"books\.task\.unlabel line 6 is not UTF-8"),
    ],
)
def test_a_bad_line_stops_unless_told_to_skip(
    fdu_folder: Path, tmp_path: Path, name: str, line: bytes, message: str
) -> None:
    edit(fdu_folder, name, line)
    with pytest.raises(UserError, match=f"^1 review .*{message}.*--skip-bad"):
        prepare("amazon", {}, fdu_folder, tmp_path)
    manifest = read_manifest(prepare("amazon", {}, fdu_folder, tmp_path, skip_bad=True))
    assert manifest.notes["skipped"]["count"] == 1
    assert manifest.counts["books"]["train"] + manifest.counts["books"]["val"] == 30
    assert manifest.counts["books"]["test"] == 10


def test_lines_in_latin1_are_read_where_the_set_has_them(fdu_folder: Path, tmp_path: Path) -> None:
    for number in range(6):
        for text in (f"caf\xe9 {number}".encode("latin-1"), f"na\xefve {number}".encode()):
            edit(fdu_folder, "dvd.task.train", b"1\t" + text)
    words = load_prepared(prepare("amazon", {}, fdu_folder, tmp_path)).suite.extras["vocabulary"]
    assert {"caf\xe9", "na\xefve"} <= set(words)


def test_a_missing_domain_file_is_named(fdu_folder: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]) -> None:
    for name in ("baby.task.test", "music.task.train"):
        (fdu_folder / "mtl-dataset" / name).unlink()
    with pytest.raises(UserError, match=r"baby\.task\.test is missing in .*mtl-dataset"):
        prepare("amazon", {}, fdu_folder, tmp_path)
    archive = pack(fdu_folder, tmp_path / "fdu-mtl-dataset.tar.xz")
    with pytest.raises(UserError, match=r"has no baby\.task\.test; domains it has: apparel, baby"):
        prepare("amazon", {}, archive, tmp_path)
    with pytest.raises(UserError, match="each domain once"):
        prepare("amazon", {"domains": ["books", "books"]}, fdu_folder, tmp_path)


REVIEW = """<review>
<unique_id>
{id}
</unique_id>
<rating>
{rating}
</rating>
<title>
Not & escaped <b>
</title>
<review_text>
{text}
</review_text>
</review>
"""


@pytest.fixture
def raw_folder(tmp_path: Path) -> Path:
    """Blitzer's layout: two domains, ratings 1, 2, 4, 5 and, left out, 3."""
    root = tmp_path / "raw" / "sorted_data_acl"
    for domain in ("books", "kitchen_&_housewares"):
        (root / domain).mkdir(parents=True)
        for part, ratings in (("positive", "4.0 5.0 3.0"), ("negative", "1.0 2.0"), ("unlabeled", "4.0")):
            reviews = [
                REVIEW.format(
                    id=f"{n}:x", rating=rating, text=f"It's {part}, caf\xe9 & co. number{n} <3 of {rating[0]} stars"
                )
                for n in range(20)
                for rating in ratings.split()
            ]
            (root / domain / f"{part}.review").write_bytes("".join(reviews).encode("latin-1"))
    return root.parent


RAW = {"domains": ["books", "kitchen_housewares"]}


def test_raw_reviews_are_rated_by_their_stars(raw_folder: Path, tmp_path: Path) -> None:
    folder = prepare("amazon", RAW, raw_folder, tmp_path)
    manifest = read_manifest(folder)
    for domain in RAW["domains"]:
        for label in ("positive", "negative"):
            assert sum(manifest.class_counts[domain][split][label] for split in SPLITS) == 40
        for split in SPLITS:
            labels = load_prepared(folder, [split]).splits[split][domain].targets[domain].tolist()
            for text, label in zip(texts(folder, split, domain), labels, strict=True):
                assert ("positive" if label else "negative") in text
                assert "café co" in text and "escaped" not in text
    unlabelled = pq.read_table(folder / UNLABELLED)
    assert len(unlabelled) == 40
    assert "unlabeled" in unlabelled["text"][0].as_py()


def test_a_raw_archive_is_read_as_its_folder(
    raw_folder: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    archive = pack(raw_folder, tmp_path / "domain_sentiment_data.tar.gz")
    folders = [prepare("amazon", RAW, source, tmp_path) for source in (raw_folder, archive)]
    assert folders[0] != folders[1]
    assert read_manifest(folders[0]).fingerprint == read_manifest(folders[1]).fingerprint


def test_a_raw_domain_that_is_not_there_is_named(raw_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no apparel/positive\.review; domains it has: books, kitchen_housewares"):
        prepare("amazon", {}, raw_folder, tmp_path)


@pytest.mark.parametrize(
    ("review", "message"),
    [
        (REVIEW.format(id="x", rating="five", text="good"), "has the rating 'five', which is not 1 to 5 stars"),
        (REVIEW.format(id="x", rating="5.0", text="good")[:-20], "is cut off"),
    ],
)
def test_a_bad_raw_review_is_named(raw_folder: Path, tmp_path: Path, review: str, message: str) -> None:
    with (raw_folder / "sorted_data_acl" / "books" / "negative.review").open("a") as file:
        file.write(review)
    with pytest.raises(UserError, match=f"books/negative.review review 41 {message}"):
        prepare("amazon", RAW, raw_folder, tmp_path)
    assert read_manifest(prepare("amazon", RAW, raw_folder, tmp_path, skip_bad=True)).notes["skipped"]["count"] == 1
