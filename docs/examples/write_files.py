"""Writes the files that own_table.yaml and own_texts.yaml read, from what comes with Python and scikit-learn."""

import re
import sys
from pathlib import Path
from pydoc_data.topics import topics

from sklearn.datasets import load_wine

# A chapter of Python's manual for each class; the tasks are told apart by what they ask.
TEXTS = {
    "types": {"typesseq": "sequences", "string-methods": "strings", "typesmapping": "mappings"},
    "chapters": {"import": "import", "assignment": "assignment", "debugger": "debugger", "with": "with"},
}


def write_texts(folder: Path) -> None:
    """A TSV for each task: a paragraph, and which chapter it is from."""
    for task, chapters in TEXTS.items():
        lines = ["label\ttext"]
        for chapter, label in chapters.items():
            paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", topics[chapter]))
            lines += [f"{label}\t{text}" for text in dict.fromkeys(paragraphs) if len(re.findall("[a-z]+", text)) > 7]
        (folder / f"{task}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_table(folder: Path) -> None:
    """A row per wine, the grower as the task: how much alcohol does it have?"""
    wine = load_wine()
    names = [re.sub(r"\W+", "_", name) for name in wine.feature_names]
    lines = [",".join(["grower", *names])]
    for grower, row in zip(wine.target, wine.data, strict=True):
        lines.append(",".join([f"grower{grower}", *map(str, row)]))
    (folder / "wine.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_texts(Path(sys.argv[1]))
    write_table(Path(sys.argv[1]))
