"""The leaderboard: one table per data set that says how good each method is, what it costs, and what is real.

Definitions: docs/methods.md#deltas for Δ and η, docs/methods.md#which-differences-are-real for the tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import pandas as pd
from rich.console import RenderableType

from mtlscale.config import UserError, check_delta, entering, suite_delta
from mtlscale.config.experiment.experiment import Floor
from mtlscale.metrics import FIGURES
from mtlscale.records import RunRecord
from mtlscale.report.overall.multi_dataset import ROPE, Overall, overall
from mtlscale.report.stats import near_zero, statistics
from mtlscale.report.stats.frames import (
    UNITS,
    by_dataset,
    figure_frame,
    latest,
    method_of,
    metric_columns,
    newest,
    run_frame,
    units_frame,
    value_frame,
)
from mtlscale.report.stats.fronts import fronts, higher, is_ray
from mtlscale.report.stats.item_intervals import REPLICATES, intervals
from mtlscale.report.stats.ties import tied
from mtlscale.report.tables.caveats import near_zero_notes, resolution, smallest, survival
from mtlscale.report.tables.equal_weights import departures, equal_weights, repeats
from mtlscale.report.tables.gains import deltas, of_same_seed
from mtlscale.report.tables.published import Published, PublishedTable
from mtlscale.report.tables.published_comparison import Comparison, compare
from mtlscale.report.tables.table import Table

# Columns with a score per run; a row has their mean and interval over seeds.
SCORES = ("average", "last", "delta_i", "delta_flat", "delta_main", "safeness", "relative_error", "total_error", "part")


_FLOORS = frozenset(get_args(Floor))
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
            rows = (planned or {}).get(dataset, {})
            table = _table(dataset, runs, base, ref, delta.get(dataset, delta.get("", ())), rows)
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


def _finished(records: Iterable[RunRecord]) -> tuple[list[RunRecord], str]:
    """Return the finished runs, and the split they are judged by."""
    finished = [record for record in records if record.status == "finished"]
    return finished, "test" if any(record.metrics.get("test") for record in finished) else "val"


def _measured(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    return metric_columns(*_finished(newest(records)))


def _entering(
    columns: Sequence[tuple[str, str]], names: Sequence[str], record: RunRecord, main: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the measured (task, metric) in Δ and η: those that the experiment names, else the pipeline, else all."""
    # A task for which the pipeline declares no metric enters with its main metric.
    if names:
        return entering(names, columns)

    declared = suite_delta(str(record.spec.get("dataset", {}).get("name", "")))
    if not declared:
        return list(columns)

    entered = entering(declared, columns)
    named = {task for task, _ in entered}
    return [
        (task, metric)
        for task, metric in columns
        if (task, metric) in entered or (task not in named and main.get(task) == metric)
    ]


def _table(
    dataset: str,
    all_records: Sequence[RunRecord],
    baseline: str,
    reference: str,
    names: Sequence[str],
    planned: Mapping[str, Collection[int]],
) -> Table:
    """Build the table of one data set; `names` are the metrics that enter Δ, if the experiment says."""
    records, of_rays = newest(all_records), latest(all_records)
    (finished_records, split), directions = _finished(records), _directions(records)
    all_runs = run_frame(records)
    is_finished = all_runs["status"] == "finished"
    base, ref = (_label(name, finished_records) for name in (baseline, reference))

    columns = metric_columns(finished_records, split)
    values = value_frame([record.metrics.get(split, {}) for record in finished_records], columns)
    main = _main_metrics([*finished_records, *records], columns)
    entered = _entering(columns, names, records[0], main)
    runs = all_runs[is_finished].reset_index(drop=True)
    scores, part = _averages(finished_records, split, values, columns, main, runs.index)

    no_base = [] if base is not None else [f"no Δ and η: no finished run of {baseline}"]
    notes = [*_older_runs(all_records, of_rays), *_lost_rays(of_rays), *no_base]
    entries_near_zero: tuple[tuple[str, str], ...] = ()
    means, constant = values.groupby(runs["method"], sort=False).mean(), _label("constant", finished_records)
    if base is not None:
        references = of_same_seed(values, runs["seed"], runs["method"] == base)
        notes += _zero_references(references, entered, base)
        _add_gains(scores, values, references, directions, main, entered)
        entries_near_zero = near_zero.near_zero(means, base, constant, entered, directions)

    values.columns = measured = pd.Index([f"{task}.{metric}" for task, metric in columns])
    in_data = units_frame(finished_records, values, main)
    figures, front = figure_frame(finished_records, split), fronts(of_rays, split, main, directions)
    directions |= {name: FIGURES[name].higher_is_better for name in map(str, figures)}
    front_scores = pd.DataFrame() if front is None else front.of_runs(runs)
    replicates = [np.array([] if record.items is None else record.items.means) for record in finished_records]
    of_items = pd.Series(replicates, runs.index, dtype=object, name=REPLICATES)
    runs = pd.concat([runs, scores, values, in_data, figures, front_scores, of_items], axis=1)
    directions |= {UNITS: False, **higher(front)}

    order = near_zero.order_without(entries_near_zero, main, scores)
    if base is not None:
        notes += near_zero_notes(entries_near_zero, means, base, constant, order)
    table = Table(
        dataset=dataset,
        split=split,
        part=part,
        main_metrics=main,
        delta=tuple(entered),
        near_zero=entries_near_zero,
        higher_is_better=directions,
        baseline=base,
        reference=ref,
        order=order,
        rows=pd.DataFrame(),
        runs=runs,
        failures=all_runs.loc[~is_finished, ["method", "seed", "status", "error", "run_id"]].reset_index(drop=True),
        notes=tuple(notes),
        domains=next((tuple(record.domains) for record in finished_records if record.domains), ()),
        front=front,
        floors=_floors(records),
        test_items=max((record.items.count for record in finished_records if record.items is not None), default=0),
    )
    return _with_rows(table, finished_records, all_runs, planned, [*measured, *in_data, *figures, *front_scores])


