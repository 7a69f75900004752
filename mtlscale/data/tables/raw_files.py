"""The bytes of a user's file, unpacked and decoded by what they are, whatever the file is called."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from pathlib import Path
from typing import Any

from mtlscale.config import UserError

Problems = list[tuple[str, str]]  # (row, what is wrong with it)
UTF_8, LATIN_1, WINDOWS = "utf-8", "latin-1", "cp1252"
PACKED = (".gz", ".bz2", ".xz")  # endings of packed files
_UNPACK = ((re.compile(rb"\x1f\x8b"), gzip.decompress), (re.compile(rb"BZh[1-9]1AY&SY"), bz2.decompress),
           (re.compile(rb"\xfd7zXZ\0"), lzma.decompress))  # fmt: skip
_WIDE = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_LOOKED_AT = 4096  # bytes that tell UTF-16 without a mark
_SYSTEM = frozenset({"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin",
                     "system volume information", "@eadir"})  # fmt: skip


def is_hidden(name: str) -> bool:
    """Return whether a file is one of an operating system, or below a hidden folder, and thus no sample.

    Args:
        name: The path with forward slashes, relative to the source.
    """
    return any((part.startswith(".") and part.strip(".")) or part.lower() in _SYSTEM for part in name.split("/"))


def suffix_of(name: str) -> str:
    """Return the ending that tells a file's format, in small letters and without that of packing."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def is_packed(start: bytes) -> bool:
    """Return whether a file that begins with these bytes is packed with gzip, bzip2 or xz."""
    return any(mark.match(start) for mark, _ in _UNPACK)


def unpacked(where: str, path: Path) -> bytes:
    """Return the bytes of a file, unpacked where they are packed; raise `UserError` if it cannot be read.

    Args:
        where: The file as messages name it.
    """
    try:
        raw = path.read_bytes()
        return next((unpack(raw) for mark, unpack in _UNPACK if mark.match(raw)), raw)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{where} cannot be read ({briefly(error)}); fetch it again") from None


def decoded(where: str, raw: bytes) -> tuple[str, str]:
    """Return a file's text and its encoding.

    That is UTF-8, or UTF-16 or UTF-32 by its mark, else that of Windows, else Latin-1, in which every byte is a letter.

    Raises:
        UserError: The file is no text.
    """
    wide = next((encoding for mark, encoding in _WIDE if raw.startswith(mark)), "") or _unmarked(raw)
    try:
        if wide:
            return raw.decode(wide), wide.removesuffix("-le").removesuffix("-be")
        if b"\0" not in raw:
            return raw.decode("utf-8-sig"), UTF_8
    except UnicodeDecodeError:
        if not wide:
            return _eight_bits(raw)
    raise UserError(f"{where} is not text: it contains NUL bytes; save it as UTF-8")


def encoding_note(name: str, encoding: str) -> dict[str, Any]:
    """Return the note of a prepared set on a file that is no UTF-8."""
    return {} if encoding == UTF_8 else {f"read_as_{encoding.replace('-', '_')}": [name]}


def briefly(error: Exception) -> str:
    """Return an error's text on one line of at most 120 characters, since some texts hold whole file headers."""
    return " ".join(str(error).split())[:120] or type(error).__name__


def _eight_bits(raw: bytes) -> tuple[str, str]:
    """Decode bytes that are no UTF-8; the encodings differ in the bytes 128 to 159, which hold no letter of Latin-1."""
    if re.search(rb"[\x80-\x9f]", raw):
        try:
            return raw.decode(WINDOWS), WINDOWS
        except UnicodeDecodeError:
            pass
    return raw.decode(LATIN_1), LATIN_1


def _unmarked(raw: bytes) -> str:
    """Return the form of UTF-16 without a mark that bytes have: nearly every second one is zero; "" if none."""
    start = raw[:_LOOKED_AT]
    even, odd = start[::2].count(0), start[1::2].count(0)
    most, fewest = max(even, odd), min(even, odd)
    if len(start) < 8 or 4 * most < len(start) or 10 * fewest > most:
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"
