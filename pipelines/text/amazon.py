"""Sentiment of product reviews by domain, from the files of FDU-MTL or of Blitzer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import Task, UserError, knob
from mtlscale.data.format.texts import latin1_words, split_words
from mtlscale.data.sampling.splits import carve_validation, hash_split
from pipelines._formats.archive import read_members
from pipelines._texts.pretrained_texts import PretrainedTexts
from pipelines._texts.token_ids import TextOptions, encode_samples, text_suite, text_tables
from pipelines.contract import PrepareContext, Prepared

PRODUCTS = (
    "apparel",
    "baby",
    "books",
    "camera_photo",
    "dvd",
    "electronics",
    "health_personal_care",
    "kitchen_housewares",
    "magazines",
    "music",
    "software",
    "sports_outdoors",
    "toys_games",
    "video",
)
MOVIES = ("imdb", "MR")
CLASSES = ("negative", "positive")
LABELS = {"0": 0, "1": 1}
FDU_PARTS = ("train", "test")
RAW_PARTS = ("positive", "negative")
UNLABELLED_PART = "unlabel"
FILE = re.compile(
    r"(?:^|/)(?:(?P<domain>[^/]+)\.task\.(?P<part>train|test|unlabel)"
    r"|(?P<folder>[^/]+)/(?P<raw>positive|negative|unlabeled)\.review)$"
)
# Files with lines that are not UTF-8; those lines are Latin-1, the others in the same files are UTF-8.
LATIN1 = {("MR", "train"), ("MR", "test"), ("MR", "unlabel"), ("dvd", "train")}
STARS = re.compile(r"[1-5](\.0)?")
_COUNTED = re.compile(r"(.+):(\d{1,4})")
NEUTRAL = 3.0  # stars of raw reviews that are neither positive nor negative
AAMTRL = {"train": 0.7, "test": 0.1, "val": 0.2}
RAW_TEST = 0.2  # test share of raw files, which have no test part
UNLABELLED = "unlabelled.parquet"


@dataclass(frozen=True)
class Review:
    """Review with its origin, its text as words between spaces, and its label (None: unlabelled)."""

    id: str
    domain: str
    part: str  # train, test, unlabel; in raw files positive, negative, unlabel
    text: str
    label: int | None


Parser = Callable[[str, str, bytes], tuple[list[Review], list[tuple[str, str]]]]


class Amazon(PretrainedTexts):
    """Amazon reviews: positive or negative, one binary task per product domain (14 by default), as token ids.

    The source is one of three forms of the set. FDU-MTL (Liu, Qiu & Huang, ACL 2017) is already tokenised. In Blitzer's
    raw `.review` files, ratings above 3 are positive, ratings below 3 negative, and 3 is left out; words are runs of
    letters and digits. His `processed_acl` (books, dvd, electronics, kitchen: name them in `domains`) has reviews as
    unigrams and bigrams with counts; each becomes that many tokens, in the order of the file.

    Validation is a tenth of train. A hash of a review's text decides its split, so that no text is in two splits by
    chance. Even so, 559 texts of FDU-MTL's official test part also occur in train or validation: the manifest counts
    them, the remaining test reviews are also measured by themselves (`test_unseen`), and `drop_duplicates` removes the
    repeated texts from train and validation. A review without words stays, as one unknown word. Word vectors are fitted
    on the training reviews and on the unlabelled reviews whose text is not in validation or test.
    """

    name: ClassVar[str] = "amazon"
    results_version: ClassVar[int] = 2
    source: ClassVar[str] = "FDU-MTL (Liu et al. 2017), after Blitzer et al. 2007"
    folder: ClassVar[str] = "fdu_mtl"
    archives: ClassVar[tuple[str, ...]] = (
        "fdu-mtl-dataset.tar.xz",
        "mtl-dataset.tar.gz",
        "domain_sentiment_data.tar.gz",
        "unprocessed.tar.gz",
        "processed_acl.tar.gz",
    )
    roots: ClassVar[tuple[str, ...]] = ("", "mtl-dataset", "sorted_data_acl", "sorted_data", "processed_acl")
    engine: ClassVar[Literal["ray", "auto"]] = "ray"
    words: ClassVar[str | None] = "latin1"

    domains: tuple[str, ...] = knob(PRODUCTS, help="the tasks; imdb and MR are known too, raw files may have others")
    split: str = knob("fdu", choices=("fdu", "aamtrl"), help="official test part, or 70/10/20 at random")
    validation: float = knob(0.1, low=0.0, high=0.5, open_low=True, open_high=True, help="held out of train (fdu)")
    drop_duplicates: bool = knob(False, help="take reviews that are in test, too, out of train and validation")
    length: int = knob(256, low=1, high=65536, help="words or tokens kept of a review")
    vocabulary: int = knob(20000, low=3, high=10_000_000, help="token ids in all, padding and unknown included")
    min_count: int = knob(1, low=1, high=1e9, help="a rarer word is unknown")
    keep_unlabelled: bool = knob(True, help=f"keep the text of unlabelled reviews, for word vectors ({UNLABELLED})")

    def expected(self) -> tuple[str, ...]:
        return tuple(f"{domain}.task.{part}" for domain in self.domains for part in ("train", "test"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.domains or len(set(self.domains)) < len(self.domains):
            raise UserError(f"amazon: domains = {list(self.domains)} should name each domain once, and at least one")

    def locate(self, source: Path) -> Path:
        for root in self.roots if source.is_dir() else ():
            if any((source / root).glob("*/positive.review")):
                return source / root  # missing domains are reported after reading, as for archives
        return super().locate(source)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_vectors()
        reviews, problems = self.read(source, context)
        notes = context.settle(problems, "reviews")

        unlabelled = [review for review in reviews if review.label is None]
        samples = self.samples(reviews)
        test_texts = samples.filter(pc.field("split") == "test")["text"].combine_chunks()
        repeated = _leaked_reviews(samples)
        repeated_counts = Counter(repeated["stream"].to_pylist())
        notes["test_texts_in_train_or_val"] = {domain: repeated_counts[domain] for domain in self.domains}
        notes["unlabelled_texts_in_test"] = len(
            {review.text for review in unlabelled}.intersection(test_texts.to_pylist())
        )

        if self.drop_duplicates:
            is_repeated = pc.and_(
                pc.not_equal(samples["split"], "test"), pc.is_in(samples["text"], value_set=test_texts)
            )
            samples = samples.filter(pc.invert(is_repeated))
            notes["duplicates_dropped"] = pc.sum(is_repeated).as_py()

        tasks = tuple(
            Task(name=domain, loss="cross_entropy", outputs=2, metrics=("accuracy",), classes=CLASSES)
            for domain in self.domains
        )
        words: list[str] = []
        if self.tokenizer is not None:
            texts = samples["text"].to_pylist(), [None] * len(samples)
            encoded, suite, cut = self.tokenized(samples.drop_columns("text"), texts, self.length, tasks, context)
            notes |= cut
        else:
            options = TextOptions(self.length, self.vocabulary, self.min_count)
            encoded, words = encode_samples(samples, tokenise, options, context)
            notes["reviews_without_words"] = pc.sum(pc.equal(encoded["words"], 0)).as_py()
            suite = text_suite(self.name, tasks, words, self.length)

        tables = text_tables(encoded, self.domains)

        return Prepared(
            suite,
            tables,
            vocabulary=words or None,
            extra={
                **(
                    {}
                    if self.drop_duplicates or not len(repeated)
                    else _unseen(text_tables(encoded, self.domains)["test"], repeated)
                ),
                **({UNLABELLED: _unlabelled(unlabelled)} if self.keep_unlabelled else {}),
                **self.fit_vectors(partial(_unheld, samples, unlabelled), words, context),
            },
            notes=notes,
        )

    def samples(self, reviews: Sequence[Review]) -> pa.Table:
        """Return the labelled reviews with their splits."""
        labelled = [review for review in reviews if review.label is not None]
        return pa.table(
            {
                "id": [review.id for review in labelled],
                "split": [self._split_of(review) for review in labelled],
                "stream": [review.domain for review in labelled],
                "label": pa.array([review.label for review in labelled], pa.int8()),
                "text": pa.array([review.text for review in labelled], pa.string()),
            }
        )

    def read(self, source: Path, context: PrepareContext) -> tuple[list[Review], list[tuple[str, str]]]:
        """Read the reviews of the chosen domains, and list what cannot be used."""
        reviews: list[Review] = []
        problems: list[tuple[str, str]] = []
        files: set[tuple[str, str]] = set()
        size = 0

        for name, content in read_members(source, lambda name: bool(FILE.search(name))):
            domain, part, parse = _file(name)
            files.add((domain, part))
            if domain in self.domains and (part != UNLABELLED_PART or self.keep_unlabelled):
                if b"#label#:" in content and b"<review>" not in content:
                    parse = _parse_processed
                parsed_reviews, parse_problems = parse(domain, part, content)
                reviews += parsed_reviews
                problems += [(f"{name} {position}", problem) for position, problem in parse_problems]
                size += len(content)
                context.progress("read", len(reviews), 0, size)

        self._check_files(source, files)
        return reviews, problems

    def _check_files(self, source: Path, files: set[tuple[str, str]]) -> None:
        """Raise `UserError` for a missing file; an archive cannot be checked before it is read."""
        raw = any(part in RAW_PARTS for _, part in files)
        for domain in self.domains:
            for part in RAW_PARTS if raw else FDU_PARTS:
                if (domain, part) not in files:
                    missing = f"{domain}/{part}.review" if raw else f"{domain}.task.{part}"
                    present_domains = ", ".join(sorted({domain for domain, _ in files})) or "none"
                    raise UserError(
                        f"amazon: {source} has no {missing}; domains it has: {present_domains}; name them in `domains`"
                    )

    def _split_of(self, review: Review) -> str:
        if self.split == "aamtrl":
            return hash_split(review.text, AAMTRL, self.name)
        if review.part in RAW_PARTS:
            remainder = 1.0 - RAW_TEST
            fractions = {
                "test": RAW_TEST,
                "val": remainder * self.validation,
                "train": remainder * (1.0 - self.validation),
            }
            return hash_split(review.text, fractions, self.name)
        return "test" if review.part == "test" else carve_validation(review.text, self.validation, self.name)


def _file(name: str) -> tuple[str, str, Parser]:
    """Return domain, part and parser of a file by its name; `kitchen_&_housewares` is `kitchen_housewares`."""
    match = FILE.search(name)
    assert match is not None
    if match["raw"]:
        part = UNLABELLED_PART if match["raw"] == "unlabeled" else match["raw"]
        return match["folder"].replace("_&_", "_"), part, _parse_raw
    return match["domain"], match["part"], _parse_fdu


def _parse_fdu(domain: str, part: str, content: bytes) -> tuple[list[Review], list[tuple[str, str]]]:
    """Parse lines of `<label><tab><text>`; unlabelled files have the text alone."""
    reviews, problems = [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue

        position, id = f"line {number}", f"{domain}/{part}/{number:06d}"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            if (domain, part) not in LATIN1:
                problems.append((position, "is not UTF-8"))
                continue
            text = line.decode("latin-1")

        if part == UNLABELLED_PART:
            reviews.append(Review(id, domain, part, text.lower(), None))
            continue

        label, tab, text = text.partition("\t")
        if tab and label in LABELS:
            reviews.append(Review(id, domain, part, text.lower(), LABELS[label]))
        else:
            problems.append((position, f"has the label {label[:20]!r}, which is none of {', '.join(LABELS)}"))

    return reviews, problems


def _parse_raw(domain: str, part: str, content: bytes) -> tuple[list[Review], list[tuple[str, str]]]:
    """Parse Blitzer's `<review>` blocks, which look like XML but are not: nothing in them is escaped."""
    reviews, problems = [], []
    for number, block in enumerate(content.split(b"<review>")[1:], start=1):
        position, text = f"review {number}", _field(block, b"review_text")
        if b"</review>" not in block or text is None:
            problems.append((position, "is cut off or has no <review_text>"))
            continue

        label = None
        if part != UNLABELLED_PART:
            rating = (_field(block, b"rating") or b"").decode("latin-1")
            stars = float(rating) if STARS.fullmatch(rating) else None
            if stars is None:
                problems.append((position, f"has the rating {rating[:20]!r}, which is not 1 to 5 stars"))
                continue
            if stars == NEUTRAL:
                continue
            label = int(stars > NEUTRAL)

        reviews.append(Review(f"{domain}/{part}/{number:06d}", domain, part, latin1_words(text), label))

    return reviews, problems


