"""The report of an experiment as one page that needs no other file: conclusions first, details folded below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import counted
from mtlscale.report.cells.sheet import PAGE, Sheet, text_sheet
from mtlscale.report.charts.colors import LineStyles, page_looks
from mtlscale.report.columns.shown import by_block, columns
from mtlscale.report.formats.glossary import glossary
from mtlscale.report.formats.pages import drawings, rendered
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.overall.columns import across
from mtlscale.report.overall.multi_dataset import Overall
from mtlscale.report.report_section import ReportSection
from mtlscale.report.sections.registry import HTML, sections
from mtlscale.report.sheets.dataset import rays, run_ids
from mtlscale.report.sheets.page_tables import main_sheet, split_sheets
from mtlscale.report.stats.curves import EpochReader, no_epochs, with_epochs
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.studies.method_tables import method_tables
from mtlscale.report.tables.caveats import colour_key, failures, legend
from mtlscale.report.tables.table import Table
from mtlscale.report.tables.takeaway import takeaway

SMALL_PAGE = 10  # rows of a table that are shown at once where there are many data sets
FEW_DATASETS = 3  # data sets at most, for their figures to be open
OPEN_FIGURES = 2  # open figures of each data set
FEWEST_FILTERED = 4  # methods from which on a filter is worth its room


def page(
    records: Sequence[RunRecord],
    board: Leaderboard,
    name: str,
    *,
    epochs: EpochReader = no_epochs,
    live: str = "",
    description: str = "",
) -> str:
    """Return the HTML of the page.

    Args:
        records: Run records of the experiment.
        board: Its leaderboard.
        name: Its name.
        epochs: The reader of the epochs of records that lack them.
        live: The state of the results that the page shows, for a page that asks its server for news; else "".
        description: The experiment's sentence, above everything.
    """
    from mtlscale.report.writing.dataset_charts import drawn_rows

    records = with_epochs(records, {name: drawn_rows(table) for name, table in board.tables.items()}, epochs)
    runs = by_dataset(newest(records))
    all_records = [record for group in runs.values() for record in group]
    shown = page_looks(all_records, board.tables.values())
    methods = list(dict.fromkeys(record.method for record in all_records))

    of_datasets = [
        _section(table, number, runs[dataset], board, shown)
        for number, (dataset, table) in enumerate(board.tables.items())
    ]
    numbered = enumerate(sections(board.tables, all_records, HTML), len(of_datasets))
    over_all = [_over_all(one, number) for number, one in numbered]
    overall = board.overall()
    above = None if overall is None else _overall(overall, shown)

    drawn = [picture for section in of_datasets for picture in (*section["first"], *section["more"])]
    drawn += [picture for part in ([above] if above else []) + over_all for picture in part["drawings"]]
    heads = [(column.header, column.help) for section in of_datasets for column in section["columns"]]

    return rendered(
        "experiment.html",
        title=f"{name} · mtlscale",
        name=name,
        description=description,
        chips=_chips(board, all_records),
        overall=above,
        sections=of_datasets,
        studies=over_all,
        failures=_failures(board),
        provenance=_provenance(runs, all_records),
        specs={dataset: _specs(group) for dataset, group in runs.items()},
        words=glossary(board.tables.values(), heads),
        drawings=drawn,
        methods=methods if len(methods) >= FEWEST_FILTERED else (),
        live=live,
    )


def _section(
    table: Table, number: int, runs: Sequence[RunRecord], board: Leaderboard, styles: LineStyles
) -> dict[str, Any]:
    from mtlscale.report.writing.dataset_charts import page_charts

    few_datasets = len(board.tables) <= FEW_DATASETS
    size = PAGE if few_datasets else SMALL_PAGE
    drawn = drawings(f"figure-{number}", page_charts(table, runs, styles))
    open_figures = OPEN_FIGURES if few_datasets else 0

    table_columns = columns(table)
    metrics = ", ".join(dict.fromkeys(table.main_metrics.values()))
    captions = ("Quality", f"By task: {table.split} {metrics}", "Cost")
    quality, tasks, cost = (
        split_sheets(table, block, caption, size)
        for block, caption in zip(by_block(table_columns), captions, strict=True)
    )

    return {
        "id": f"data-{number}",
        "title": table.dataset,
        "sentence": takeaway(table),
        "legend": f"{legend(table)} {colour_key(table)}",
        "main": main_sheet(table, size),
        "first": drawn[:open_figures],
        "more": drawn[open_figures:],
        "quality": quality,
        "tasks": tasks,
        "cost": cost,
        "beside": [comparison.sheet for comparison in board.comparisons.get(table.dataset, ())],
        "method_tables": [
            *([] if table.front is None else [rays(table, table.front)]),
            *method_tables(runs, board.published.get(table.dataset, ())),
            run_ids(table),
        ],
        "columns": table_columns,
    }


def _over_all(section: ReportSection, number: int) -> dict[str, Any]:
    return {
        "id": f"data-{number}",
        "title": section.title,
        "sentences": section.texts,
        "sheets": section.tables,
        "drawings": drawings(f"figure-{number}", section.charts, wide=True),
    }


def _overall(overall: Overall, styles: LineStyles) -> dict[str, Any]:
    from mtlscale.report.overall.plots import charts

    sheet = across(overall)
    return {
        "sentence": sheet.text,
        "sheet": replace(sheet, title="", text=""),
        "drawings": drawings("overall", (chart for chart in charts(overall, styles) if chart.title)),
    }


def _chips(board: Leaderboard, records: Sequence[RunRecord]) -> list[str]:
    status = Counter(record.status for record in records)
    chips = [
        counted(len(board.tables), "data set"),
        counted(len({record.method for record in records}), "method"),
        counted(len({record.seed for record in records}), "seed"),
        f"{status['finished']} of {counted(len(records), 'run')} finished",
    ]

    chips += [f"{status[bad]} {bad}" for bad in ("failed", "diverged") if status[bad]]
    if last_end := max((record.finished for record in records), default=""):
        chips.append(f"last run ended {last_end[:16].replace('T', ' ')} UTC")
    return chips


def _failures(board: Leaderboard) -> Sheet | None:
    several_datasets = len(board.tables) > 1
    rows = [
        (method, *([dataset] if several_datasets else []), str(seed), status, error)
        for dataset, table in board.tables.items()
        for method, seed, status, error in failures(table)
    ]
    header = ("method", *(["data set"] if several_datasets else []), "seed", "status", "cause")
    return text_sheet("", "", header, rows) if rows else None


def _provenance(runs: Mapping[str, Sequence[RunRecord]], records: Sequence[RunRecord]) -> dict[str, str]:
    versions = sorted({f"{name} {version}" for record in records for name, version in record.versions.items()})
    details = {
        "mtlscale revision": sorted({record.revision for record in records if record.revision}),
        "hardware": sorted({record.hardware for record in records if record.hardware}),
        "workers per run": sorted({str(record.workers) for record in records}),
        "versions": versions,
        **{
            f"fingerprint of {dataset}": sorted({record.fingerprint for record in group})
            for dataset, group in runs.items()
        },
    }

    return {name: ", ".join(values) or "not recorded" for name, values in details.items()}


def _specs(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the spec of each method's first run; those of its other seeds differ in nothing else."""
    import yaml

    first_records: dict[str, RunRecord] = {}
    for record in records:
        first_records.setdefault(record.method, record)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast
    return {
        method: yaml.dump(record.spec, Dumper=dumper, sort_keys=False, allow_unicode=True)
        for method, record in first_records.items()
    }
