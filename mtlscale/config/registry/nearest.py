"""The names nearest to one that nobody knows, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from mtlscale.config.paths import is_folder
from mtlscale.config.registry.synonyms import names_here, plain

_MOST_NAMES = 12  # listed in a message; of more names only the nearest are shown


_TABLES = (".csv", ".tsv", ".parquet", ".arff", ".xlsx")


def file_hint(name: str) -> str:
    """Return a clause on what to do with a table or a folder that stands where a name is expected; "" for neither."""
    path = Path(name)
    if path.suffix.lower() in _TABLES or path.name.lower().endswith(tuple(f"{suffix}.gz" for suffix in _TABLES)):
        stem = path.name.partition(".")[0]
        return f"it is a table: `mtlscale inspect {name} --write {stem}.yaml` makes an experiment of it"
    if path.suffix.lower() in (".yaml", ".yml"):
        return f"it is an experiment file: `mtlscale run {name}`"
    return "it is a folder" if is_folder(path) else ""


def nearest(name: str, candidates: Sequence[str], *, listing: str = "") -> str:
    """Return a clause with the name that was meant, or the most similar known ones, for error messages.

    Args:
        name: The unknown name.
        candidates: The known names.
        listing: The argument of `mtlscale list` that shows all of them, if they are too many for a line.
    """
    synonyms = [synonym for synonym in names_here(name) if synonym in candidates]
    if synonyms:
        return f"it is called {' or '.join(synonyms)} here"

    same_letters = [candidate for candidate in candidates if plain(candidate) == plain(name)]
    close = same_letters or difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    if close:
        shown = [name if name == name.strip() else f"{name!r} (with blanks around it)" for name in close]
        return f"did you mean {' or '.join(shown)}?"

    if len(candidates) <= _MOST_NAMES:
        return f"known: {', '.join(candidates)}"
    similar = ", ".join(difflib.get_close_matches(name, candidates, n=5, cutoff=0.0))
    return f"the nearest are {similar}" + (f"; `mtlscale list {listing}` has all" if listing else "")
