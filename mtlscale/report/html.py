"""The report as one page that needs nothing else: tables, interactive figures, failures and provenance.

Everything a user or a library has named is escaped; nothing is fetched from anywhere.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report import layout
from mtlscale.report.facts import facts
from mtlscale.report.frames import by_dataset, newest
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.statistics import BETTER, FEW, SAME, WORSE
from mtlscale.report.studies import Study, studies
from mtlscale.report.table import Table
from mtlscale.report.takeaway import takeaway

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_HERE = Path(__file__).parent
_WIDE = (
    "weight",
    "Branch points",
    "Learned tree",
    "Gate",
    "Probability",
    "Covariance",
)  # in titles of figures with many panels
_PILLS = {BETTER: "better", WORSE: "worse", SAME: "same", FEW: "few"}


def page(records: Iterable[RunRecord], board: Leaderboard, name: str) -> str:
    """The HTML of an experiment's report."""
    from mtlscale.report.figures import figures

    runs = by_dataset(newest(records))
    everything = [record for group in runs.values() for record in group]
    sections, drawings = [], []
    for number, (dataset, table) in enumerate(board.tables.items()):
        drawn = figures(table, runs[dataset])
        beside = "".join(comparison.to_html() for comparison in board.comparisons.get(dataset, ()))
        beside += "".join(found.to_html() for found in facts(runs[dataset]))
        sections.append(_dataset(table, number, [(title, what) for title, what, _ in drawn], beside))
        drawings += [drawing(f"figure-{number}-{index}", figure) for index, (_, _, figure) in enumerate(drawn)]
    for number, study in enumerate(studies(everything, board), len(board.tables)):
        sections.append(_study(study, number))
        drawings.append(drawing(f"figure-{number}-0", study.plot()))
    return filled(
        f"{name} · mtlscale",
        {
            "HEADER": _header(name, board, everything),
            "SECTIONS": "\n".join(sections),
            "FAILURES": _failures(board),
            "PROVENANCE": _provenance(runs, everything),
            "FIGURES": "\n".join(drawings),
        },
    )


