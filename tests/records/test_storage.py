"""A storage's files: buckets are never made, and a file that has not changed is not stored again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from mtlscale.config import UserError
from mtlscale.records import Storage


class Bucketed(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
    """A store as S3's driver is: a folder that is made is a bucket, and nothing is written where there is none."""

    protocol = ("s3", "s3a")
    buckets: set[str] = set()  # noqa: RUF012
    made: list[str] = []  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("s3://").strip("/")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.made.append(path)
        super().makedirs(path, exist_ok=exist_ok)

    def mkdirs(self, path: str, exist_ok: bool = False) -> None:
        super().makedirs(path, exist_ok=exist_ok)  # fsspec's own call, when it puts a file

    def _open(self, path: str, mode: str = "rb", **settings: Any) -> Any:
        if "r" not in mode and self._strip_protocol(path).partition("/")[0] not in self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        return super()._open(path, mode=mode, **settings)


@pytest.fixture
def bucketed(monkeypatch: pytest.MonkeyPatch) -> type[Bucketed]:
    """A store with the bucket `labour` alone."""
    monkeypatch.setattr(Bucketed, "buckets", {"labour"})
    monkeypatch.setattr(Bucketed, "made", [])
    fsspec.register_implementation("s3", Bucketed, clobber=True)
    return Bucketed


def test_what_is_stored_makes_no_bucket(bucketed: type[Bucketed], tmp_path: Path) -> None:
    storage = Storage("s3://labour/runs", patience=0)
    (tmp_path / "file").write_text("x")
    storage.put(tmp_path / "file", "runs/a/file")
    storage.write("leases/b.json", b"x")
    assert storage.read("runs/a/file") == storage.read("leases/b.json") == b"x"
    storage.check()
    assert bucketed.made == []


def test_a_bucket_that_is_missing_is_named_with_the_mend(bucketed: type[Bucketed]) -> None:
    with pytest.raises(UserError) as refused:
        Storage("s3://labor/runs").check()
    mend = "there is no bucket labor; create it, or correct its name"
    assert str(refused.value) == f"storage s3://labor/runs: {mend}"

    with pytest.raises(UserError, match=rf"^storage s3://labor/runs has not answered for 1 s \({mend}\); once it does"):
        Storage("s3://labor/runs", patience=0.9).write("leases/b.json", b"x")
    assert bucketed.made == []


def test_a_file_that_has_not_changed_is_not_stored_again(tmp_path: Path) -> None:
    stored, file = tmp_path / "storage" / "runs" / "a" / "checkpoint.pt", tmp_path / "run" / "checkpoint.pt"
    follow = Storage(f"file://{tmp_path}/storage").follow(file, "runs/a/checkpoint.pt")
    follow()
    assert not stored.exists()

    file.write_text("one")
    follow()
    first = stored.stat()
    follow()
    assert stored.read_text() == "one" and os.path.samestat(first, stored.stat())  # another file each time it is stored

    file.write_text("two")
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    follow()
    assert stored.read_text() == "two"


def test_a_file_that_was_fetched_is_not_stored_until_it_changes(tmp_path: Path) -> None:
    storage, file = Storage(f"file://{tmp_path}/storage"), tmp_path / "run" / "checkpoint.pt"
    storage.write("runs/a/checkpoint.pt", b"one")
    stored = tmp_path / "storage" / "runs" / "a" / "checkpoint.pt"
    before = stored.stat()
    follow = storage.follow(file, "runs/a/checkpoint.pt")
    follow()
    assert file.read_text() == "one" and os.path.samestat(before, stored.stat())
