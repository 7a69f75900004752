"""Turn links between files of the repository into links between pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from mtlscale.config.registry.components import PACKAGES, names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = "source/"  # below it stand the files that pages link to
DOCUMENTS = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "agents.md": "AGENTS.md",
    "releasing.md": "RELEASING.md",
    "cluster.md": "cluster/README.md",
    "tables/index.md": "results/tables/README.md",
    **{
        f"studies/{page.parent.name}.md": page.relative_to(ROOT).as_posix()
        for page in sorted((ROOT / "results").glob("[0-9]*/README.md"))
    },
    **{
        f"tables/{page.parent.parent.name}-{page.parent.name}.md": page.relative_to(ROOT).as_posix()
        for page in sorted((ROOT / "results" / "tables").glob("*/*/README.md"))
    },
}
COMPONENTS = {name: f"{kind}/{name}.md" for kind in PACKAGES for name in names(kind, plugins=False)}
METHODS = "docs/methods.md"  # has the sections of which pages of components are made
LINK = re.compile(r"(\]\()([^)\s#:]*)(#[^)\s]*)?(\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".md": "markdown", ".sh": "sh"}


def documents() -> list[tuple[str, str]]:
    """Return each written document's page of the site and its file in the repository."""
    return [(path.name, f"docs/{path.name}") for path in sorted(DOCS.glob("*.md"))] + list(DOCUMENTS.items())


def place_of(uri: str) -> str:
    """Return the file of the repository that a page of the site is made of."""
    return DOCUMENTS.get(uri) or (METHODS if uri in COMPONENTS.values() else f"docs/{uri}")


def source_page(place: str) -> str:
    """Return the page that lists a source file."""
    return f"{SOURCES}{place}.md"


def _targets(text: str, uri: str) -> set[str]:
    folder = posixpath.dirname(place_of(uri))
    return {posixpath.normpath(posixpath.join(folder, found[2])) for found in LINK.finditer(text)}


def linked_sources(pages: Mapping[str, str]) -> set[str]:
    """Return the files that pages link to and that are no pages themselves."""
    found = set().union(*(_targets(text, uri) for uri, text in pages.items()))
    return {place for place in found if (ROOT / place).is_file() and _page(place) == source_page(place)}


def _page(place: str) -> str:
    """Return the page of the site that has a file of the repository."""
    if place in DOCUMENTS.values():
        return next(uri for uri, document in DOCUMENTS.items() if document == place)
    if place.startswith("docs/") and not place.startswith("docs/examples/"):
        return place.removeprefix("docs/").replace(".ipynb", ".md")
    return source_page(place)


def with_links_of_site(text: str, uri: str) -> str:
    """Return the text of a page with links to pages of the site."""
    here = place_of(uri)

    def turned(found: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[2])) if found[2] else here
        anchor = found[3] or ""
        if not (ROOT / place).is_file():
            return found[0]  # tests/test_site.py tells of it
        target = _page(place)
        if place in (METHODS, "docs/components.md") and anchor[1:] in COMPONENTS:
            target, anchor = COMPONENTS[anchor[1:]], ""
        path = "" if target == uri and anchor else posixpath.relpath(target, posixpath.dirname(uri) or ".")
        return f"{found[1]}{path}{anchor}{found[4]}"

    return LINK.sub(turned, text)


def listing(place: str) -> str:
    """Return a page that shows one file and is left out of the search."""
    text = (ROOT / place).read_text(encoding="utf-8")
    fence = "`" * (2 + max(map(len, re.findall(r"`+", text)), default=1))
    language = LANGUAGES.get(Path(place).suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {place}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"
