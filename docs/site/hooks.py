"""Hooks of mkdocs: pages made of the code, links into the code, lists and formulas.

The pages are written for GitHub. The hooks convert what mkdocs reads differently.
"""

from __future__ import annotations

import re
from typing import Any

import formulas
import repository
from mkdocs.structure.files import File, Files

FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the README as first page, other documents from outside docs, and the source files that pages link to."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for uri, place in repository.DOCUMENTS.items():
        pages[uri] = (repository.ROOT / place).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=pages[uri]))
    for place in sorted(repository.linked_sources(pages)):
        files.append(File.generated(config, repository.source_page(place), content=repository.listing(place)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Convert the text of a page from GitHub's Markdown."""
    uri = page.file.src_uri
    if uri.startswith(repository.SOURCES):
        return markdown
    parts = FENCED.split(markdown)
    return "".join(part if place % 2 else _plain(part, uri) for place, part in enumerate(parts))


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """Convert the formulas of a page to MathML."""
    return formulas.to_mathml(html)


def _plain(markdown: str, uri: str) -> str:
    """Return text outside of code for mkdocs: nested lists indented by four, links to pages of the site."""
    deeper = re.sub(r"^( {2,})(?=\S)", lambda found: " " * (4 * (len(found[1]) // 2)), markdown, flags=re.MULTILINE)
    return repository.with_links_of_site(deeper, uri)
