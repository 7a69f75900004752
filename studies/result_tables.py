"""Write result pages as folders of tables: results/tables/<suite>/<version>/README.md, and a CSV file per table.

A page is the Markdown that `studies/results.py` makes of records. Cells go into CSV as they are shown, without
bold type, so no digit differs between page and CSV.

    python studies/result_tables.py     # write the CSV files of all pages in results/tables, and their index
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parents[1] / "results" / "tables"
CSV_LINK = re.compile(r"^\[[\w.+-]+\.csv\]\([\w.+-]+\.csv\)\n\n?", re.MULTILINE)
KINDS = {  # a column that only this kind of table has -> its name
    "published as": "published",
    "step ×": "cost",
    "from equal, %": "weights",
    "expected": "expected_trees",
    "tree": "trees",
    "task and point": "branch_points",
    "branch points": "branch_point_shares",
    "modules": "conflicts",
    "applied": "conflicts",
    "transfer": "transfers",
    "chosen by the source": "means",
    "what is known": "correlations",
    "search": "searches",
    "runs": "leaderboard",
    "method by seed": "seeds",
    "method by number of tasks": "number_of_tasks",
}
OF_DATASETS = (
    "published",
    "cost",
    "leaderboard",
    "seeds",
    "tasks",
    "correlations",
    "searches",
)  # kinds that have the data set in the file's name
INDEX_HEAD = """\
# Tables of results

One folder per suite and version: a page with all tables and the command that gives them, and each table as CSV. The
conclusions are in [docs/results.md](../../docs/results.md). Versions marked `early` were copied by hand from single
seeds; all others are written by `python studies/results.py`.

| suite | version | what it is |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class CutTable:
    """A table of a page.

    Attributes:
        name: The name of its CSV file, without the ending.
        rows: The cells, the head first.
        end: The number of the line behind it.
    """

    name: str
    rows: tuple[tuple[str, ...], ...]
    end: int

    def to_csv(self) -> str:
        """Return the table as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows)
        return text.getvalue()


def cut(page: str) -> list[CutTable]:
    """Return the tables of a page, in their order."""
    tables = list(_uncounted(page))
    short_names = Counter(short for short, _, _, _ in tables)
    names = [short if short_names[short] == 1 else long for short, long, _, _ in tables]

    counts: Counter[str] = Counter()
    result = []
    for name, (_, _, rows, end) in zip(names, tables, strict=True):
        counts[name] += 1
        result.append(CutTable(name if counts[name] == 1 else f"{name}_{counts[name]}", rows, end))
    return result


def _uncounted(page: str) -> Iterator[tuple[str, str, tuple[tuple[str, ...], ...], int]]:
    """Yield (short name, name with the data set, rows, number of the line behind it) of each table of a page."""
    lines = page.splitlines()
    dataset, heading, kind = "", "", ""

    number = 0
    while number < len(lines):
        line = lines[number]
        if title := re.match(r"(#+) (.*)", line):
            heading = title[2]
            if len(title[1]) == 2:
                dataset = _slug(heading)
        if not line.startswith("|"):
            number += 1
            continue

        end = next((n for n in range(number, len(lines)) if not lines[n].startswith("|")), len(lines))
        rows = tuple(_cells(row) for row in lines[number:end] if not re.fullmatch(r"[|:\- ]+", row))
        kind = _kind(rows[0], kind) or _slug(heading)
        if kind == "published" and (source := re.search(r"tables? [\d.]+(?:(?:-| and )[\d.]+)?", heading)):
            kind = f"published_{_slug(source[0])}"

        long = f"{dataset}_{kind}" if dataset not in ("", kind) else kind
        of_dataset = kind.partition("_")[0] in OF_DATASETS
        yield long if of_dataset else kind, long, rows, end
        number = end


def _kind(head: tuple[str, ...], previous: str) -> str:
    """Return the kind of a table by its columns; "" if they do not tell."""
    for column, kind in KINDS.items():
        if column in head:
            return kind
    return "tasks" if previous == "leaderboard" and head[0] == "method" else ""


def _cells(row: str) -> tuple[str, ...]:
    parts = re.split(r"(?<!\\)\|", row)[1:-1]
    return tuple(part.strip().replace("\\|", "|").replace("**", "") for part in parts)


def _slug(title: str) -> str:
    return re.sub(r"\W+", "_", title.lower().replace("%", "percent").replace("δ", "delta")).strip("_")


def with_links(page: str) -> str:
    """Return a page with a link below each table to its CSV file."""
    plain = CSV_LINK.sub("", page)
    lines = plain.splitlines()
    for table in reversed(cut(plain)):
        lines[table.end : table.end] = ["", f"[{table.name}.csv]({table.name}.csv)"]
    return "\n".join(lines).rstrip() + "\n"


def write(folder: Path, page: str) -> None:
    """Write a page and the CSV files of its tables; files of tables that it has no more are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.csv"):
        path.unlink()
    linked = with_links(page)
    (folder / "README.md").write_text(linked, encoding="utf-8")
    for table in cut(linked):
        (folder / f"{table.name}.csv").write_text(table.to_csv(), encoding="utf-8")


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Yield (suite, its page) of a text with a second-level heading for each suite; headings move up by one."""
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        suite, _, text = part.partition("\n")
        yield suite.strip(), f"# {suite.strip()}\n" + re.sub(r"^##(#+) ", r"#\1 ", text, flags=re.MULTILINE)


def version_of(page: str, default: str) -> str:
    """Return the version that a page names."""
    named = re.search(r"mtlscale (\d\S*)", page)
    return named[1].rstrip(",;") if named else default


def pages(folder: Path = TABLES) -> list[Path]:
    """Return the pages of all suites and versions below a folder."""
    return sorted(folder.glob("*/*/README.md"))


def index(folder: Path = TABLES) -> str:
    """Return the page that lists all suites and versions below a folder."""
    rows = (_row(page, folder) for page in pages(folder))
    return INDEX_HEAD + "".join(rows)


def _row(page: Path, folder: Path) -> str:
    suite, version = page.parent.parent.name, page.parent.name
    text = page.read_text(encoding="utf-8")
    return f"| [{suite}]({page.relative_to(folder).as_posix()}) | {version} | {_description(text.splitlines()[1:])} |\n"


def _description(lines: Iterable[str]) -> str:
    """Return the first paragraph that is neither a table nor set in bold."""
    return next((line for line in lines if line and line[0] not in "#|*`<-["), "")


def main() -> int:
    for page in pages():
        write(page.parent, page.read_text(encoding="utf-8"))
    (TABLES / "README.md").write_text(index(), encoding="utf-8")
    print(TABLES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
