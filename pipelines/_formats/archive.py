"""Readers for the files of an archive or a folder, one after the other, without unpacking to disk."""

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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

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


class _Member(NamedTuple):
    """An entry of an archive: `kind` is empty for a file, `folder`, or words for a link or a device."""

    name: str
    kind: str
    size: int
    read: Callable[[], bytes]


def read_members(source: Path, selects: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the wanted files of a tar (any compression), a zip or a folder.

    Names are relative, with forward slashes. A folder is read in the order of names, an archive in its own order. Files
    of operating systems and hidden ones are left out. Every member's name is checked, wanted or not.

    Args:
        selects: Predicate on a name: whether to yield that file.

    Raises:
        UserError: The source does not exist, the archive is damaged, a member has an absolute name, `..` in its name,
            or is a link or a device, or there is more in the archive than any data set needs; such an archive is
            refused as a whole.
    """
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source).as_posix()
            if path.is_file() and not is_hidden(name) and selects(name):
                yield name, path.read_bytes()
        return

    if not source.is_file():
        raise UserError(f"{source} does not exist")

    try:
        yield from _checked(source, (_zip_members if zipfile.is_zipfile(source) else _tar_members)(source), selects)
    except PermissionError:
        raise
    except _DAMAGED as error:
        raise UserError(
            f"{source} is truncated or is no tar or zip archive ({briefly(error)}); fetch it again"
        ) from None


def _checked(source: Path, members: Iterable[_Member], selects: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    most_bytes = max(_HARMLESS_BYTES, _MOST_EXPANSION * source.stat().st_size)
    selected_bytes = 0

    for number, member in enumerate(members, 1):
        check_name(source, member.name, "" if member.kind == "folder" else member.kind)
        if number > _MOST_MEMBERS:
            raise UserError(f"{source} has more than {_MOST_MEMBERS} members; do not trust this archive")

        name = normal_name(member.name)
        if not member.kind and not is_hidden(name) and selects(name):
            selected_bytes += member.size
            if selected_bytes > most_bytes:
                raise UserError(f"{source} expands to over {_MOST_EXPANSION} times its size; do not trust this archive")
            yield name, member.read()


def _tar_members(source: Path) -> Iterator[_Member]:
    with _decompressed(source) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            kind = "" if member.isfile() else "folder" if member.isdir() else "a device" if member.isdev() else "a link"
            yield _Member(member.name, kind, member.size, partial(_tar_content, archive, member))
            archive.members.clear()  # type: ignore[attr-defined] # tarfile keeps all: half a gigabyte for a million
        # tarfile takes a cut inside a header for the end of the archive; reading on lets the decompressor notice it.
        while stream.read(1 << 20):
            pass


def _tar_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _decompressed(source: Path) -> IO[bytes]:
    with source.open("rb") as file:
        start = file.read(8)
    for magic, open_compressed in _COMPRESSED:
        if start.startswith(magic):
            return open_compressed(source)
    if source.stat().st_size % _TAR_BLOCK:
        raise tarfile.ReadError("its size is not that of whole blocks")
    return source.open("rb")


def _zip_members(source: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16  # 0 if the archive was not made on Unix
            is_plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
            name = true_name(member)
            kind = "a link or a device" if not is_plain else "folder" if name.endswith("/") else ""
            yield _Member(name, kind, member.file_size, partial(archive.read, member))


def true_name(member: zipfile.ZipInfo) -> str:
    """Return the name of a zip's member as its writer meant it.

    Old programs of Windows write backslashes between folders; macOS writes UTF-8 without saying so.
    """
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


def check_name(source: Path, name: str, kind: str) -> None:
    """Raise `UserError` for a member with an unsafe name or of an unsafe kind.

    Args:
        source: The archive, for the message.
        name: The member's name as the archive has it; unsafe if it is absolute or contains `..`.
        kind: Words for a link or a device, such as "a link"; empty for plain files and folders.
    """
    if (
        not kind and not name.startswith("/") and not any(mark in name for mark in ("..", "\\", ":"))
    ):  # true for nearly all
        return

    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts[:1] and path.parts[0].endswith(":")):
        raise UserError(f"{source} has the unsafe member {name!r}, outside its own folder; do not trust this archive")
    if kind:
        raise UserError(f"{source} has the member {name!r}, {kind}; repack it with plain files alone")
