"""Everything there is to say about records, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtlscale.records import Ledger, RunRecord, write_atomically
from mtlscale.report.colors import page_looks
from mtlscale.report.curves import with_epochs
from mtlscale.report.facts import facts
from mtlscale.report.frames import by_dataset, newest
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.markdown import markdown_cell
from mtlscale.report.sheets import Sheet
from mtlscale.report.studies import studies


def write_report(
    records: Sequence[RunRecord],
    folder: Path,
    name: str,
    *,
    ledger: Ledger | None = None,
    board: Leaderboard | None = None,
    description: str = "",
) -> dict[str, Path]:
    """Write leaderboard.md, .csv, .html and .png into the folder, and into its folder `pictures` one of everything else
    there is to draw, each whole or not at all: what -> its file. `ledger`: has the epochs of records that lack them;
    `board`: their tables, where they are not read as usual."""
    from mtlscale.report.canvas import save
    from mtlscale.report.figures import drawn
    from mtlscale.report.html import page
    from mtlscale.report.plots import leaderboard_figure, pictures

    board = Leaderboard.from_records(records) if board is None else board
    if ledger is not None:
        records = with_epochs(records, {name: drawn(table) for name, table in board.tables.items()}, ledger)
    learned = "".join(
        one.to_markdown(dataset if len(board.tables) > 1 else "")
        for dataset, runs in by_dataset(newest(records)).items()
        for one in facts(runs, board.known.get(dataset, ()))
    )
    said = "".join(study.to_markdown() for study in studies(records, board))
    together = board.overall()
    above = "" if together is None else f"{Sheet.across(together).to_markdown()}\n"
    said_first = f"{markdown_cell(description)}\n\n" if description else ""
    texts = {
        "markdown": ("leaderboard.md", f"# {name}\n\n{said_first}{above}{board.to_markdown()}{learned}{said}"),
        "csv": ("leaderboard.csv", board.to_csv()),
        "html": ("leaderboard.html", page(records, board, name, description=description)),
    }
    files = {what: folder / file for what, (file, _) in texts.items()}
    for what, (_, text) in texts.items():
        write_atomically(files[what], text.encode())
    files["png"] = save(leaderboard_figure(board), folder / "leaderboard.png")
    for what, figure in pictures(records, board):
        files[what] = save(figure, folder / "pictures" / f"{what}.png")
    for what, figure in (
        [] if together is None else together.pictures(page_looks(newest(records), board.tables.values()))
    ):
        files[what] = save(figure, folder / "pictures" / f"{what}.png")
    return files