def filled(title: str, parts: Mapping[str, str]) -> str:
    """The page of these parts, with its style, its script and plotly's inside."""
    from plotly.offline import get_plotlyjs

    everything = {
        "TITLE": _text(title),
        "STYLE": (_HERE / "page.css").read_text(encoding="utf-8"),
        "PLOTLY": get_plotlyjs(),
        "SCRIPT": (_HERE / "page.js").read_text(encoding="utf-8"),
        **parts,
    }
    template = (_HERE / "page.html").read_text(encoding="utf-8")
    # Split at the places once: a value that happens to hold another place's name stays as it is.
    pieces = template.split("@@")
    return "".join(everything[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def drawing(place: str, figure: Figure) -> str:
    """A figure for the element of this id. plotly writes "<" as \\u003c, so its JSON cannot end the script element it
    stands in."""
    return f'<script type="application/json" data-for="{place}">{figure.to_json()}</script>'


def _header(name: str, board: Leaderboard, records: Sequence[RunRecord]) -> str:
    status = Counter(record.status for record in records)
    methods = len({record.method for record in records})
    seeds = len({record.seed for record in records})
    facts = [
        _count(len(board.tables), "data set"),
        _count(methods, "method"),
        _count(seeds, "seed"),
        f"{status['finished']} of {_count(len(records), 'run')} finished",
    ]
    facts += [f"{status[bad]} {bad}" for bad in ("failed", "diverged") if status[bad]]
    if last := max((record.finished for record in records), default=""):
        facts.append(f"last run ended {last[:16].replace('T', ' ')} UTC")
    links = ""
    if len(board.tables) > 1:
        items = (f'<a href="#data-{index}">{_text(dataset)}</a>' for index, dataset in enumerate(board.tables))
        links = f'<nav aria-label="Data sets">{"".join(items)}</nav>'
    chips = "".join(f"<li>{_text(fact)}</li>" for fact in facts)
    return f'<h1>{_text(name)}</h1><ul class="facts">{chips}</ul>{links}'


def _dataset(table: Table, number: int, drawn: Sequence[tuple[str, str]], beside: str) -> str:
    metrics = ", ".join(dict.fromkeys(table.main_metrics.values()))
    legend = f"{layout.legend(table)} {layout.colour_key(table)}"
    captions = ("Quality", f"By task: {table.split} {metrics}", "Cost")
    tables = "".join(
        _table(table, block, caption)
        for caption, block in zip(captions, layout.by_block(layout.columns(table)), strict=True)
        if block
    )
    plots = "".join(_figure(number, index, title, what) for index, (title, what) in enumerate(drawn))
    return (
        f'<section id="data-{number}"><h2>{_text(table.dataset)}</h2>'
        f'<p class="summary">{_text(takeaway(table))}</p>{tables}'
        f'<p class="legend">{_text(legend)}</p>{beside}<div class="figures">{plots}</div></section>'
    )


def _study(study: Study, number: int) -> str:
    return (
        f'<section id="data-{number}"><h2>{_text(study.title)}</h2>{study.to_html()}'
        f'<div class="figures">{_figure(number, 0, study.title, "")}</div></section>'
    )


def _figure(number: int, index: int, title: str, what: str) -> str:
    return (
        f'<figure class="{"wide" if any(word in title for word in _WIDE) else ""}">'
        f"<figcaption><b>{_text(title)}</b> {_text(what)}</figcaption>"
        f'<div class="plot" id="figure-{number}-{index}" role="img" aria-label="{_text(title)}"></div>'
        "</figure>"
    )


def _table(table: Table, block: Sequence[layout.Column], caption: str) -> str:
    titles = [("method", "as the experiment names it"), *((column.header, column.help) for column in block)]
    head = [
        f'<th scope="col" title="{_text(help)}"><button type="button">{_text(header)}</button></th>'
        for header, help in titles
    ]
    body = []
    for index, method in enumerate(table.rows.index):
        role = {table.baseline: "baseline", table.reference: "reference"}.get(method, "")
        tag = f' <span class="role">{role}</span>' if role and method else ""
        cells = [f'<th scope="row" data-key="{_text(method)}">{_text(table.name(method))}{tag}</th>']
        for column in block:
            text, key = column.texts[index], column.keys[index]
            marks = {"best": column.best, "gain": column.gains, "loss": column.losses}
            kind = " ".join(mark for mark, marked in marks.items() if index in marked)
            shown = f'<span class="pill {_PILLS[text]}">{text}</span>' if text in _PILLS else _text(text)
            number = "" if np.isnan(key) else f"{key:.10g}"
            cells.append(f'<td class="{kind}" data-key="{number}">{shown}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    label = _text(f"{table.dataset}: {caption}")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        '<table class="sortable">'
        f"<caption>{_text(caption)}</caption><thead><tr>{''.join(head)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _failures(board: Leaderboard) -> str:
    rows = [
        f'<tr><td>{_text(dataset)}</td><td>{_text(method)}</td><td class="number">{seed}</td>'
        f'<td><span class="pill worse">{_text(status)}</span></td><td class="cause">{_text(error)}</td></tr>'
        for dataset, table in board.tables.items()
        for method, seed, status, error in layout.failures(table)
    ]
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{title}</th>' for title in ("data set", "method", "seed", "status", "cause"))
    return (
        '<section id="failures"><h2>Runs that did not finish</h2>'
        "<p>They count in no mean. Another try runs them again.</p>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Runs that did not finish"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _provenance(runs: dict[str, list[RunRecord]], records: Sequence[RunRecord]) -> str:
    versions = sorted({f"{name} {version}" for record in records for name, version in record.versions.items()})
    facts = {
        "mtlscale revision": sorted({record.revision for record in records if record.revision}),
        "hardware": sorted({record.hardware for record in records if record.hardware}),
        "workers per run": sorted({str(record.workers) for record in records}),
        "versions": versions,
        **{
            f"fingerprint of {dataset}": sorted({record.fingerprint for record in group})
            for dataset, group in runs.items()
        },
    }
    rows = "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(', '.join(values) or 'not recorded')}</dd>" for name, values in facts.items()
    )
    specs = "".join(_spec(dataset, group) for dataset, group in runs.items())
    return f'<section id="provenance"><h2>Provenance</h2><dl>{rows}</dl>{specs}</section>'


def _spec(dataset: str, records: Sequence[RunRecord]) -> str:
    """The spec of each method's first run: its seeds differ in nothing else."""
    import yaml

    first: dict[str, RunRecord] = {}
    for record in records:
        first.setdefault(record.method, record)
    items = "".join(
        f"<details><summary>{_text(method)}</summary>"
        f"<pre>{_text(yaml.safe_dump(record.spec, sort_keys=False, allow_unicode=True))}</pre></details>"
        for method, record in first.items()
    )
    return f"<details><summary>Specs on {_text(dataset)}</summary>{items}</details>"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
