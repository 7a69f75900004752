"""Print the lowest versions that pyproject.toml allows, a line each, as pip's constraints: `make test-lowest`."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

_TOOLS = {"dev", "docs"}  # extras of programs that check and publish: any version will do
_BOUND = re.compile(r"([\w.-]+)(?:\[[\w,-]*\])?\s*(?:>=|==)\s*([\w.]+)")


def lowest_versions(path: Path) -> Iterator[str]:
    """Yield `name==version` for each requirement of the package and its tests that has a lower bound."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    several = [project["dependencies"], *(extras[name] for name in extras.keys() - _TOOLS)]
    bounds = {name: version for group in several for name, version in map(_bound, group) if version}
    yield from (f"{name}=={version}" for name, version in sorted(bounds.items()))


def _bound(requirement: str) -> tuple[str, str]:
    match = _BOUND.match(requirement)
    return (requirement, "") if match is None else (match[1], match[2])


if __name__ == "__main__":
    print("\n".join(lowest_versions(Path(sys.argv[1]))))
