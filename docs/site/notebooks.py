"""Turn notebooks into Markdown, with what their cells have printed and drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """Return a notebook as a page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(_cell(cell) for cell in cells) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text
    return "\n\n".join([f"```python\n{text}\n```", *map(_output, cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    """Return what a cell has shown: a picture, a table, or else its text."""
    data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
    if "image/png" in data:
        return f'<img alt="What the cell above draws" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "text/html" in data:
        return re.sub(r"\n\s*\n", "\n", f"<div>{data['text/html']}</div>")  # a blank line would end the block
    text = data.get("text/plain") or "".join(output.get("text", ""))
    return f"```text\n{text.rstrip()}\n```"
