"""The leaderboard: one table per data set that says how good each method is, what it costs, and what is real.

Definitions: docs/methods.md#deltas for Δ and η, docs/methods.md#which-differences-are-real for the tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from rich.console import RenderableType

from mtlscale.config import UserError, check_delta
from mtlscale.records import RunRecord
from mtlscale.report.columns.computed import Computed, of_rows, of_runs
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import definitions, directions_beside
from mtlscale.report.overall.multi_dataset import ROPE, Overall, overall
from mtlscale.report.stats import near_zero, statistics
from mtlscale.report.stats.frames import by_dataset
from mtlscale.report.stats.fronts import is_ray
from mtlscale.report.stats.item_intervals import REPLICATES
from mtlscale.report.stats.ties import tied
from mtlscale.report.tables.caveats import near_zero_notes, resolution, smallest
from mtlscale.report.tables.equal_weights import equal_weights, repeats
from mtlscale.report.tables.published import Published, PublishedTable
from mtlscale.report.tables.published_comparison import Comparison, compare
from mtlscale.report.tables.table import Table

Planned = Mapping[str, Mapping[str, Collection[int]]]  # data set -> method -> seeds


@dataclass(frozen=True)
class Leaderboard:
    """The tables of an experiment, by data set label."""

    tables: dict[str, Table]
    comparisons: dict[str, tuple[Comparison, ...]] = field(default_factory=dict)  # with published tables, if any
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
        check_delta(delta, {name: measured for name, runs in groups.items() if (measured := _measured(runs))})

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

        comparisons, known_tables = {}, {}
        for dataset, runs in groups.items():
            pipeline = runs[0].spec.get("dataset", {}).get("name", "")
            known_tables[dataset] = () if published is None else published.of(pipeline, dataset)
            compared = [compare(tables[dataset], published_table) for published_table in known_tables[dataset]]
            if any(compared):
                comparisons[dataset] = tuple(comparison for comparison in compared if comparison is not None)

        return cls(tables, comparisons, known_tables)

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

    def __repr__(self) -> str:
        """Return the tables as a terminal shows them, as wide as it is, else 120 columns."""
        from mtlscale.report.formats.terminal import plain_text

        return plain_text(self.to_rich())

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show."""
        from mtlscale.report.formats.notebook import in_a_notebook

        return in_a_notebook(self.tables.values())

    def to_pandas(self) -> pd.DataFrame:
        """Return all tables below each other, one row per data set and method, best first."""
        frames = []
        for table in self.tables.values():
            frame = table.rows.reset_index()
            frame.insert(0, "dataset", table.dataset)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_csv(self) -> str:
        return self.to_pandas().to_csv(index=False)

    def to_markdown(self) -> str:
        from mtlscale.report.formats.markdown import markdown, markdown_section

        parts = []
        for dataset, table in self.tables.items():
            parts.append(markdown(table))
            parts += [markdown_section(comparison.sheet) for comparison in self.comparisons.get(dataset, ())]
        return "\n".join(parts)

    def to_rich(self, *, wide: bool = False) -> RenderableType:
        """Return what a terminal shows, no wider than it is.

        By default each data set has a table of 80 columns and its conclusion; `wide` shows all tables.
        """
        from rich.console import Group

        from mtlscale.report.formats.first_screen import first_screen
        from mtlscale.report.formats.terminal import Printed, conclusions, print_sheet

        if not wide:
            return Group(*first_screen(self.tables.values()))

        parts: list[RenderableType] = []
        for dataset, table in self.tables.items():
            parts.append(Printed(table))
            for comparison in self.comparisons.get(dataset, ()):
                parts += print_sheet(comparison.sheet)
        return Group(*parts, *conclusions(self.tables.values()))


