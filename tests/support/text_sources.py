"""Small sources of texts, and their archives."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from data_sets import DATA_SETS


@pytest.fixture
def newsgroups_folder(tmp_path: Path) -> Path:
    """The extracted folder, with nine messages in each group of each part."""
    return DATA_SETS["newsgroups"].write(tmp_path / "20newsgroups")


@pytest.fixture
def fdu_folder(tmp_path: Path) -> Path:
    """The extracted FDU-MTL folder of the product domains, with 30 training and 10 test reviews each."""
    return DATA_SETS["amazon"].write(tmp_path / "fdu_mtl")


@pytest.fixture
def pack() -> Callable[[Path, Path], Path]:
    """Packs a folder's content as a compressed tar."""

    def make(folder: Path, archive: Path) -> Path:
        with tarfile.open(archive, f"w:{archive.suffix[1:]}") as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name)
        return archive

    return make
