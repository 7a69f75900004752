"""The files of a source of images: listed once, read one by one anywhere, out of folders, zips, plain tars."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtlscale.spec import UserError
from pipelines import _tables
from pipelines._archive import briefly, check_name, normal_name
from pipelines._fingerprint import content, holds_labels
from pipelines._tar import members

_IN_ZIP = "\0"  # between an archive's path and a member's name; no file name can hold it
_IN_TAR = "\2"  # between a tar's path, where the member begins in it, its bytes, and its name
_INSIDE = (_IN_ZIP, _IN_TAR, _tables.IN_TABLE)


@dataclass(frozen=True)
class File:
    """One readable file: where `read_file` finds it, its size, and its checksum where an archive records one."""

    location: str
    bytes: int
    checksum: int = 0


def _as_extracted(name: str) -> str:
    return ""


class Store:
    """The wanted files of a folder, of the zips and tars in it, or of one archive, by their names below it.

    An archive's members are named as if it were extracted where it lies, in the folder that `inside` gives its name;
    `None` leaves an archive out. `wanted` sees names with forward slashes. Where a name occurs twice the extracted
    file counts. Raises `UserError` for unreadable or unsafe archives; of a compressed tar single members cannot be
    read, and it is refused where it is the source.
    """

    def __init__(
        self,
        source: Path,
        wanted: Callable[[str], bool],
        inside: Callable[[str], str | None] = _as_extracted,
    ) -> None:
        self.source = source
        self.files: dict[str, File] = {}
        self._wanted, self._inside = wanted, inside
        if source.is_file():
            self.root = source.parent
            if zipfile.is_zipfile(source):
                self._add_zip(source, inside(source.name) or "")
            elif tarfile.is_tarfile(source) and not _compressed(source):
                self._add_tar(source, inside(source.name) or "")
            else:
                raise UserError(
                    f"{source} is no whole zip or plain tar; extract a compressed tar and pass its folder, "
                    "or fetch it again"
                )
            return
        self.root = source
        archives = []
        for name, size in _walk(source):
            if wanted(name):
                self.files[name] = File(name, size)
            elif name.endswith((".zip", ".tar")):
                archives.append(name)
        for name in sorted(archives):
            if (below := inside(name)) is not None:
                folder = f"{name.rpartition('/')[0]}/{below}".strip("/")
                (self._add_zip if name.endswith(".zip") else self._add_tar)(source / name, folder)

    def _add_zip(self, path: Path, below: str) -> None:
        relative = path.relative_to(self.root).as_posix()
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except zipfile.BadZipFile as error:
            raise UserError(f"{path} is truncated or is no zip archive ({briefly(error)}); fetch it again") from None
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where the archive was not made on Unix
            odd = kind not in (0, stat.S_IFREG, stat.S_IFDIR)
            check_name(path, member.filename, "a link or a device" if odd else "")
            name = normal_name(f"{below}/{member.filename}".lstrip("/"))
            if not member.is_dir() and self._wanted(name):
                location = f"{relative}{_IN_ZIP}{member.filename}"
                self.files.setdefault(name, File(location, member.file_size, member.CRC))

    def _add_tar(self, path: Path, below: str) -> None:
        """The members lie in a plain tar as they are: their places are all that is needed."""
        relative = path.relative_to(self.root).as_posix()
        try:
            found = members(path)
        except (tarfile.TarError, EOFError) as error:
            raise UserError(
                f"{path} is truncated or is no plain tar ({briefly(error)}); fetch it again, or extract it"
            ) from None
        for member in found:
            check_name(path, member.name, "" if member.kind in ("", "folder") else member.kind)
            name = normal_name(f"{below}/{member.name}".lstrip("/"))
            if not member.kind and self._wanted(name):
                place = _IN_TAR.join((relative, str(member.start), str(member.bytes), name))
                self.files.setdefault(name, File(place, member.bytes, member.time))

    @property
    def names(self) -> list[str]:
        return sorted(self.files)

    def location(self, name: str) -> str:
        return self.files[name].location

    def read(self, name: str) -> bytes:
        return read_file(str(self.root), self.files[name].location)

    def fingerprint(self) -> str:
        """A hash of names, sizes, checksums (zips) or times (tars) of members, and the content of labels and lists.

        The content of pictures in folders is not read.
        """
        digest = hashlib.sha256()
        for name in self.names:
            file = self.files[name]
            told = str(file.checksum)
            if not any(mark in file.location for mark in _INSIDE) and holds_labels(name, file.bytes):
                told = content(self.root / name)
            digest.update(f"{name}\0{file.bytes}\0{told}\n".encode())
        return digest.hexdigest()


class Unreadable(Exception):
    """A file that is gone or cannot be decompressed."""


_GONE = (
    OSError,
    ValueError,  # an array or table that is not what it was; Arrow's errors are of this kind
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    KeyError,
)


def read_file(root: str, location: str) -> bytes:
    """The content of what a `Store` below `root` listed, or of a cell of a table; `Unreadable` where it is gone."""
    try:
        if _tables.IN_TABLE in location:
            return _tables.read_cell(root, location)
        if _IN_TAR in location:
            return _read_in_tar(root, location)
        archive, in_zip, member = location.partition(_IN_ZIP)
        path = os.path.join(root, archive)  # noqa: PTH118 (a hot path: half the time of pathlib's)
        if not in_zip:
            with open(path, "rb") as file:  # noqa: PTH123
                return file.read()
        status = os.stat(path)  # noqa: PTH116
        return _open_zip(path, status.st_mtime_ns, status.st_size).read(member)
    except _GONE as error:
        raise Unreadable(f"cannot be read ({briefly(error)})") from None


def shown(location: str) -> str:
    """A location as a message has it."""
    if _tables.IN_TABLE in location:
        file, row, column = location.split(_tables.IN_TABLE)
        return f"{file}, row {int(row) + 1}, {column}"
    return location.rpartition(_IN_TAR if _IN_TAR in location else _IN_ZIP)[2]


def _read_in_tar(root: str, location: str) -> bytes:
    archive, start, size, _ = location.split(_IN_TAR)
    with open(os.path.join(root, archive), "rb") as file:  # noqa: PTH118, PTH123
        file.seek(int(start))
        content = file.read(int(size))
    if len(content) < int(size):
        raise EOFError("the tar is cut off")
    return content


def _compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6).startswith((b"\x1f\x8b", b"\xfd7zXZ", b"BZh"))


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
