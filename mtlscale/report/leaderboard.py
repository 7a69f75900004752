"""The leaderboard: one table per data set that says how good each method is, what it costs, and what is real.

Definitions: docs/methods.md#deltas for Δ and η, docs/methods.md#which-differences-are-real for the tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from rich.console import RenderableType

from mtlscale.metrics import FIGURES
from mtlscale.records import RunRecord
from mtlscale.report import layout, statistics
from mtlscale.report import near_zero as zeros
from mtlscale.report.across import ROPE
from mtlscale.report.beside import Comparison, compare
from mtlscale.report.frames import (
    by_dataset,
    figure_frame,
    method_of,
    metric_columns,
    newest,
    run_frame,
    value_frame,
)
from mtlscale.report.gains import deltas, of_same_seed
from mtlscale.report.items import intervals
from mtlscale.report.notes import departures, idle, resolution
from mtlscale.report.overall import Overall, overall
from mtlscale.report.published import Published, PublishedTable
from mtlscale.report.table import IDLE, Table
from mtlscale.spec import UserError, check_delta, entering, suite_delta

# Of one run; mean ± interval of a row.
SCORES = ("average", "last", "delta_i", "delta_flat", "delta_main", "safeness", "relative_error", "total_error", "part")


Planned = Mapping[str, Mapping[str, Collection[int]]]  # data set -> method -> seeds


@dataclass(frozen=True)
class Leaderboard:
    """The tables of an experiment, by data set label."""

    tables: dict[str, Table]
    comparisons: dict[str, tuple[Comparison, ...]] = field(default_factory=dict)  # with published tables, if any
    known: dict[str, tuple[PublishedTable, ...]] = field(default_factory=dict)  # what is published on each data set

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
        """Of the newest record of every data set, method and seed. `baseline`: label of the method Δ is taken to;
        `reference`: label of the method the paired tests and step times compare with, either of all tables or by data
        set; `delta`: data set (or "", for the others) -> the metrics that enter Δ and η, default what its pipeline
        says; `notes`: data set -> what else its table says; `planned`: data set -> method -> seeds of
        the experiment, whose rows are there without runs, too. `UserError` for a metric that is not measured."""
        groups = by_dataset(records)
        if not groups:
            raise UserError("there are no runs to report yet; start some with `mtlscale run`")
        delta = delta or {}
        check_delta(delta, {name: found for name, runs in groups.items() if (found := _measured(runs))})
        tables = {}
        for dataset, runs in groups.items():
            base, ref = (one if isinstance(one, str) else one[dataset] for one in (baseline, reference))
            rows = (planned or {}).get(dataset, {})
            table = _table(dataset, runs, base, ref, delta.get(dataset, delta.get("", ())), rows)
            tables[dataset] = replace(table, notes=(*(notes or {}).get(dataset, ()), *table.notes))
        comparisons, known = {}, {}
        for dataset, runs in groups.items():
            pipeline = runs[0].spec.get("dataset", {}).get("name", "")
            known[dataset] = () if published is None else published.of(pipeline, dataset)
            beside = [compare(tables[dataset], one) for one in known[dataset]]
            if any(beside):
                comparisons[dataset] = tuple(comparison for comparison in beside if comparison is not None)
        return cls(tables, comparisons, known)

    def only(self, rows: Collection[str]) -> Leaderboard:
        """The tables with these rows alone; what they are compared with stays what it was."""
        found = {dataset: table.only(rows) for dataset, table in self.tables.items()}
        return replace(self, tables={dataset: table for dataset, table in found.items() if len(table.rows)})

    def overall(self, rope: float = ROPE) -> Overall | None:
        """What the data sets say together; None below two. `rope`: the points that make no difference in practice."""
        return overall(self.tables, rope)

    def _repr_html_(self) -> str:
        """How notebooks show it."""
        from mtlscale.report.notebook import in_a_notebook

        return in_a_notebook(self.tables.values())

    def to_pandas(self) -> pd.DataFrame:
        """All tables below each other, one row per data set and method, best first."""
        frames = []
        for table in self.tables.values():
            frame = table.rows.reset_index()
            frame.insert(0, "dataset", table.dataset)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_csv(self) -> str:
        return self.to_pandas().to_csv(index=False)

    def to_markdown(self) -> str:
        parts = []
        for dataset, table in self.tables.items():
            parts.append(layout.markdown(table))
            parts += [comparison.to_markdown() for comparison in self.comparisons.get(dataset, ())]
        return "\n".join(parts)

    def to_rich(self, *, wide: bool = False) -> RenderableType:
        """Tables that fit the console that prints them; `wide`: details, too, which a narrow one leaves out."""
        from rich.console import Group

        from mtlscale.report.terminal import Printed

        parts: list[RenderableType] = []
        for dataset, table in self.tables.items():
            parts.append(Printed(table, wide))
            parts += [comparison.to_rich() for comparison in self.comparisons.get(dataset, ())]
        return Group(*parts)


def _finished(records: Iterable[RunRecord]) -> tuple[list[RunRecord], str]:
    """The finished runs, and the split they are judged by."""
    done = [record for record in records if record.status == "finished"]
    return done, "test" if any(record.metrics.get("test") for record in done) else "val"


def _measured(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    return metric_columns(*_finished(newest(records)))


def _entering(
    columns: Sequence[tuple[str, str]], names: Sequence[str], record: RunRecord, main: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Of the (task, metric) that are measured, those in Δ and η: what the experiment says, else the pipeline, else all.
    A task that the pipeline says nothing of is there with its main metric."""
    if names:
        return entering(names, columns)
    declared = suite_delta(str(record.spec.get("dataset", {}).get("name", "")))
    if not declared:
        return list(columns)
    found = entering(declared, columns)
    named = {task for task, _ in found}
    return [
        (task, metric)
        for task, metric in columns
        if (task, metric) in found or (task not in named and main.get(task) == metric)
    ]


