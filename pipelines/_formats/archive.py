"""Readers for the members of an archive or a folder, one after the other, without unpacking to disk."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mtlscale.config import UserError
from mtlscale.data.tables.raw_files import briefly, is_hidden

_DAMAGED = (tarfile.ReadError, zipfile.BadZipFile, EOFError, lzma.LZMAError, zlib.error, RuntimeError, OSError)
_COMPRESSED: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"\xfd7zXZ\x00", lzma.open),
    (b"BZh", bz2.open),
)
_TAR_BLOCK = 512
_UTF_8_NAME = 0x800  # the flag of a zip's member whose name is UTF-8
_MOST_MEMBERS = 10_000_000
_MOST_EXPANSION = 200  # of an archive's own size, which no compression of real data reaches
_HARMLESS_BYTES = 1 << 30


class Member(NamedTuple):
    """The entry of an archive.

    Attributes:
        name: Its name, as its writer meant it.
        kind: Empty for a file, `folder`, or words for a link or a device.
        size: Its number of bytes.
        start: The offset of its bytes, which a plain tar holds as they are; -1 elsewhere.
        mark: Its checksum in a zip, its time of modification in a tar.
        read: Function that returns its content before the next member is asked for.
        written: Its name as the archive has it.
    """

    name: str
    kind: str
    size: int
    start: int
    mark: int
    read: Callable[[], bytes]
    written: str


def read_members(source: Path, selects: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the wanted files of a tar (any compression), a zip or a folder.

    Names are relative, with forward slashes. A folder is read in the order of names, an archive in its own order. Files
    of operating systems and hidden ones are left out. Every member's name is checked, wanted or not.

    Args:
        selects: Predicate on a name: whether to yield that file.

    Raises:
        UserError: The source does not exist, or the archive is one that `members` refuses.
    """
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source).as_posix()
            if path.is_file() and not is_hidden(name) and selects(name):
                yield name, path.read_bytes()
        return

    if not source.is_file():
        raise UserError(f"{source} does not exist")
    with _sound(source):
        for name, member in members(source, selects):
            yield name, member.read()


def members(source: Path, selects: Callable[[str], bool], below: str = "") -> Iterator[tuple[str, Member]]:
    """Yield the wanted files of a zip or a tar with their names (`normal_name`), in the archive's order.

    Args:
        selects: Predicate on a name: whether to yield that file.
        below: The folder that all names get.

    Raises:
        UserError: The archive is damaged, a member has an absolute name, `..` in its name, or is a link or a device, or
            there is more in the archive than any data set needs.
    """
    most_bytes, selected_bytes = max(_HARMLESS_BYTES, _MOST_EXPANSION * source.stat().st_size), 0
    with _sound(source):
        is_zip = source.suffix.lower() == ".zip" or zipfile.is_zipfile(source)
        for number, member in enumerate((_of_zip if is_zip else _of_tar)(source), 1):
            _check(source, member)
            if number > _MOST_MEMBERS:
                raise UserError(f"{source} has more than {_MOST_MEMBERS} members; do not trust this archive")

            name = normal_name(f"{below}/{member.name}".lstrip("/"))
            if not member.kind and not is_hidden(name) and selects(name):
                selected_bytes += member.size
                if selected_bytes > most_bytes:
                    raise UserError(
                        f"{source} expands to over {_MOST_EXPANSION} times its size; do not trust this archive"
                    )
                yield name, member


@contextlib.contextmanager
def _sound(source: Path) -> Iterator[None]:
    """Raise `UserError` where an archive turns out to be damaged."""
    try:
        yield
    except PermissionError:
        raise
    except _DAMAGED as error:
        raise UserError(
            f"{source} is truncated or is no tar or zip archive ({briefly(error)}); fetch it again"
        ) from None


def is_compressed(path: Path) -> bool:
    """Return whether a file begins as gzip, xz or bzip2 do."""
    return _opener(path) is not None


def _opener(path: Path) -> Callable[..., Any] | None:
    with path.open("rb") as file:
        start = file.read(8)
    return next((opener for magic, opener in _COMPRESSED if start.startswith(magic)), None)


def _of_tar(source: Path) -> Iterator[Member]:
    opener = _opener(source)
    with (opener or Path.open)(source, "rb") as stream:
        if opener is None:  # `tarfile` would accept a tar that is cut off
            stream.seek(max(0, source.stat().st_size - _TAR_BLOCK))
            if len(last := stream.read()) < _TAR_BLOCK or any(last):
                raise tarfile.ReadError("it does not end as a tar does")
            stream.seek(0)

        with tarfile.open(fileobj=stream, mode="r:" if opener is None else "r|") as archive:
            for member in archive:
                kind = "folder" if member.isdir() else "a device" if member.isdev() else "a link"
                yield Member(member.name, "" if member.isfile() else kind, member.size, member.offset_data,
                             int(member.mtime), partial(_tar_content, archive, member), member.name)  # fmt: skip
                archive.members.clear()  # type: ignore[attr-defined] # it keeps all: half a gigabyte for a million
            if opener is None:
                stream.seek(archive.offset)
                if any(stream.read(_TAR_BLOCK)):  # `tarfile` takes a damaged header for the end
                    raise tarfile.ReadError("a header is damaged")
        # Nor does it notice a cut inside a header, which the decompressor does.
        while opener is not None and stream.read(1 << 20):
            pass


def _tar_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _of_zip(source: Path) -> Iterator[Member]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16  # 0 if the archive was not made on Unix
            is_plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
            name = _true_name(member)
            kind = "a link or a device" if not is_plain else "folder" if name.endswith("/") else ""
            yield Member(name, kind, member.file_size, -1, member.CRC, partial(archive.read, member), member.filename)


def _true_name(member: zipfile.ZipInfo) -> str:
    # Old programs of Windows write backslashes between folders; macOS writes UTF-8 without saying so.
    name = member.filename
    if not name.isascii() and not member.flag_bits & _UTF_8_NAME:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def normal_name(name: str) -> str:
    """Return a member's name without `./`, doubled slashes and a slash at its end, and with composed letters."""
    name = name if name.isascii() else unicodedata.normalize("NFC", name)
    if "./" not in name and "//" not in name and not name.endswith(("/", ".")):  # true for nearly all names
        return name
    return PurePosixPath(name).as_posix()


def _check(source: Path, member: Member) -> None:
    """Raise `UserError` for a member outside its folder, or of an unsafe kind."""
    name, kind = member.name, "" if member.kind == "folder" else member.kind
    if (
        not kind and not name.startswith("/") and not any(mark in name for mark in ("..", "\\", ":"))
    ):  # true for nearly all
        return

    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts[:1] and path.parts[0].endswith(":")):
        raise UserError(f"{source} has the unsafe member {name!r}, outside its own folder; do not trust this archive")
    if kind:
        raise UserError(f"{source} has the member {name!r}, {kind}; repack it with plain files alone")