def _parse_processed(domain: str, part: str, content: bytes) -> tuple[list[Review], list[tuple[str, str]]]:
    """Parse lines of `feature:count … #label#:positive`; a feature may itself contain colons."""
    reviews, problems = [], []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue

        *features, last = line.decode("utf-8", "replace").split()
        label = last.removeprefix("#label#:")
        matches = [_COUNTED.fullmatch(feature) for feature in features]
        malformed = next((text for text, match in zip(features, matches, strict=True) if match is None), None)

        if label == last or label not in CLASSES:
            problems.append((f"line {number}", f"ends with {last[:20]!r}, which is no #label#:positive or negative"))
        elif malformed is not None:
            problems.append((f"line {number}", f"has {malformed[:30]!r}, which is no feature:count"))
        else:
            text = " ".join(match[1] for match in matches if match for _ in range(int(match[2])))
            class_index = None if part == UNLABELLED_PART else CLASSES.index(label)
            reviews.append(Review(f"{domain}/{part}/{number:06d}", domain, part, text.lower(), class_index))

    return reviews, problems


def _field(block: bytes, name: bytes) -> bytes | None:
    match = re.search(rb"<%s>(.*?)</%s>" % (name, name), block, re.DOTALL)
    return match[1].strip() if match else None


def _leaked_reviews(samples: pa.Table) -> pa.Table:
    """Return the test reviews whose text also occurs in train or validation, whatever their domain and label."""
    is_test = pc.equal(samples["split"], "test")
    train_or_val_texts = samples.filter(pc.invert(is_test))["text"].combine_chunks()
    return samples.filter(pc.and_(is_test, pc.is_in(samples["text"], value_set=train_or_val_texts)))