def _directions(records: Sequence[RunRecord]) -> dict[str, bool]:
    """Return metric -> whether higher is better, from all records, as those of failed runs may know no directions."""
    return {metric: higher for record in reversed(records) for metric, higher in record.higher_is_better.items()}


def _main_metrics(records: Sequence[RunRecord], columns: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return task -> main metric, as measured, of the first record that declares any; failed runs may have none."""
    declared = next((record.main_metrics for record in records if record.main_metrics), {})
    return {task: metric for task, metric in declared.items() if (task, metric) in columns}


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


def _averages(
    finished: Sequence[RunRecord],
    split: str,
    values: pd.DataFrame,
    columns: Sequence[tuple[str, str]],
    main: dict[str, str],
    runs: pd.Index[int],
) -> tuple[pd.DataFrame, str]:
    """Return each run's scores, those that need no baseline filled in, and the name of the measured part of test."""
    scores, part = pd.DataFrame(np.nan, index=runs, columns=list(SCORES)), ""

    if len(set(main.values())) == 1:
        last_values = value_frame([record.last.get(split, {}) for record in finished], columns)
        scores["average"], scores["last"] = (_task_mean(frame, main) for frame in (values, last_values))
        part = next((name for record in finished for name in sorted(record.metrics) if name.startswith("test_")), "")
        scores["part"] = _task_mean(value_frame([record.metrics.get(part, {}) for record in finished], columns), main)
    if set(main.values()) == {"error"}:
        scores["total_error"] = scores["average"] * len(main)

    return scores, part


def _add_gains(
    scores: pd.DataFrame,
    values: pd.DataFrame,
    references: pd.DataFrame,
    directions: dict[str, bool],
    main: dict[str, str],
    entered: Sequence[tuple[str, str]],
) -> None:
    """Fill in the scores that compare with the baseline: Δ with what tests take for it, η and the relative error."""
    of_runs = deltas(values, references, directions, main, entered)
    scores[of_runs.columns] = of_runs
    if set(main.values()) == {"accuracy"}:
        errors, reference_errors = (100.0 - _task_mean(frame, main) for frame in (values, references))
        scores["relative_error"] = errors / reference_errors.where(reference_errors > 0)


def _with_rows(
    table: Table,
    finished: Sequence[RunRecord],
    all_runs: pd.DataFrame,
    planned: Mapping[str, Collection[int]],
    metrics: list[str],
) -> Table:
    """Return the table with its rows, best method first, and with the notes that follow from them."""
    counts = _counts(all_runs, planned)
    table = replace(table, untested=_untested(table, counts))

    rows = _method_rows(table, all_runs, counts, metrics)
    rows["run_ids"] = _run_ids(all_runs).reindex(rows.index)
    rows = rows.join(intervals(table.runs, rows.index, table.reference))
    rows["departure"] = rows.index.map(departures(finished)).astype(float)
    rows = rows.join(survival(finished))
    rows = rows.sort_values(table.order, ascending=table.ascending, na_position="last", kind="stable", key=tied)

    idle, weight_notes = equal_weights(finished, list(map(str, rows.index)))
    seeds, detectable = smallest(table, rows)
    table = replace(table, rows=rows, idle=idle, shared_seeds=seeds, detectable=detectable)
    table = replace(table, repeats=repeats(table, finished))
    return replace(table, notes=(*table.notes, *resolution(table), *weight_notes))


def _floors(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the labels of the rows that train no network."""
    return tuple(dict.fromkeys(record.method for record in records if method_of(record).lower() in _FLOORS))


def _label(name: str, done: Sequence[RunRecord]) -> str | None:
    """Return the label of finished runs that equals the name but for case, else that of the method so called."""
    labels = {record.method: method_of(record) for record in done}
    same_labels = (label for label in labels if label.lower() == name.lower())
    return next(same_labels, next((label for label, method in labels.items() if method.lower() == name.lower()), None))


def _counts(everything: pd.DataFrame, planned: Mapping[str, Collection[int]]) -> pd.DataFrame:
    """Return how many runs of each method finished, failed, diverged and are planned; methods with runs first."""
    methods = pd.Index(list(dict.fromkeys((*everything["method"], *planned))), name="method")
    counts = pd.crosstab(everything["method"], everything["status"])
    counts = counts.reindex(index=methods, columns=["finished", "failed", "diverged"], fill_value=0)
    seeds = everything.groupby("method")["seed"].agg(set).to_dict()
    counts["planned"] = [len(seeds.get(method, set()) | set(planned.get(method, ()))) for method in methods]
    return counts


def _run_ids(everything: pd.DataFrame) -> pd.Series[str]:
    """Return the ids of each method's runs in the order of their seeds, as SEED:ID."""
    ordered = everything.sort_values("seed", kind="stable")
    seed_ids = ordered["seed"].astype(str) + ":" + ordered["run_id"]
    return seed_ids.groupby(ordered["method"]).agg(" ".join)


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


def _task_mean(values: pd.DataFrame, main: dict[str, str]) -> pd.Series[float]:
    """Average the main metrics of each run [runs] over tasks; tasks that no run has labels of don't count."""
    return values[list(main.items())].dropna(axis=1, how="all").mean(axis=1, skipna=False)


def _method_rows(table: Table, everything: pd.DataFrame, counts: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return one row per method, in order of first appearance."""
    runs, methods = table.runs, counts.index
    grouped = runs.groupby("method", sort=False)
    measured = grouped[[*SCORES, *metrics]]
    mean = measured.mean()
    width = pd.DataFrame(
        statistics.half_width(measured.std(), measured.count()), index=mean.index, columns=mean.columns
    ).add_suffix("_ci")
    interleaved = [name for score in mean.columns for name in (score, f"{score}_ci")]
    measures = pd.concat([mean, width], axis=1)[interleaved].reindex(methods)

    main = [table.main_column(task) for task in table.tasks]
    higher = [table.higher_is_better[metric] for metric in table.main_metrics.values()]
    ranks = statistics.mean_ranks(measures[main], higher) if main else pd.Series(np.nan, index=methods)

    times = ["seconds", "phase_seconds", "total_seconds"]
    costs = grouped[[*times, "samples_per_second", "peak_memory_mb", "parameters", "shared_parameters"]].mean()
    costs.insert(2, "phases_shared", grouped["phases_shared"].any().astype(float))
    step = grouped["step_seconds"].median()
    costs.insert(5, "step_ratio", step / step[table.reference] if table.reference else np.nan)
    counters = [column for column in everything.columns if column.startswith("counter.")]
    events = everything.groupby("method")[counters].sum().reindex(methods)

    return pd.concat(
        [
            measures[interleaved[: 2 * len(SCORES)]],
            ranks.rename("mean_rank"),
            counts,
            _tests(table).reindex(methods),
            costs.reindex(methods),
            events,
            measures[interleaved[2 * len(SCORES) :]],
        ],
        axis=1,
    )


def _tests(table: Table) -> pd.DataFrame:
    """Test the column that rows are sorted by against the reference; empty columns without anything to compare."""
    if table.reference is None or table.order == "mean_rank":
        columns = ["pairs", "difference", "p_t", "p_wilcoxon", "p_holm", "p_wilcoxon_holm"]
        return pd.DataFrame(np.nan, index=pd.Index([], name="method"), columns=columns).assign(verdict="")
    order = table.order
    return statistics.paired_tests(
        table.by_seed(table.runs[order]),
        table.reference,
        table.higher(order),
        table.untested,
        tested=table.by_seed(table.tested(order)),
        items=table.item_sides(order, table.reference),
    )
