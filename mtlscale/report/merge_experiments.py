"""The merge of several experiments into one leaderboard: runs that compare share a table, others stay apart."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.config import UserError, nearest
from mtlscale.records import Epoch, RunRecord
from mtlscale.report.cells.number_format import listed
from mtlscale.report.report_section import CSV, HTML
from mtlscale.report.stats.curves import EpochReader, no_epochs
from mtlscale.report.stats.frames import by_dataset, latest, method_of
from mtlscale.report.tables.protocols import Protocol, differing_settings, identity, selection, splits_by_seed

if TYPE_CHECKING:
    from mtlscale.report.leaderboard import Leaderboard, Planned
    from mtlscale.report.rendered import Report
    from mtlscale.report.tables.published import Published


@dataclass(frozen=True, kw_only=True)
class ExperimentRecords:
    """The records of one experiment, the newest last, and its choices for reading them."""

    name: str  # of the experiment
    location: str  # a home folder, or where MLflow is
    records: tuple[RunRecord, ...]
    chosen_by_file: bool = False  # whether its file chose the records, so that none is of an earlier version
    baseline: str = "stl"
    reference: str = "equal"
    delta: Mapping[str, Sequence[str]] | None = None  # as `Experiment.delta_of`, None if not known
    published: Published | None = None
    description: str = ""  # the sentence above its leaderboard
    planned: Planned = field(default_factory=dict)  # rows that it plans, if known
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # data set -> notes on its runs
    plugins: frozenset[str] = frozenset()  # names of its plugin files
    epochs: EpochReader = no_epochs


@dataclass(frozen=True, kw_only=True)
class RunSelection:
    """Selection of runs, and of what they are compared with.

    Empty fields select everything, and the comparisons that the experiments choose.
    """

    methods: Sequence[str] = ()
    datasets: Sequence[str] = ()
    seeds: Sequence[int] = ()
    baseline: str | None = None
    reference: str | None = None
    metrics: Sequence[str] = ()  # in Δ and η


@dataclass(kw_only=True)
class _Table:
    """Runs that compare: of one data set, under one protocol, which those that come later are held against.

    Protocols agree in pairs alone, where both record a condition, so a run joins the first table that it agrees with;
    all else is the same for every table.
    """

    dataset: str
    protocol: Protocol
    runs: list[tuple[int, RunRecord]]  # with the numbers of the sources they come from
    older: int = 0  # number of runs with earlier settings, which are left out
    title: str = ""
    notes: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)  # label of a row -> its label in the experiment
    records: list[RunRecord] = field(default_factory=list)  # under the labels of the rows, each run once
    planned: dict[str, frozenset[int]] = field(default_factory=dict)  # row -> seeds
    baseline: str = ""
    reference: str = ""
    delta: tuple[str, ...] | None = None  # the metrics in Δ and η, None for those that the pipeline declares

    @property
    def numbers(self) -> list[int]:
        """The numbers of the sources."""
        return list(dict.fromkeys(number for number, _ in self.runs))


@dataclass(frozen=True, kw_only=True)
class MergedRecords:
    """Records under the labels of their tables and rows, with the notes of each table."""

    sources: tuple[ExperimentRecords, ...]
    tables: tuple[_Table, ...]
    rows: frozenset[str] | None = None  # labels of the rows to show, None for all
    split_datasets: tuple[str, ...] = ()  # data sets with several tables

    @property
    def records(self) -> list[RunRecord]:
        """The records of all tables."""
        return [record for table in self.tables for record in table.records]

    def leaderboard(self, *, with_compared: bool = False) -> Leaderboard:
        """Return the tables with the rows that are asked for; `with_compared` adds those that they are compared with.

        Ranks and corrections of tests are over all rows: asking for fewer makes nothing more certain.
        """
        from mtlscale.report.leaderboard import Leaderboard
        from mtlscale.report.tables.published import Published

        published = [table for source in self.sources if source.published for table in source.published.tables]
        unique = [table for index, table in enumerate(published) if table not in published[:index]]
        board = Leaderboard.from_records(
            self.records,
            {table.title: table.baseline for table in self.tables},
            {table.title: table.reference for table in self.tables},
            Published(tables=tuple(unique)) if unique else None,
            {table.title: table.delta for table in self.tables if table.delta is not None},
            {table.title: table.notes for table in self.tables},
            {table.title: table.planned for table in self.tables},
            frozenset().union(*(source.plugins for source in self.sources)),
        )
        rows = self._shown(with_compared=with_compared)
        return board if rows is None else board.only(rows)

    def _shown(self, *, with_compared: bool) -> frozenset[str] | None:
        if self.rows is None or not with_compared:
            return self.rows
        return self.rows | {label for table in self.tables for label in (table.baseline, table.reference)}

    def report(self, form: str, *, overall: bool | None = None, rope: float | None = None, **settings: Any) -> Report:
        """Return the report in a format.

        Args:
            form: The format.
            overall: Whether it has the comparison across data sets; None: where there are two of them, but not in CSV.
            rope: Largest difference in points that has no meaning in practice.
            settings: Other attributes of the report.
        """
        board, across, notes = self.leaderboard(with_compared=form == HTML), None, []
        if form == HTML:  # figures need the rows that others are compared with
            across = board.overall()
        elif overall or (overall is None and form != CSV):
            across = board.overall() if rope is None else board.overall(rope)
            across = None if across is None or len(across.rows) < 2 else across
            if self.split_datasets:
                separate = ", ".join(self.split_datasets)
                notes = [f"tables of {separate} that are kept apart count as data sets of their own"]

        names = dict.fromkeys(source.name for source in self.sources)
        descriptions = dict.fromkeys(source.description for source in self.sources if source.description)
        rows = self._shown(with_compared=True)
        return board.report(
            [record for record in self.records if rows is None or record.method in rows],
            overall=across,
            overall_notes=notes,
            overall_asked=bool(overall),
            title=", ".join(names),
            descriptions=list(descriptions) if len(names) == 1 else (),
            sources=[(source.name, source.location, len(source.records)) for source in self.sources],
            epochs=self.epochs,
            **settings,
        )

    def epochs(self, run_id: str) -> list[Epoch]:
        """Return the epochs of a run from the first source that has them."""
        return next(filter(None, (source.epochs(run_id) for source in self.sources)), [])


def gather(sources: Sequence[ExperimentRecords], selection: RunSelection | None = None) -> MergedRecords:
    """Merge the experiments into tables.

    Raises:
        UserError: If something is asked for that no experiment has.
    """
    asked, names = selection or RunSelection(), distinct(sources)
    seeds = sorted({record.seed for source in sources for record in source.records})
    _check_names("--seed", map(str, asked.seeds), map(str, seeds))

    tables = _tables(sources, asked.seeds)
    _entitle(tables, names)
    datasets = [table.dataset for table in tables]
    _check_names("--dataset", asked.datasets, [*datasets, *(table.title for table in tables)])

    shown = [table for table in tables if _is_selected(asked.datasets, table.dataset, table.title)]
    rows: dict[str, str] = {}
    compared: set[str] = set()  # labels of finished runs
    metrics: dict[str, None] = {}  # names of measured metrics
    for table in shown:
        table.notes += _kept_apart(table, [other for other in tables if other.dataset == table.dataset])
        table.notes += _joined(table, sources, names)
        _label_rows(table, names)
        _plan(table, sources, asked.seeds)

        finished = {
            record.method: (table.rows[record.method], method_of(record))
            for record in table.records
            if record.status == "finished"
        }
        rows |= table.rows
        compared |= {*finished, *(name for named in finished.values() for name in named)}
        measured = dict.fromkeys(name for record in table.records for name in _metrics(record))
        metrics |= measured

        if any(_is_selected(asked.methods, *labels) for labels in table.rows.items()):
            of_table = [sources[number] for number in table.numbers]
            table.baseline = _compared("baseline", asked.baseline, of_table, finished, table.notes)
            table.reference = _compared("reference", asked.reference, of_table, finished, table.notes)
            table.delta = _delta(table, {names[number]: sources[number] for number in table.numbers}, asked, measured)
        else:
            table.records = []

    _check_names("--method", asked.methods, [*rows.values(), *rows])
    for option, name in (("--baseline", asked.baseline), ("--reference", asked.reference)):
        _check_names(option, [] if name is None else [name], sorted(compared), "no finished run of it")
    _check_names("--metric", asked.metrics, list(metrics), "no task reports it")

    return MergedRecords(
        sources=tuple(sources),
        tables=tuple(table for table in shown if table.records),
        rows=frozenset(row for row, name in rows.items() if _is_selected(asked.methods, row, name))
        if asked.methods
        else None,
        split_datasets=tuple(dict.fromkeys(dataset for dataset in datasets if datasets.count(dataset) > 1)),
    )


def _tables(sources: Sequence[ExperimentRecords], seeds: Sequence[int]) -> list[_Table]:
    """Group the runs into tables, those of a data set after each other."""
    tables: list[_Table] = []
    for number, source in enumerate(sources):
        for dataset, records in by_dataset(source.records).items():
            current = latest(records) if source.chosen_by_file else _current(records)
            by_seed, how = splits_by_seed(current), selection(current)

            of_source: list[_Table] = []
            for record in current:
                if not seeds or record.seed in seeds:
                    protocol = Protocol.of(record, by_seed, how)
                    _join(of_source, _Table(dataset=dataset, protocol=protocol, runs=[(number, record)]))
            if of_source and not source.chosen_by_file:
                left_out = {record.run_id for record in records} - {record.run_id for record in current}
                of_source[0].older = len(left_out)
            for table in of_source:
                _join(tables, table)

    datasets = list(dict.fromkeys(table.dataset for table in tables))
    return sorted(tables, key=lambda table: datasets.index(table.dataset))


def _join(tables: list[_Table], one: _Table) -> None:
    """Add the runs to the first table that they compare with, or as a new one."""
    for table in tables:
        if table.dataset == one.dataset and not one.protocol.differences(table.protocol):
            table.protocol = table.protocol.joined(one.protocol)
            table.older += one.older
            table.runs += one.runs
            return
    tables.append(one)


def _entitle(tables: Sequence[_Table], names: Sequence[str]) -> None:
    """Give each table a title of its own."""
    titles: set[str] = set()
    datasets = Counter(table.dataset for table in tables)
    for table in tables:
        title = table.dataset
        if datasets[title] > 1:
            title = f"{title} ({', '.join(names[number] for number in table.numbers)})"
        if title in titles:
            title = f"{title}, data {next(iter(table.protocol.fingerprints.values()))[:8]}"
        numbered = (f"{title}, {number}" for number in itertools.count(2))
        table.title = next(name for name in itertools.chain([title], numbered) if name not in titles)
        titles.add(table.title)


def _kept_apart(table: _Table, of_dataset: Sequence[_Table]) -> Iterator[str]:
    for other in of_dataset:
        if other is not table:
            reasons = "; ".join(table.protocol.differences(other.protocol))
            yield f"kept apart from {other.title}: {reasons or 'its runs do not agree with each other'}"


def _joined(table: _Table, sources: Sequence[ExperimentRecords], names: Sequence[str]) -> Iterator[str]:
    if len(table.numbers) > 1:
        yield f"runs of {listed([names[number] for number in table.numbers])}"
    if table.older:
        yield f"{table.older} older run{'s' if table.older > 1 else ''} with other settings left out"
    for number in table.numbers:
        yield from sources[number].notes.get(table.dataset, ())


def _label_rows(table: _Table, names: Sequence[str]) -> None:
    """Give each run the label of its row, and keep each run once: the newest one that finished."""
    last_records = {(number, record.method): record for number, record in table.runs}
    variants: dict[str, dict[str, list[int]]] = {}  # label -> settings -> sources that use it for them
    for (number, method), record in last_records.items():
        variants.setdefault(method, {}).setdefault(identity(record), []).append(number)

    labels: dict[tuple[int, str], str] = {}
    keys: dict[str, None] = {}
    for method, meanings in variants.items():
        first, *others = (last_records[numbers[0], method] for numbers in meanings.values())
        keys |= dict.fromkeys(key for other in others for key in differing_settings(first, other))
        for numbers in meanings.values():
            own_label = f"{method} ({', '.join(names[number] for number in numbers)})"
            labels |= {(number, method): own_label if others else method for number in numbers}

    if ambiguous := [method for method, meanings in variants.items() if len(meanings) > 1]:
        difference = f"{listed(ambiguous)} differ{'s' if len(ambiguous) == 1 else ''} in {listed(list(keys))}"
        table.notes.append(f"one label with several settings has a row for each: {difference}")

    table.rows = {labels[number, record.method]: record.method for number, record in table.runs}
    best: dict[tuple[str, int], RunRecord] = {}
    for number, record in table.runs:
        key = labels[number, record.method], record.seed
        if key not in best or _rank(record) > _rank(best[key]):
            best[key] = record
    positions = {label: position for position, label in enumerate(table.rows)}
    table.records = [
        best[label, seed].model_copy(update={"dataset": table.title, "method": label})
        for label, seed in sorted(best, key=lambda key: (positions[key[0]], key[1]))
    ]


def _plan(table: _Table, sources: Sequence[ExperimentRecords], seeds: Sequence[int]) -> None:
    """Add the seeds that are planned for each row; a row with a label of its own has those of its experiment."""
    labels: dict[str, list[str]] = {}
    for label, original in table.rows.items():
        labels.setdefault(original, []).append(label)
    for number in table.numbers:
        for method, planned in sources[number].planned.get(table.dataset, {}).items():
            for label in labels.get(method, [method]):
                wanted = frozenset(seed for seed in planned if not seeds or seed in seeds)
                table.planned[label] = table.planned.get(label, frozenset()) | wanted
    table.rows |= {label: label for label in table.planned if label not in table.rows}


def _delta(
    table: _Table, sources: Mapping[str, ExperimentRecords], asked: RunSelection, measured: Mapping[str, None]
) -> tuple[str, ...] | None:
    """Return the metrics in Δ and η, None for those that the pipeline declares."""
    if asked.metrics:
        selected = tuple(name for name in asked.metrics if name in measured)
        if not selected:
            table.notes.append(f"no task here reports {listed(asked.metrics)}: Δ as the pipeline says")
        return selected or None

    choices: dict[str, tuple[str, ...] | None] = {}
    for name, source in sources.items():
        if source.delta is not None:
            metrics = source.delta.get(table.dataset, source.delta.get(""))
            choices[name] = None if metrics is None else tuple(metrics)
    if len(set(choices.values())) > 1:
        texts = [f"{', '.join(chosen or ('what the pipeline says',))} ({name})" for name, chosen in choices.items()]
        table.notes.append(f"experiments disagree on what enters Δ: {'; '.join(texts)}; the first counts")
    return next(iter(choices.values()), None)


def distinct(sources: Sequence[ExperimentRecords]) -> list[str]:
    """Return names that tell the sources apart: their experiments', with their places where several have that name."""
    names = []
    for source in sources:
        folders = [Path(namesake.location).name for namesake in sources if namesake.name == source.name]
        place = source.location if len(set(folders)) < len(folders) else Path(source.location).name
        full_name = f"{source.location}#{source.name}" if "://" in source.location else f"{place}:{source.name}"
        names.append(source.name if len(folders) == 1 else full_name)
    return names