def _table(
    dataset: str,
    all_records: Sequence[RunRecord],
    baseline: str,
    reference: str,
    names: Sequence[str],
    planned: Mapping[str, Collection[int]],
) -> Table:
    records = newest(all_records)
    done, split = _finished(records)
    everything = run_frame(records)
    finished = everything["status"] == "finished"
    base, ref = (_label(name, done) for name in (baseline, reference))

    # Records of failed runs may know neither metrics nor directions.
    directions = {metric: higher for record in reversed(records) for metric, higher in record.higher_is_better.items()}
    declared = next((record.main_metrics for record in (*done, *records) if record.main_metrics), {})
    columns = metric_columns(done, split)
    values = value_frame([record.metrics.get(split, {}) for record in done], columns)
    last = value_frame([record.last.get(split, {}) for record in done], columns)
    main = {task: metric for task, metric in declared.items() if (task, metric) in columns}
    entered = _entering(columns, names, records[0], main)

    runs, part = everything[finished].reset_index(drop=True), ""
    scores = pd.DataFrame(np.nan, index=runs.index, columns=list(SCORES))
    if len(set(main.values())) == 1:
        scores["average"], scores["last"] = (_task_mean(frame, main) for frame in (values, last))
        part = next((name for record in done for name in sorted(record.metrics) if name.startswith("test_")), "")
        scores["part"] = _task_mean(value_frame([record.metrics.get(part, {}) for record in done], columns), main)
    if set(main.values()) == {"error"}:
        scores["total_error"] = scores["average"] * len(main)
    notes: list[str] = []
    near: tuple[tuple[str, str], ...] = ()
    means, constant = values.groupby(runs["method"], sort=False).mean(), _label("constant", done)
    if older := len({record.run_id for record in all_records}) - len({record.run_id for record in records}):
        notes.append(f"{older} older run{'s' if older > 1 else ''} with other settings left out")
    if base is None:
        notes.append(f"no Δ and η: no finished run of {baseline}")
    else:
        references = of_same_seed(values, runs["seed"], runs["method"] == base)
        zero = (references[entered] == 0).any().to_numpy()
        notes += [f"no Δ: {entered[i][1]} of {entered[i][0]} is 0 for {base}" for i in np.flatnonzero(zero)]
        scores.update(deltas(values, references, directions, main, entered))
        if set(main.values()) == {"accuracy"}:
            ours, theirs = (100.0 - _task_mean(frame, main) for frame in (values, references))
            scores["relative_error"] = ours / theirs.where(theirs > 0)
        near = zeros.near_zero(means, base, constant, entered, directions)
    values.columns = measured = pd.Index([f"{task}.{metric}" for task, metric in columns])
    figures = figure_frame(done, split)
    directions |= {name: FIGURES[name].higher_is_better for name in map(str, figures)}
    runs = pd.concat([runs, scores, values, figures], axis=1)

    order = zeros.order_without(near, main, scores)
    if base is not None:
        notes += zeros.notes(near, means, base, constant, order)
    table = Table(
        dataset=dataset,
        split=split,
        part=part,
        main_metrics=main,
        delta=tuple(entered),
        near_zero=near,
        higher_is_better=directions,
        baseline=base,
        reference=ref,
        order=order,
        rows=pd.DataFrame(),
        runs=runs,
        failures=everything.loc[~finished, ["method", "seed", "status", "error", "run_id"]].reset_index(drop=True),
        notes=(),
        domains=next((tuple(record.domains) for record in done if record.domains), ()),
    )
    counts = _counts(everything, planned)
    table = replace(table, untested=_untested(table, counts))
    rows = _rows(table, everything, counts, [*measured, *figures])
    rows["run_ids"] = _run_ids(everything).reindex(rows.index)
    rows = rows.join(intervals(done, runs, rows.index, ref))
    rows["departure"] = rows.index.map(departures(done)).astype(float)
    rows = rows.sort_values(order, ascending=table.ascending, na_position="last", kind="stable")
    said = idle(done)
    notes += [*resolution(table), *(f"{IDLE} {said[method]}" for method in rows.index if method in said)]
    return replace(table, rows=rows, idle=tuple(said), notes=tuple(notes))


