"""Access to the files that an experiment names, out of a folder or an archive."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from pipelines._formats.archive import read_members

_ARCHIVE = re.compile(r"\.(zip|tar|tgz|txz|tbz2?|tar\.(gz|xz|bz2))$", re.IGNORECASE)


def is_archive(source: Path) -> bool:
    """Return whether a file is an archive, by its name."""
    return source.is_file() and _ARCHIVE.search(source.name) is not None


@contextmanager
def folder_with(source: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a folder with those of the named files and folders that exist.

    It is the source itself or, for an archive, a temporary folder. In an archive the names lie at the top, or all below
    one folder there.

    Raises:
        UserError: The archive is damaged or unsafe.
    """
    if not is_archive(source):
        yield source
        return

    names = [PurePosixPath(name).as_posix() for name in names]
    with tempfile.TemporaryDirectory(prefix="mtlscale-named-") as temporary:
        folder = Path(temporary, source.name)
        folder.mkdir()
        members = dict(
            read_members(source, lambda name: any(f"/{wanted_name}/" in f"/{name}/" for wanted_name in names))
        )
        below = _common(list(members), names)
        for name, content in members.items():
            if name.startswith(below):
                path = folder / name.removeprefix(below)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

        yield folder


def _common(members: Sequence[str], names: Sequence[str]) -> str:
    """Return the folder at an archive's top that has most of the names, with its slash; empty for the top itself."""

    def count(below: str) -> int:
        return sum(any(f"{member}/".startswith(f"{below}{name}/") for member in members) for name in names)

    tops = sorted({f"{name.partition('/')[0]}/" for name in members if "/" in name})
    return max(("", *tops), key=count)
