"""Formats of a table and of a page: terminal, Markdown, LaTeX, notebook, HTML."""