def _table(frame: Frame) -> Table:
    """Build the table of one data set."""
    measured = of_runs(frame)
    replicates = [np.array([] if record.items is None else record.items.means) for record in frame.finished]
    of_items = pd.Series(replicates, frame.runs.index, dtype=object, name=REPLICATES)

    base = frame.baseline
    notes = [*_older_runs(frame.all_records, frame.latest), *_lost_rays(frame.latest)]
    near: tuple[near_zero.Entry, ...] = ()
    means, constant = frame.values.groupby(frame.runs["method"], sort=False).mean(), frame.row_named("constant")
    if base is None or frame.references is None:
        notes.append(f"no Δ and η: no finished run of {frame.baseline_name}")
        order = near_zero.order_without((), frame.main, measured.values)
    else:
        notes += _zero_references(frame.references, frame.entered, base)
        near = near_zero.near_zero(means, base, constant, frame.entered, frame.directions)
        order = near_zero.order_without(near, frame.main, measured.values)
        notes += near_zero_notes(near, means, base, constant, order)

    table = Table(
        dataset=frame.dataset,
        split=frame.split,
        part=frame.part,
        main_metrics=frame.main,
        delta=tuple(frame.entered),
        near_zero=near,
        higher_is_better=frame.directions | directions_beside(measured.stored, frame.plugins),
        better={key: one.better for key, one in definitions(frame.plugins).items()},
        baseline=base,
        reference=frame.reference,
        order=order,
        rows=pd.DataFrame(),
        runs=pd.concat([frame.runs, measured.values, of_items], axis=1),
        failures=_failures(frame.all_runs),
        notes=tuple(notes),
        domains=next((tuple(record.domains) for record in frame.finished if record.domains), ()),
        front=frame.front,
        floors=frame.floors,
        plugins=frame.plugins,
        test_items=max((record.items.count for record in frame.finished if record.items is not None), default=0),
    )
    return _with_rows(table, frame, measured)


def _with_rows(table: Table, frame: Frame, measured: Computed) -> Table:
    """Return the table with its rows, best method first, and with the notes that follow from them."""
    table = replace(table, untested=_untested(table, frame.counts))
    computed = of_rows(table, frame, measured)
    rows = computed.values.sort_values(
        table.order, ascending=table.ascending, na_position="last", kind="stable", key=tied
    )

    idle, weight_notes = equal_weights(frame.finished, list(map(str, rows.index)))
    seeds, detectable = smallest(table, rows)
    table = replace(table, rows=rows, idle=idle, shared_seeds=seeds, detectable=detectable)
    table = replace(table, repeats=repeats(table, frame.finished))
    failed_columns = (*measured.notes, *computed.notes)
    return replace(table, notes=(*table.notes, *resolution(table), *weight_notes, *failed_columns))


def _failures(all_runs: pd.DataFrame) -> pd.DataFrame:
    failed = all_runs[all_runs["status"] != "finished"]
    return failed[["method", "seed", "status", "error", "run_id"]].reset_index(drop=True)


def _measured(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    return Frame(dataset="", all_records=records).metrics


def _older_runs(all_records: Sequence[RunRecord], records: Sequence[RunRecord]) -> list[str]:
    """Return the note on runs that are left out for newer ones with other settings."""
    older = len({record.run_id for record in all_records}) - len({record.run_id for record in records})
    return [f"{older} older run{'s' if older > 1 else ''} with other settings left out"] if older else []


def _lost_rays(records: Sequence[RunRecord]) -> list[str]:
    """Return the note on rays whose runs did not finish: their row shows those of its central ray alone."""
    lost = [f"{r.method}, seed {r.seed} ({r.status})" for r in records if is_ray(r) and r.status != "finished"]
    return [f"rays without a point on their front: {', '.join(lost)}"] if lost else []


def _zero_references(references: pd.DataFrame, entered: Sequence[tuple[str, str]], baseline: str) -> list[str]:
    """Return the notes on metrics that have no Δ, as the baseline's value is 0."""
    zero = (references[entered] == 0).any().to_numpy()
    return [f"no Δ: {entered[i][1]} of {entered[i][0]} is 0 for {baseline}" for i in np.flatnonzero(zero).tolist()]


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
