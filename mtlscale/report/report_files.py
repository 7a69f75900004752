"""Report on an experiment's records as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mtlscale.records import RunRecord, write_atomically
from mtlscale.report.cells.number_format import file_name
from mtlscale.report.charts.chart import Chart, of_file
from mtlscale.report.formats.markdown import markdown, markdown_cell
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.report_section import HTML, OVERALL, REPORT, ReportSection
from mtlscale.report.sections.registry import sections
from mtlscale.report.stats.curves import EpochReader, no_epochs


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
    from mtlscale.report.charts.scores import leaderboard_charts
    from mtlscale.report.charts.vega import save

    board = Leaderboard.from_records(records) if board is None else board
    descriptions = [description] if description else []
    report = board.report(records, title=name, overall=board.overall(), descriptions=descriptions, epochs=epochs)
    report = report.with_epochs()
    report_sections = sections(report, REPORT)

    description_text = f"{markdown_cell(description)}\n\n" if description else ""
    texts = {
        "markdown": ("leaderboard.md", f"# {name}\n\n{description_text}{markdown(report_sections)}"),
        "csv": ("leaderboard.csv", board.to_csv()),
        "html": ("leaderboard.html", report.text(HTML)),
    }

    files = {kind: folder / file for kind, (file, _) in texts.items()}
    for kind, (_, text) in texts.items():
        write_atomically(files[kind], text.encode())
    files["png"] = save(leaderboard_charts(board.tables.values()), folder / "leaderboard.png")
    for kind, charts in pictures(report_sections):
        files[kind] = save(charts, folder / "pictures" / f"{kind}.png")

    return files


def pictures(made: Sequence[ReportSection]) -> Iterator[tuple[str, list[Chart]]]:
    """Yield (file name without suffix, charts below each other) of every file besides the leaderboard's."""
    datasets = list(dict.fromkeys(section.dataset for section in made if section.dataset))
    for section in sorted(made, key=lambda section: (not section.dataset, section.key == OVERALL)):
        if section.dataset:
            number = datasets.index(section.dataset) + 1
            suffix = "" if len(datasets) == 1 else f"_{number}_{file_name(section.dataset)}"
            yield from ((f"{name}{suffix}", charts) for name, charts in of_file(section.charts).items())
            continue
        for number, chart in enumerate(section.charts, 1):
            if chart.file or section.key != OVERALL:
                yield chart.file or f"{section.key}{f'_{number}' if len(section.charts) > 1 else ''}", [chart]
