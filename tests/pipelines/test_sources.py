"""Where sources come from, and what tells one from another."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
from image_sets import picture, save
from in_process import prepare

from mtlscale.config import UserError
from mtlscale.data.readers.prepared import read_manifest
from pipelines._sources.remote import is_remote
from pipelines.image.celeba import Celeba
from pipelines.image.nyuv2 import Nyuv2
from pipelines.text.amazon import Amazon
from pipelines.text.newsgroups import Newsgroups

# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_memory(newsgroups_folder: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]) -> str:
    archive = pack(newsgroups_folder, tmp_path / "20news-bydate.tar.gz")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe_file("/bucket/20news-bydate.tar.gz", archive.read_bytes())
    return "memory://bucket/20news-bydate.tar.gz"


def test_an_archive_below_a_url_is_fetched_once(
    in_memory: str, newsgroups_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    folder = prepare("newsgroups", {}, in_memory, home)
    expected = read_manifest(prepare("newsgroups", {}, newsgroups_folder, tmp_path)).fingerprint
    assert read_manifest(folder).fingerprint == expected
    assert read_manifest(folder).source.description == "20news-bydate.tar.gz"
    (kept,) = (home / "downloads").rglob("*.tar.gz")
    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.filesystem("memory")), "get_file", None)
        assert prepare("newsgroups", {}, in_memory, home) == folder
        assert prepare("newsgroups", {}, Path(in_memory), home) == folder  # as the command line has it
    # What the address holds has changed: it is fetched anew.
    fsspec.filesystem("memory").pipe_file("/bucket/20news-bydate.tar.gz", b"no archive")
    with pytest.raises(UserError, match=r"20news-bydate\.tar\.gz is truncated or is no tar"):
        prepare("newsgroups", {}, in_memory, home)
    assert kept.exists()


@pytest.mark.parametrize("slashes", ["//", ""])
def test_a_file_url_is_the_path_itself(newsgroups_folder: Path, tmp_path: Path, slashes: str) -> None:
    url = f"file:{slashes}{newsgroups_folder}"
    assert prepare("newsgroups", {}, url, tmp_path) == prepare("newsgroups", {}, newsgroups_folder, tmp_path)
    assert not (tmp_path / "downloads").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "abfs://key:secret@bucket/20news.zip",
            r"--source abfs://bucket/20news\.zip needs a driver for abfs; pip install adlfs$",
        ),
        ("gopher://bucket/20news.zip", r"--source gopher://bucket/20news\.zip: Protocol not known"),
        (
            "memory://bucket/nothing.zip",
            r"--source memory://bucket/nothing\.zip cannot be fetched \(.*check the address$",
        ),
        ("memory://bucket", r"--source memory://bucket is a folder; pack it as one archive"),
        ("file:///no/such/place.zip", r"source /no/such/place\.zip does not exist"),
    ],
)
def test_an_address_that_does_not_do_is_one_line(in_memory: str, tmp_path: Path, url: str, message: str) -> None:
    if url.startswith("abfs"):
        with pytest.raises(ImportError):
            fsspec.filesystem("abfs")
    for source in (url, Path(url)):
        with pytest.raises(UserError, match=f"^newsgroups: {message}") as caught:
            prepare("newsgroups", {}, source, tmp_path)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
    assert not list((tmp_path / "downloads").rglob(".*")) if (tmp_path / "downloads").exists() else True


def test_a_download_that_breaks_leaves_nothing(in_memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(files: object, path: str, target: str) -> None:
        Path(target).write_bytes(b"half")
        raise ConnectionError("reset by peer\nand more")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", broken)
    with pytest.raises(UserError, match=r"cannot be fetched \(reset by peer\); check the address"):
        prepare("newsgroups", {}, in_memory, tmp_path / "home")
    assert not [path for path in (tmp_path / "home" / "downloads").rglob("*") if path.is_file()]


def test_paths_are_no_addresses() -> None:
    for path in ("data/x.zip", "/data/x", "C:/data", "C:\\data", ".", "a:b", "~/x"):
        assert not is_remote(path) and not is_remote(Path(path))
    for address in ("s3://bucket/x", "hf:name", "hf:a/b", "hf://datasets/a/b/x.zip", "https://x.org/a.zip"):
        assert is_remote(address) and is_remote(Path(address))


# -- fingerprints ------------------------------------------------------------------------------------------------------


def same_size_edit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    before = path.stat()
    path.write_bytes(raw)
    os.utime(path, (before.st_atime, before.st_mtime))


def test_a_text_edited_in_place_is_a_new_source(newsgroups_folder: Path, fdu_folder: Path) -> None:
    for pipeline, folder, file in (
        (Newsgroups(), newsgroups_folder, "20news-bydate-train/sci.med/10001"),
        (Amazon(), fdu_folder, "mtl-dataset/books.task.test"),
    ):
        before = pipeline.source_fingerprint(folder)
        assert pipeline.source_fingerprint(folder) == before
        same_size_edit(folder / file)
        assert pipeline.source_fingerprint(folder) != before


@pytest.mark.parametrize("file", ["list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt"])
def test_a_list_edited_in_place_is_a_new_source(tmp_path: Path, file: str) -> None:
    image = tmp_path / "img_align_celeba" / "000001.jpg"
    save(image, picture(np.random.default_rng(0), 40, 40))
    (tmp_path / file).write_text("000001.jpg 1\n000002.jpg 2\n")
    before = Celeba().source_fingerprint(tmp_path)
    same_size_edit(image)  # pictures are too many to be read every time
    assert Celeba().source_fingerprint(tmp_path) == before
    same_size_edit(tmp_path / file)
    assert Celeba().source_fingerprint(tmp_path) != before


def test_small_matlab_files_count_and_large_files_go_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "splits.mat").write_bytes(b"MATLAB 5.0 " + bytes(500))
    (tmp_path / "nyu_depth_v2_labeled.mat").write_bytes(bytes(2000))
    monkeypatch.setattr("pipelines._engine.fingerprint.BY_CONTENT", 1000)
    before = Nyuv2().source_fingerprint(tmp_path)
    same_size_edit(tmp_path / "nyu_depth_v2_labeled.mat")
    assert Nyuv2().source_fingerprint(tmp_path) == before
    same_size_edit(tmp_path / "splits.mat")
    assert Nyuv2().source_fingerprint(tmp_path) != before


def test_in_zips_everything_counts(tmp_path: Path) -> None:
    def packed(content: bytes) -> str:
        with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
            archive.writestr("img_align_celeba/000001.jpg", content)
        return Celeba().source_fingerprint(tmp_path)

    assert packed(b"one") == packed(b"one")
    assert packed(b"one") != packed(b"two")
