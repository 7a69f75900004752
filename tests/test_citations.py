"""Where the mathematics comes from: every component names a source and has a section in the docs, and nothing cites a
page that is not part of the repository."""

import re
import subprocess
from pathlib import Path

import pytest

from mtlscale.config.registry import components

ROOT = Path(__file__).parents[1]
PAGE = "docs/methods.md"
INTERNAL = re.compile(r"\b(?:DESIGN|METHODS|PLATFORM)(?:\.md| §| invariant)")  # pages no reader has

COMPONENTS = [
    (kind, name)
    for kind in ("balancers", "architectures", "objectives")
    for name in components.names(kind, plugins=False)
]


def headings() -> list[str]:
    return re.findall(r"^#+ (.*)$", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)


def anchors() -> set[str]:
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings()}


def texts() -> dict[str, str]:
    """The tracked text files by name."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout")
    found = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b"\0"
        if b"\0" not in content:
            found[name] = content.decode("utf-8", errors="replace")
    return found


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_source_and_section(kind: str, name: str) -> None:
    source = components.component(kind, name).source
    assert re.search(r"\b(19|20)\d\d\b|\bown\b", source), f"{name}: {source!r} names neither a year nor 'own'"
    assert any(f"`{name}`" in heading for heading in headings()), f"{name} has no section in {PAGE}"


def test_nothing_cites_a_page_that_is_not_here() -> None:
    assert [(name, found[0]) for name, text in texts().items() if (found := INTERNAL.search(text))] == []


def test_cited_sections_exist() -> None:
    """Links within the page, and `docs/methods.md#…` anywhere."""
    known = anchors()
    for name, text in texts().items():
        cited = re.findall(rf"{PAGE}#([\w-]+)", text)
        if name == PAGE:
            cited += re.findall(r"\]\(#([^)]+)\)", text)
        assert set(cited) <= known, f"{name} cites {sorted(set(cited) - known)}"
