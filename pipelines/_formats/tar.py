"""The members of a plain tar and their offsets."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import NamedTuple

_BLOCK = 512


class Member(NamedTuple):
    """The entry of one member.

    Attributes:
        name: The member's name.
        start: The offset of its bytes.
        bytes: Its size.
        time: Its time of modification.
        kind: Empty for a file, `folder`, or words for any other kind.
    """

    name: str
    start: int
    bytes: int
    time: int
    kind: str


def members(path: Path) -> list[Member]:
    """Return all members.

    Raises:
        tarfile.TarError: The tar is cut off, damaged, compressed, or no tar.
        EOFError: The tar is cut off.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _BLOCK))
        if len(last := file.read()) < _BLOCK or any(last):  # `tarfile` would accept a tar that is cut off
            raise tarfile.ReadError("it does not end as a tar does")

        entries = []
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                kind = _member_type(member)
                entries.append(Member(member.name, member.offset_data, member.size, int(member.mtime), kind))
                archive.members.clear()  # type: ignore[attr-defined] # it keeps all: half a gigabyte for a million
            file.seek(archive.offset)
            if any(file.read(_BLOCK)):  # `tarfile` takes a damaged header for the end
                raise tarfile.ReadError(f"the header behind {len(entries)} members is damaged")
        return entries


def _member_type(member: tarfile.TarInfo) -> str:
    if member.issparse():
        return "sparse"
    if member.isfile():
        return ""
    return "folder" if member.isdir() else f"a {'device' if member.isdev() else 'link'}"
