"""The leaderboard: one table per data set that says how good each method is, what it costs, and what is real.

Definitions: docs/methods.md#deltas for Δ and η, docs/methods.md#which-differences-are-real for the tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import RenderableType

from mtlscale.config import UserError, check_delta
from mtlscale.records import RunRecord
from mtlscale.report.columns.computed import notes as notes_on
from mtlscale.report.columns.computed import of_rows, of_runs
from mtlscale.report.columns.departure import equal_weights, repeats
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import definitions, directions_beside
from mtlscale.report.overall.multi_dataset import ROPE, Overall, overall
from mtlscale.report.rendered import Report
from mtlscale.report.report_section import MARKDOWN, NOTEBOOK
from mtlscale.report.sections.numbers import all_rows
from mtlscale.report.sections.registry import sections
from mtlscale.report.stats import statistics
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.stats.item_intervals import REPLICATES
from mtlscale.report.stats.near_zero import order_without
from mtlscale.report.stats.ties import tied
from mtlscale.report.tables.caveats import smallest
from mtlscale.report.tables.published import Published, PublishedTable
from mtlscale.report.tables.table import Table

Planned = Mapping[str, Mapping[str, Collection[int]]]  # data set -> method -> seeds


@dataclass(frozen=True)
class Leaderboard:
    """The tables of an experiment, by data set label."""

    tables: dict[str, Table]
    published: dict[str, tuple[PublishedTable, ...]] = field(default_factory=dict)  # what is published on each data set

    @classmethod
    def from_records(
        cls,
        records: Iterable[RunRecord],
        baseline: str | Mapping[str, str] = "stl",
        reference: str | Mapping[str, str] = "equal",
        published: Published | None = None,
        delta: Mapping[str, Sequence[str]] | None = None,
        notes: Mapping[str, Sequence[str]] | None = None,
        planned: Planned | None = None,
        plugins: Collection[str] = (),
    ) -> Leaderboard:
        """Build the tables from the newest record of every data set, method and seed.

        Args:
            records: Run records of an experiment, in the order of their runs.
            baseline: Label of the method Δ is taken to, for all tables or by data set.
            reference: Label of the method the paired tests and step times compare with, likewise.
            published: Published tables to compare with.
            delta: Data set (or "", for all others) -> the metrics in Δ and η; default: those its pipeline declares.
            notes: Data set -> further notes on its table.
            planned: Data set -> method -> seeds of the experiment; its rows are there without runs, too.
            plugins: Names of loaded plugin files, without suffix, whose columns and sections it has.

        Raises:
            UserError: If there are no runs, or a metric in `delta` is not measured.
        """
        groups = by_dataset(records)
        if not groups:
            raise UserError("there are no runs to report yet; start some with `mtlscale run`")
        delta = delta or {}
        measured = {name: Frame(dataset=name, all_records=runs).metrics for name, runs in groups.items()}
        check_delta(delta, {name: metrics for name, metrics in measured.items() if metrics})

        tables = {}
        for dataset, runs in groups.items():
            base, ref = (choice if isinstance(choice, str) else choice[dataset] for choice in (baseline, reference))
            table = _table(
                Frame(
                    dataset=dataset,
                    all_records=runs,
                    baseline_name=base,
                    reference_name=ref,
                    delta=delta.get(dataset, delta.get("", ())),
                    planned_seeds=(planned or {}).get(dataset, {}),
                    plugins=plugins,
                )
            )
            tables[dataset] = replace(table, notes=(*(notes or {}).get(dataset, ()), *table.notes))

        if published is None:
            return cls(tables)
        pipelines = {dataset: runs[0].spec.get("dataset", {}).get("name", "") for dataset, runs in groups.items()}
        return cls(tables, {dataset: published.of(pipeline, dataset) for dataset, pipeline in pipelines.items()})

    def only(self, rows: Collection[str]) -> Leaderboard:
        """Return the tables with these rows alone; they are compared with the same methods as before."""
        tables = {dataset: table.only(rows) for dataset, table in self.tables.items()}
        return replace(self, tables={dataset: table for dataset, table in tables.items() if len(table.rows)})

    def overall(self, rope: float = ROPE) -> Overall | None:
        """Return the joint result of the data sets, None for fewer than two.

        Args:
            rope: Largest difference in points that has no meaning in practice.
        """
        return overall(self.tables, rope)

    def report(self, records: Iterable[RunRecord] = (), **settings: Any) -> Report:
        """Return the report that shows the tables in every format.

        Args:
            records: Its records, older ones among them; without any there are no sections of plugins.
            settings: Other attributes of `Report`.
        """
        runs = [record for group in by_dataset(newest(records)).values() for record in group]
        return Report(tables=self.tables, records=runs, published=self.published, **settings)

    def __repr__(self) -> str:
        """Return the tables as a terminal shows them, as wide as it is, else 120 columns."""
        from mtlscale.report.formats.terminal import plain_text

        return plain_text(self.to_rich())

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show."""
        from mtlscale.report.formats.html import in_a_notebook

        return in_a_notebook(sections(self.report(), NOTEBOOK))

    def to_pandas(self) -> pd.DataFrame:
        """Return all tables below each other, one row per data set and method, best first."""
        return all_rows(self.tables.values())

    def to_csv(self) -> str:
        return self.to_pandas().to_csv(index=False)

    def to_markdown(self) -> str:
        return self.report().text(MARKDOWN)

    def to_rich(self, *, wide: bool = False) -> RenderableType:
        """Return what a terminal shows, no wider than it is.

        By default each data set has a table of 80 columns and its conclusion; `wide` shows all tables.
        """
        from rich.console import Group

        return Group(*self.report().printed(wide=wide))


