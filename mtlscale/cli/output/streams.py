"""Standard output and error that never fail: a terminal, pipe or log may lack signs, or end before we do."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from contextlib import suppress

# What stands for signs that tables and messages use; others lose their accents, or become a question mark.
_PLAIN = {"·": "-", "±": "~", "−": "-", "–": "-", "×": "x", "…": ".", "≈": "~", "Δ": "D", "∠": "<", "η": "n", "✓": "+"}


def make_tolerant() -> None:
    """Have both streams write something else for a sign that their encoding lacks."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # else a stream of somebody's program
            with suppress(OSError):  # one that another process began, and that cannot seek
                stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return as many characters as could not be encoded, so that tables keep their columns."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_character, error.object[error.start : error.end])), error.end


def _character(sign: str) -> str:
    base = _PLAIN.get(sign) or unicodedata.normalize("NFKD", sign)[0]
    return base if base.isascii() else "?"
