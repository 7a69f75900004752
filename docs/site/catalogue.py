"""The page of shipped experiments, made of their files and of the tables of results."""

from __future__ import annotations

import repository
import yaml

INTRO = """# Shipped experiments

`mtlscale run NAME` runs one of these files, after `mtlscale prepare` has read its data where that is needed
([data sets](datasets.md)). Files that end in `_full` have the sizes and the published numbers of the papers; the others
take minutes on two cores. Their tables are beside them where they were run.
"""
HEAD = "| experiment | what it asks | data sets | methods | seeds | results |\n| --- | --- | --- | ---: | ---: | --- |"


def page() -> str:
    """Return the page."""
    files = sorted((repository.ROOT / "experiments").glob("*.yaml"))
    return "\n".join([INTRO, HEAD, *(_row(path.stem) for path in files)]) + "\n"


def _row(name: str) -> str:
    path = f"experiments/{name}.yaml"
    file = yaml.safe_load((repository.ROOT / path).read_text(encoding="utf-8"))
    datasets = dict.fromkeys(entry["name"] if isinstance(entry, dict) else entry for entry in file["datasets"])
    named = ", ".join(f"`{dataset}`" for dataset in datasets)
    sizes = f"{len(file.get('methods', []))} | {len(file['seeds']) if 'seeds' in file else ''}"
    return f"| [{name}](../{path}) | {file['description'].strip()} | {named} | {sizes} | {_tables(name)} |"


def _tables(name: str) -> str:
    """Return links to an experiment's tables, by their version."""
    pages = sorted((repository.ROOT / "results" / "tables" / name).glob("*/README.md"))
    return ", ".join(f"[{page.parent.name}](../{page.relative_to(repository.ROOT).as_posix()})" for page in pages)