def _table(frame: Frame) -> Table:
    """Build the table of one data set: its runs, its rows, best method first, and the notes that follow from them."""
    measured = of_runs(frame)
    replicates = [np.array([] if record.items is None else record.items.means) for record in frame.finished]
    of_items = pd.Series(replicates, frame.runs.index, dtype=object, name=REPLICATES)
    failed = frame.all_runs[frame.all_runs["status"] != "finished"]

    table = Table(
        dataset=frame.dataset,
        split=frame.split,
        part=frame.part,
        main_metrics=frame.main,
        delta=tuple(frame.entered),
        near_zero=frame.near_zero,
        higher_is_better=frame.directions | directions_beside(measured.stored, frame.plugins),
        better={key: definition.better for key, definition in definitions(frame.plugins).items()},
        baseline=frame.baseline,
        reference=frame.reference,
        order=order_without(frame.near_zero, frame.main, measured.values),
        rows=pd.DataFrame(),
        runs=pd.concat([frame.runs, measured.values, of_items], axis=1),
        failures=failed[["method", "seed", "status", "error", "run_id"]].reset_index(drop=True),
        notes=(),
        domains=next((tuple(record.domains) for record in frame.finished if record.domains), ()),
        front=frame.front,
        floors=frame.floors,
        plugins=frame.plugins,
        test_items=max((record.items.count for record in frame.finished if record.items is not None), default=0),
    )

    table = replace(table, untested=_untested(table, frame.counts))
    computed = of_rows(table, frame, measured)
    rows = computed.values.sort_values(
        table.order, ascending=table.ascending, na_position="last", kind="stable", key=tied
    )
    idle, _ = equal_weights(frame.finished, list(map(str, rows.index)))
    seeds, detectable = smallest(table, rows)
    table = replace(table, rows=rows, idle=idle, shared_seeds=seeds, detectable=detectable)
    table = replace(table, repeats=repeats(table, frame.finished))
    return replace(table, notes=(*frame.notes, *notes_on(table, frame), *measured.notes, *computed.notes))


def _untested(table: Table, counts: pd.DataFrame) -> int:
    """Return how many rows have too few of their planned runs for a test that all of them would make."""
    if table.reference is None:
        return 0
    seeds = table.runs.groupby("method")["seed"].agg(set)
    reference_seeds = seeds[table.reference]
    shared_counts = {
        method: len(seeds.get(method, set()) & reference_seeds) for method in counts.index.drop(table.reference)
    }
    too_few = counts.loc[[method for method, pairs in shared_counts.items() if pairs < statistics.FEWEST_SEEDS]]
    waiting = (too_few["planned"] >= statistics.FEWEST_SEEDS) & (too_few["planned"] > too_few["finished"])
    return int(waiting.sum())