def _current(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Keep, per method and seed, the newest record whose settings match the label's current ones."""
    pairs = [(record, identity(record)) for record in latest(records)]
    meanings = {record.method: own for record, own in sorted(pairs, key=lambda pair: pair[0].finished)}
    return [record for record, own in pairs if own == meanings[record.method]]


def _rank(record: RunRecord) -> tuple[bool, str]:
    """Return the key by which the larger of two records of the same run counts."""
    return record.status == "finished", record.finished


def _is_selected(filters: Sequence[str], *labels: str) -> bool:
    """Return whether a filter names one of the labels; without filters everything is asked for."""
    names = {name.casefold() for name in filters}
    return not names or any(label.casefold() in names for label in labels)


def _check_names(option: str, asked: Iterable[str], known_names: Iterable[str], why: str = "no run has it") -> None:
    """Raise `UserError` for the first name that is not known, with the nearest names."""
    names = list(dict.fromkeys(known_names))
    for name in asked:
        if not _is_selected([name], *names):
            raise UserError(f"{option} {name}: {why}: {nearest(name, names) if names else 'there are none'}")


def _compared(
    kind: str,
    requested: str | None,
    sources: Sequence[ExperimentRecords],
    finished: Mapping[str, tuple[str, str]],
    notes: list[str],
) -> str:
    """Return the label of the row that a table is compared with: the one asked for, or the first experiment's."""
    choices = list(dict.fromkeys(getattr(source, kind) for source in sources))
    row_labels = [_row(name, finished) for name in ([requested] if requested is not None else choices)]
    label = next((label for label in row_labels if label is not None), None)

    if requested is None and len(choices) > 1:
        notes.append(f"experiments disagree on the {kind}: {listed(choices)}; {label or choices[0]} counts")
    if label is None and kind == "reference" and requested is not None:
        notes.append(f"no tests: no finished run of {requested}")

    return label or requested or str(choices[0])


def _row(name: str, finished: Mapping[str, tuple[str, str]]) -> str | None:
    """Return the row of that label, else the first whose experiment, then whose method has that name."""
    aliases = [(label, *named) for label, named in finished.items()]
    ranked = (labels[0] for rank in range(3) for labels in aliases if labels[rank].casefold() == name.casefold())
    return next(ranked, None)


def _metrics(record: RunRecord) -> Iterator[str]:
    """Yield every name of a metric of the record's tasks: `metric` and `task.metric`."""
    for tasks in record.metrics.values():
        for task, values in tasks.items():
            for metric in values:
                if metric != "loss":
                    yield from (metric, f"{task}.{metric}")
