"""An experiment's report as one page that needs nothing else: what to take away first, the rest folded below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtlscale.records import RunRecord
from mtlscale.report import layout
from mtlscale.report.colors import Looks, page_looks
from mtlscale.report.facts import facts
from mtlscale.report.frames import by_dataset, newest
from mtlscale.report.glossary import glossary
from mtlscale.report.grids import column_grid, grids, main_grid
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.overall import Overall
from mtlscale.report.pages import PAGE, SMALL_PAGE, Drawing, Grid, drawing, rendered, word_grid
from mtlscale.report.studies import Study, studies
from mtlscale.report.table import Table
from mtlscale.report.takeaway import takeaway

FEW_DATASETS = 3  # whose figures are open
OPEN_FIGURES = 2  # of each of them
FEWEST_FILTERED = 4  # methods that a filter is worth its place for


@dataclass(frozen=True, kw_only=True)
class _Section:
    """A data set."""

    id: str
    title: str
    sentence: str
    legend: str
    main: Grid
    first: list[Drawing]
    more: list[Drawing]
    quality: list[Grid]
    tasks: list[Grid]
    cost: list[Grid]
    beside: list[Grid]
    facts: list[Grid]
    columns: list[layout.Column]


def page(records: Iterable[RunRecord], board: Leaderboard, name: str, *, live: str = "", description: str = "") -> str:
    """The HTML. description: the experiment's sentence, above everything.
    live: of a page that asks its server for news, the results that it shows."""
    runs = by_dataset(newest(records))
    everything = [record for group in runs.values() for record in group]
    shown = page_looks(everything, board.tables.values())
    methods = list(dict.fromkeys(record.method for record in everything))
    sections = [
        _section(table, number, runs[dataset], board, shown)
        for number, (dataset, table) in enumerate(board.tables.items())
    ]
    told = [_study(study, number) for number, study in enumerate(studies(everything, board), len(sections))]
    overall = board.overall()
    above = None if overall is None else _overall(overall, shown)
    drawings = [one for section in sections for one in (*section.first, *section.more)]
    drawings += [one for part in ([above] if above else []) + told for one in part["drawings"]]
    heads = [(column.header, column.help) for section in sections for column in section.columns]
    return rendered(
        "experiment.html",
        title=f"{name} · mtlscale",
        name=name,
        description=description,
        chips=_chips(board, everything),
        overall=above,
        sections=sections,
        studies=told,
        failures=_failures(board),
        provenance=_provenance(runs, everything),
        specs={dataset: _specs(group) for dataset, group in runs.items()},
        words=glossary(board.tables.values(), heads if len(sections) == 1 else _common(heads, len(sections))),
        drawings=drawings,
        methods=methods if len(methods) >= FEWEST_FILTERED else (),
        live=live,
    )


def _section(table: Table, number: int, runs: Sequence[RunRecord], board: Leaderboard, shown: Looks) -> _Section:
    from mtlscale.report.figures import figures

    few = len(board.tables) <= FEW_DATASETS
    size = PAGE if few else SMALL_PAGE
    drawn = [
        drawing(f"figure-{number}-{index}", title, what, figure)
        for index, (title, what, figure) in enumerate(figures(table, runs, shown))
    ]
    first = OPEN_FIGURES if few else 0
    found = layout.columns(table)
    quality, tasks, cost = layout.by_block(found)
    metrics = ", ".join(dict.fromkeys(table.main_metrics.values()))
    return _Section(
        id=f"data-{number}",
        title=table.dataset,
        sentence=takeaway(table),
        legend=f"{layout.legend(table)} {layout.colour_key(table)}",
        main=main_grid(table, found, size),
        first=drawn[:first],
        more=drawn[first:],
        quality=grids(table, quality, "Quality", size) if quality else [],
        tasks=grids(table, tasks, f"By task: {table.split} {metrics}", size) if tasks else [],
        cost=grids(table, cost, "Cost", size) if cost else [],
        beside=[
            word_grid(f"Beside {one.published.source}", one.header, one.rows, after=one.legend())
            for one in board.comparisons.get(table.dataset, ())
        ],
        facts=[
            word_grid(one.title, one.header, one.rows, one.what)
            for one in facts(runs, board.known.get(table.dataset, ()))
        ]
        + [word_grid("Ids of the runs", *layout.run_ids(table), "what `mtlscale show`, `rerun` and `export` take")],
        columns=found,
    )


def _study(study: Study, number: int) -> dict[str, Any]:
    return {
        "id": f"data-{number}",
        "title": study.title,
        "sentences": study.sentences,
        "grids": [word_grid(one.title, one.header, one.rows, one.what) for one in study.tables],
        "drawings": [drawing(f"figure-{number}-0", study.title, "", study.plot(), wide=True)],
    }


def _overall(overall: Overall, shown: Looks) -> dict[str, Any]:
    names = [str(name) for name in overall.rows.index]
    return {
        "sentence": overall.sentence,
        "notes": "; ".join(overall.notes),
        "grid": column_grid(names, overall.columns(), "All data sets together", {}),
        "drawings": [
            drawing(f"overall-{index}", title, what, figure)
            for index, (title, what, figure) in enumerate(overall.figures(shown))
        ],
    }


def _chips(board: Leaderboard, records: Sequence[RunRecord]) -> list[str]:
    status = Counter(record.status for record in records)
    chips = [
        _count(len(board.tables), "data set"),
        _count(len({record.method for record in records}), "method"),
        _count(len({record.seed for record in records}), "seed"),
        f"{status['finished']} of {_count(len(records), 'run')} finished",
    ]
    chips += [f"{status[bad]} {bad}" for bad in ("failed", "diverged") if status[bad]]
    if last := max((record.finished for record in records), default=""):
        chips.append(f"last run ended {last[:16].replace('T', ' ')} UTC")
    return chips


def _failures(board: Leaderboard) -> Grid | None:
    several = len(board.tables) > 1
    rows = [
        (method, *([dataset] if several else []), str(seed), status, error)
        for dataset, table in board.tables.items()
        for method, seed, status, error in layout.failures(table)
    ]
    header = ("method", *(["data set"] if several else []), "seed", "status", "cause")
    return word_grid("", header, rows) if rows else None


def _provenance(runs: Mapping[str, Sequence[RunRecord]], records: Sequence[RunRecord]) -> dict[str, str]:
    versions = sorted({f"{name} {version}" for record in records for name, version in record.versions.items()})
    told = {
        "mtlscale revision": sorted({record.revision for record in records if record.revision}),
        "hardware": sorted({record.hardware for record in records if record.hardware}),
        "workers per run": sorted({str(record.workers) for record in records}),
        "versions": versions,
        **{
            f"fingerprint of {dataset}": sorted({record.fingerprint for record in group})
            for dataset, group in runs.items()
        },
    }
    return {name: ", ".join(values) or "not recorded" for name, values in told.items()}


def _specs(records: Sequence[RunRecord]) -> dict[str, str]:
    """The spec of each method's first run: its seeds differ in nothing else."""
    import yaml

    first: dict[str, RunRecord] = {}
    for record in records:
        first.setdefault(record.method, record)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast
    return {
        method: yaml.dump(record.spec, Dumper=dumper, sort_keys=False, allow_unicode=True)
        for method, record in first.items()
    }


def _common(heads: Sequence[tuple[str, str]], sections: int) -> list[tuple[str, str]]:
    """Columns that most data sets have: of many the tasks' would make a long list."""
    counted = Counter(heads)
    return [head for head, count in counted.items() if 2 * count > sections]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