def _label(name: str, done: Sequence[RunRecord]) -> str | None:
    """Return the label of finished runs that says this name, in whatever case, else that of the method so called."""
    labels = {record.method: method_of(record) for record in done}
    said = (label for label in labels if label.lower() == name.lower())
    return next(said, next((label for label, method in labels.items() if method.lower() == name.lower()), None))


def _counts(everything: pd.DataFrame, planned: Mapping[str, Collection[int]]) -> pd.DataFrame:
    """Return how many runs of each method finished, failed, diverged, and are planned; those that ended first."""
    methods = pd.Index(list(dict.fromkeys((*everything["method"], *planned))), name="method")
    counts = pd.crosstab(everything["method"], everything["status"])
    counts = counts.reindex(index=methods, columns=["finished", "failed", "diverged"], fill_value=0)
    seeds = everything.groupby("method")["seed"].agg(set).to_dict()
    counts["planned"] = [len(seeds.get(method, set()) | set(planned.get(method, ()))) for method in methods]
    return counts


def _run_ids(everything: pd.DataFrame) -> pd.Series[str]:
    """Return the ids of each method's runs in the order of their seeds, as SEED:ID."""
    ordered = everything.sort_values("seed", kind="stable")
    told = ordered["seed"].astype(str) + ":" + ordered["run_id"]
    return told.groupby(ordered["method"]).agg(" ".join)


def _untested(table: Table, counts: pd.DataFrame) -> int:
    """Return how many rows have too few of their planned runs for a test that all of them would make."""
    if table.reference is None:
        return 0
    seeds = table.runs.groupby("method")["seed"].agg(set)
    theirs = seeds[table.reference]
    shared = {method: len(seeds.get(method, set()) & theirs) for method in counts.index.drop(table.reference)}
    few = counts.loc[[method for method, pairs in shared.items() if pairs < statistics.FEWEST_SEEDS]]
    waiting = (few["planned"] >= statistics.FEWEST_SEEDS) & (few["planned"] > few["finished"])
    return int(waiting.sum())


def _task_mean(values: pd.DataFrame, main: dict[str, str]) -> pd.Series[float]:
    """Mean over tasks of the main metric of each run [runs]; tasks that no run has labels of don't count."""
    return values[list(main.items())].dropna(axis=1, how="all").mean(axis=1, skipna=False)


def _rows(table: Table, everything: pd.DataFrame, counts: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """One row per method, in order of first appearance."""
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
    """Paired tests of the column that rows are sorted by, seed by seed; empty columns without something to compare."""
    if table.reference is None or table.order == "mean_rank":
        columns = ["pairs", "difference", "p_t", "p_wilcoxon", "p_holm", "p_wilcoxon_holm"]
        return pd.DataFrame(np.nan, index=pd.Index([], name="method"), columns=columns).assign(verdict="")
    scores = table.runs.pivot(index="seed", columns="method", values=table.order)
    return statistics.paired_tests(scores, table.reference, not table.ascending, table.untested)