def _unseen(test: Mapping[str, pa.Table], train_reviews: pa.Table) -> dict[str, pa.Table]:
    """Return the split `test_unseen`: the test reviews not in `train_reviews`, measured beside the full test part."""
    ids = train_reviews["id"].combine_chunks()
    return {
        f"test_unseen/{domain}.parquet": table.filter(pc.invert(pc.is_in(table["id"], value_set=ids)))
        for domain, table in test.items()
    }


def _unheld(samples: pa.Table, unlabelled: Sequence[Review]) -> pa.ListArray:
    """Return the words of every text that training may see."""
    train_texts = samples.filter(pc.field("split") == "train")["text"].combine_chunks()
    held_out_texts = samples.filter(pc.field("split") != "train")["text"].combine_chunks()
    unlabelled_texts = pa.array([review.text for review in unlabelled], pa.string())
    return split_words(
        pa.concat_arrays(
            [train_texts, unlabelled_texts.filter(pc.invert(pc.is_in(unlabelled_texts, value_set=held_out_texts)))]
        )
    )


def _unlabelled(reviews: Sequence[Review]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([review.id for review in reviews], pa.string()),
            "stream": pa.array([review.domain for review in reviews], pa.string()),
            "text": pa.array([review.text for review in reviews], pa.string()),
        }
    )


def tokenise(table: pa.Table) -> pa.Table:
    """Split texts into lists of the words between their spaces."""
    return table.drop_columns("text").append_column("tokens", split_words(table["text"].combine_chunks()))
