"""The files of a source of images: listed once, then read one by one from folders, zips and plain tars."""

from __future__ import annotations

import functools
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtlscale.config import UserError
from mtlscale.data.tables.raw_files import briefly, is_hidden
from pipelines._engine.fingerprint import content, holds_labels
from pipelines._formats import table_cells
from pipelines._formats.archive import is_compressed, members, normal_name

_IN_ZIP = "\0"  # separates an archive's path and a member's name; no file name can contain it
_IN_TAR = "\2"  # separates a tar's path, the member's offset, its size and its name
_INSIDE = (_IN_ZIP, _IN_TAR, table_cells.IN_TABLE)


@dataclass(frozen=True)
class File:
    """Readable file: its location for `read_file`, its size, and its checksum if an archive records one."""

    location: str
    bytes: int
    checksum: int = 0


def _as_extracted(name: str) -> str:
    return ""


class Store:
    """The wanted files of a folder, of the zips and tars in it, or of one archive, by their names below it.

    An archive's members are named as if it were extracted where it lies, in the folder that `inside` gives for its
    name. If a name occurs twice, the extracted file counts. Single members of a compressed tar cannot be read, so it is
    refused as a source.

    Args:
        selects: Predicate on a name with forward slashes: whether the file belongs to the set.
        inside: Folder of an archive's members, by the archive's name; `None` leaves the archive out.

    Raises:
        UserError: An archive is unreadable or unsafe.
    """

    def __init__(
        self,
        source: Path,
        selects: Callable[[str], bool],
        inside: Callable[[str], str | None] = _as_extracted,
    ) -> None:
        self.source = source
        self.files: dict[str, File] = {}
        self._selects, self._inside = selects, inside
        if source.is_file():
            self.root = source.parent
            self._add(source, inside(source.name) or "")
            return

        self.root = source
        archives = []
        for name, size in _walk(source):
            if selects(name):
                self.files[normal_name(name)] = File(name, size)
            elif name.endswith((".zip", ".tar")):
                archives.append(name)

        for name in sorted(archives):
            if (below := inside(name)) is not None:
                folder = f"{name.rpartition('/')[0]}/{below}".strip("/")
                self._add(source / name, folder)

    def _add(self, path: Path, below: str) -> None:
        """Add the wanted members of a zip, by their names there, or of a plain tar, by their offsets and sizes."""
        relative = path.relative_to(self.root).as_posix()
        if is_compressed(path):
            raise UserError(f"{path} is a compressed tar, whose members cannot be read one by one; extract it and pass "
                            "its folder")  # fmt: skip
        for name, member in members(path, self._selects, below):
            location = f"{relative}{_IN_ZIP}{member.written}"
            if member.start >= 0:
                location = _IN_TAR.join((relative, str(member.start), str(member.size), name))
            self.files.setdefault(name, File(location, member.size, member.mark))

    @property
    def names(self) -> list[str]:
        """The names of all files, in order."""
        return sorted(self.files)

    def location(self, name: str) -> str:
        """Return the location of a file for `read_file`."""
        return self.files[name].location

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return read_file(str(self.root), self.files[name].location)

    def fingerprint(self) -> str:
        """Return a hash of names, sizes, members' checksums (zips) or times (tars), and the content of label files.

        The content of pictures in folders is not read.
        """
        digest = hashlib.sha256()
        for name in self.names:
            file = self.files[name]
            signature = str(file.checksum)
            if not any(mark in file.location for mark in _INSIDE) and holds_labels(name, file.bytes):
                signature = content(self.root / name)
            digest.update(f"{name}\0{file.bytes}\0{signature}\n".encode())
        return digest.hexdigest()


class Unreadable(Exception):
    """Error for a file that is gone or cannot be decompressed."""


_GONE = (
    OSError,
    ValueError,  # a changed array or table; Arrow's errors are of this kind
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
    KeyError,
)


def read_file(root: str, location: str) -> bytes:
    """Return the content of a file that a `Store` below `root` listed, or of a cell of a table.

    Raises:
        Unreadable: The file is gone or damaged.
    """
    try:
        if table_cells.IN_TABLE in location:
            return table_cells.read_cell(root, location)
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


def location_text(location: str) -> str:
    """Return a location as messages show it."""
    if table_cells.IN_TABLE in location:
        file, row, column = location.split(table_cells.IN_TABLE)
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


@functools.lru_cache(maxsize=16)
def _open_zip(path: str, mtime_ns: int, size: int) -> zipfile.ZipFile:
    """Keep a zip archive open: reading a large index for every member would take most of the time."""
    return zipfile.ZipFile(path)


def _walk(folder: Path) -> list[tuple[str, int]]:
    """Return (name, bytes) of all files below, names with forward slashes, without hidden ones and those of systems."""
    listing, pending = [], [""]
    while pending:
        below = pending.pop()
        with os.scandir(folder / below) as entries:
            for entry in entries:
                name = f"{below}{entry.name}"
                if is_hidden(entry.name):
                    continue
                if entry.is_dir():
                    pending.append(f"{name}/")
                elif entry.is_file():
                    listing.append((name, entry.stat().st_size))

    return listing
