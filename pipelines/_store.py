"""The files of a source of images: listed once, read one by one from any process, out of folders and zips alike."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtlscale.spec import UserError
from pipelines._archive import check_name, normal_name

_IN_ZIP = "\0"  # between an archive's path and a member's name; no file name can hold it


@dataclass(frozen=True)
class File:
    """One readable file: where `read_file` finds it, its size, and its checksum where an archive records one."""

    location: str
    bytes: int
    checksum: int = 0


class Store:
    """The wanted files of a folder, of the zips in it, or of one zip, by their names below it.

    A zip's members are named as if it were extracted where it lies. `wanted` sees names with forward slashes. Where a
    name occurs twice the extracted file counts. Raises `UserError` for unreadable or unsafe archives; a tar has no
    index to read single members by and is refused.
    """

    def __init__(self, source: Path, wanted: Callable[[str], bool]) -> None:
        self.source = source
        self.files: dict[str, File] = {}
        if source.is_file():
            self.root = source.parent
            if not zipfile.is_zipfile(source):
                raise UserError(f"{source} is no whole zip; extract a tar and pass its folder, or fetch again")
            self._add_zip(source, "", wanted)
            return
        self.root = source
        zips = []
        for name, size in _walk(source):
            if wanted(name):
                self.files[name] = File(name, size)
            elif name.endswith(".zip"):
                zips.append(name)
        for name in sorted(zips):
            self._add_zip(source / name, name.rpartition("/")[0], wanted)

    def _add_zip(self, path: Path, below: str, wanted: Callable[[str], bool]) -> None:
        relative = path.relative_to(self.root).as_posix()
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except zipfile.BadZipFile as error:
            raise UserError(f"{path} is truncated or is no zip archive ({error}); fetch it again") from None
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where the archive was not made on Unix
            odd = kind not in (0, stat.S_IFREG, stat.S_IFDIR)
            check_name(path, member.filename, "a link or a device" if odd else "")
            name = normal_name(f"{below}/{member.filename}".lstrip("/"))
            if not member.is_dir() and wanted(name):
                location = f"{relative}{_IN_ZIP}{member.filename}"
                self.files.setdefault(name, File(location, member.file_size, member.CRC))

    @property
    def names(self) -> list[str]:
        return sorted(self.files)

    def location(self, name: str) -> str:
        return self.files[name].location

    def read(self, name: str) -> bytes:
        return read_file(str(self.root), self.files[name].location)

    def fingerprint(self) -> str:
        """A hash of names, sizes and, for members of archives, checksums: the contents of folders are not read."""
        digest = hashlib.sha256()
        for name in self.names:
            file = self.files[name]
            digest.update(f"{name}\0{file.bytes}\0{file.checksum}\n".encode())
        return digest.hexdigest()


class Unreadable(Exception):
    """A file that is gone or cannot be decompressed."""


def read_file(root: str, location: str) -> bytes:
    """The content of what a `Store` below `root` listed; `Unreadable` where it cannot be had any more."""
    archive, in_zip, member = location.partition(_IN_ZIP)
    path = os.path.join(root, archive)  # noqa: PTH118 (a hot path: half the time of pathlib's)
    try:
        if not in_zip:
            with open(path, "rb") as file:  # noqa: PTH123
                return file.read()
        status = os.stat(path)  # noqa: PTH116
        return _open_zip(path, status.st_mtime_ns, status.st_size).read(member)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, KeyError) as error:
        raise Unreadable(f"cannot be read ({str(error) or type(error).__name__})") from None


@functools.lru_cache(maxsize=16)
def _open_zip(path: str, mtime_ns: int, size: int) -> zipfile.ZipFile:
    """Kept open: reading the index of a large archive for every member would take most of the time."""
    return zipfile.ZipFile(path)


def _walk(folder: Path) -> list[tuple[str, int]]:
    """(name, bytes) of all files below, names with forward slashes; hidden files and folders are none of ours."""
    found, pending = [], [""]
    while pending:
        below = pending.pop()
        with os.scandir(folder / below) as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    pending.append(f"{name}/")
                elif entry.is_file():
                    found.append((name, entry.stat().st_size))
    return found
