"""Print the lowest versions that pyproject.toml allows, a line each, as pip's constraints: `make test-lowest`."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

_BOUND = re.compile(r"([\w.-]+)(?:\[[\w,-]*\])?\s*(?:>=|==)\s*([\w.]+)")


def lowest_versions(path: Path) -> Iterator[str]:
    """Yield `name==version` for each requirement that has a lower bound, its own extras left out."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    several = [project["dependencies"], *project["optional-dependencies"].values()]
    bounds = {name: version for group in several for name, version in map(_bound, group) if version}
    yield from (f"{name}=={version}" for name, version in sorted(bounds.items()))


def _bound(requirement: str) -> tuple[str, str]:
    match = _BOUND.match(requirement)
    return (requirement, "") if match is None else (match[1], match[2])


if __name__ == "__main__":
    print("\n".join(lowest_versions(Path(sys.argv[1]))))
