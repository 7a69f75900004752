"""Output formats: terminal, Markdown, HTML, LaTeX, JSON, notebook."""
