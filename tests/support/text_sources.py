"""Small sources in the layouts of the real ones, their words drawn from a fixed generator."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines.text.amazon import PRODUCTS
from pipelines.text.newsgroups import LABELS, OFFICIAL_SPLITS

WORDS = np.array([f"{consonant}{vowel}{end}" for consonant in "bdfgklmnprst" for vowel in "aeiou" for end in "nrst"])


def _sentence(rng: np.random.Generator, words: int = 12) -> str:
    return " ".join(WORDS[rng.zipf(1.5, words) % len(WORDS)])


@pytest.fixture
def newsgroups_folder(tmp_path: Path) -> Path:
    """The extracted folder, with nine messages in each group of each part."""
    rng = np.random.default_rng(0)
    root = tmp_path / "20newsgroups"
    for start, part in ((10_000, OFFICIAL_SPLITS[0]), (20_000, OFFICIAL_SPLITS[1])):
        for group in (*LABELS, "alt.atheism"):
            (root / part / group).mkdir(parents=True)
            for number in range(start, start + 9):
                text = f"From: {_sentence(rng, 1)}@x.org\nSubject: {group}\n\n{_sentence(rng)} caf\xe9\n"
                (root / part / group / str(number)).write_bytes(text.encode("latin-1"))
    return root


@pytest.fixture
def fdu_folder(tmp_path: Path) -> Path:
    """The extracted FDU-MTL folder of the product domains, with 30 training and 10 test reviews each."""
    rng = np.random.default_rng(1)
    root = tmp_path / "fdu_mtl" / "mtl-dataset"
    root.mkdir(parents=True)
    for domain in PRODUCTS:
        for part, count in (("train", 30), ("test", 10), ("unlabel", 5)):
            lines = [_sentence(rng) for _ in range(count)]
            if part != "unlabel":
                lines = [f"{number % 2}\t{line}" for number, line in enumerate(lines)]
            (root / f"{domain}.task.{part}").write_text("".join(f"{line}\n" for line in lines))
    return root.parent


@pytest.fixture
def pack() -> Callable[[Path, Path], Path]:
    """Packs a folder's content as a compressed tar."""

    def make(folder: Path, archive: Path) -> Path:
        with tarfile.open(archive, f"w:{archive.suffix[1:]}") as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name)
        return archive

    return make
