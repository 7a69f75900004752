"""Write the pages of the site into one folder, as Markdown that any generator makes HTML of.

    python docs/site/stage.py build/pages

The documents are written for GitHub. Here they get the links, lists and generated pages that a site needs, so the
generator itself runs no code of ours but the extension for formulas.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import catalogue
import component_pages
import notebooks
import reference
import repository

FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
COPIED = (".png", ".svg", ".css", ".js")  # beside the pages


def main(folder: Path) -> None:
    """Write all pages and what they show into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for uri, text in staged().items():
        path = folder / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in repository.DOCS.rglob("*"):
        if path.suffix in COPIED:
            target = folder / path.relative_to(repository.DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def staged() -> dict[str, str]:
    """Return every page by its place on the site."""
    texts = {uri: (repository.ROOT / place).read_text(encoding="utf-8") for uri, place in repository.documents()}
    documents = {uri: reference.filled(text) for uri, text in texts.items()} | component_pages.pages()
    documents["methods.md"] = component_pages.without_sections(documents["methods.md"])
    documents |= {f"{path.stem}.md": notebooks.page(path) for path in repository.DOCS.glob("*.ipynb")}
    documents["experiments.md"] = catalogue.page()
    sources = {repository.source_page(place): place for place in repository.linked_sources(documents)}
    pages = {uri: converted(text, uri) for uri, text in documents.items()}
    return pages | {uri: repository.listing(place) for uri, place in sources.items()}


def converted(markdown: str, uri: str) -> str:
    """Return the text of a page, converted from GitHub's Markdown outside of code."""
    parts = FENCED.split(markdown)
    return "".join(part if place % 2 else _plain(part, uri) for place, part in enumerate(parts))


def _plain(markdown: str, uri: str) -> str:
    """Return text outside of code: nested lists indented by four, links to pages of the site."""
    deeper = re.sub(r"^( {2,})(?=\S)", lambda found: " " * (4 * (len(found[1]) // 2)), markdown, flags=re.MULTILINE)
    return repository.with_links_of_site(deeper, uri)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
