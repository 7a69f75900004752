"""Report on an experiment's records as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtlscale.records import RunRecord, write_atomically
from mtlscale.report.formats.markdown import markdown_cell, markdown_part, markdown_section
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.overall.columns import across
from mtlscale.report.sections.registry import REPORT, sections
from mtlscale.report.stats.curves import EpochReader, no_epochs, with_epochs
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.studies.method_tables import method_tables


def write_report(
    records: Sequence[RunRecord],
    folder: Path,
    name: str,
    *,
    epochs: EpochReader = no_epochs,
    board: Leaderboard | None = None,
    description: str = "",
) -> dict[str, Path]:
    """Write the report's files, each whole or not at all; return kind -> its file.

    These are leaderboard.md, .csv, .html and .png in the folder, and one of every other chart in its folder `pictures`.
    `epochs` reads those of records that lack them; the board is given where tables are not read as usual.
    """
    from mtlscale.report.charts.canvas import save
    from mtlscale.report.charts.matplotlib_renderer import draw
    from mtlscale.report.charts.scores import leaderboard_charts
    from mtlscale.report.writing.dataset_charts import drawn_rows, pictures
    from mtlscale.report.writing.html import page

    board = Leaderboard.from_records(records) if board is None else board
    records = with_epochs(records, {name: drawn_rows(table) for name, table in board.tables.items()}, epochs)

    learned = ""
    for dataset, runs in by_dataset(newest(records)).items():
        for sheet in method_tables(runs, board.published.get(dataset, ())):
            title = f"{sheet.title} on {dataset}" if len(board.tables) > 1 else sheet.title
            learned += f"{markdown_section(replace(sheet, title=title))}\n"
    section_text = "".join(map(markdown_part, sections(board.tables, records, REPORT)))

    overall = board.overall()
    overall_text = "" if overall is None else f"{markdown_section(across(overall), 2)}\n"
    description_text = f"{markdown_cell(description)}\n\n" if description else ""
    texts = {
        "markdown": (
            "leaderboard.md",
            f"# {name}\n\n{description_text}{overall_text}{board.to_markdown()}{learned}{section_text}",
        ),
        "csv": ("leaderboard.csv", board.to_csv()),
        "html": ("leaderboard.html", page(records, board, name, description=description)),
    }

    files = {kind: folder / file for kind, (file, _) in texts.items()}
    for kind, (_, text) in texts.items():
        write_atomically(files[kind], text.encode())
    files["png"] = save(draw(*leaderboard_charts(board.tables.values())), folder / "leaderboard.png")
    for kind, charts in pictures(records, board):
        files[kind] = save(draw(*charts), folder / "pictures" / f"{kind}.png")

    return files
