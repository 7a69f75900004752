"""The merge of several experiments into one leaderboard: runs that compare share a table, others stay apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import UserError, nearest
from mtlscale.records import Epoch, RunRecord
from mtlscale.report.cells.number_format import listed
from mtlscale.report.stats.curves import EpochReader, no_epochs
from mtlscale.report.stats.frames import by_dataset, latest, method_of
from mtlscale.report.tables.protocols import Protocol, differing_settings, identity, selection, splits_by_seed

if TYPE_CHECKING:
    from mtlscale.report.leaderboard import Leaderboard, Planned
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


@dataclass(frozen=True, kw_only=True)
class MergedRecords:
    """Records under the labels of their tables and rows, with the notes of each table."""

    sources: tuple[ExperimentRecords, ...]
    records: tuple[RunRecord, ...]
    baselines: dict[str, str]
    references: dict[str, str]
    delta: dict[str, tuple[str, ...]]
    notes: dict[str, tuple[str, ...]]
    planned: dict[str, dict[str, frozenset[int]]]  # table -> row -> seeds
    rows: frozenset[str] | None = None  # labels of the rows to show, None for all
    split_datasets: tuple[str, ...] = ()  # data sets with several tables

    def leaderboard(self, *, with_compared: bool = False) -> Leaderboard:
        """Return the tables with the rows that are asked for; `with_compared` adds those that they are compared with.

        Ranks and corrections of tests are over all rows: asking for fewer makes nothing more certain.
        """
        from mtlscale.report.leaderboard import Leaderboard
        from mtlscale.report.tables.published import Published

        tables = [table for source in self.sources if source.published for table in source.published.tables]
        unique = [table for index, table in enumerate(tables) if table not in tables[:index]]

        board = Leaderboard.from_records(
            self.records,
            self.baselines,
            self.references,
            Published(tables=tuple(unique)) if unique else None,
            self.delta,
            self.notes,
            self.planned,
            frozenset().union(*(source.plugins for source in self.sources)),
        )

        if self.rows is None:
            return board
        return board.only(self.rows | (self._compared if with_compared else frozenset()))

    def epochs(self, run_id: str) -> list[Epoch]:
        """Return the epochs of a run from the first source that has them."""
        return next(filter(None, (source.epochs(run_id) for source in self.sources)), [])

    @property
    def _compared(self) -> frozenset[str]:
        return frozenset((*self.baselines.values(), *self.references.values()))

    def records_shown(self, *, with_compared: bool = False) -> list[RunRecord]:
        """Return the records of these rows; `with_compared` adds those that they are compared with."""
        rows = None if self.rows is None else self.rows | (self._compared if with_compared else frozenset())
        return [record for record in self.records if rows is None or record.method in rows]


@dataclass
class _TableRuns:
    """The runs of one table, by the number of the source they come from."""

    protocol: Protocol
    runs: dict[int, list[RunRecord]] = field(default_factory=dict)
    older: int = 0  # number of runs with earlier settings, which are left out


def gather(sources: Sequence[ExperimentRecords], selection: RunSelection | None = None) -> MergedRecords:
    """Merge the experiments into tables.

    Raises:
        UserError: If something is asked for that no experiment has.
    """
    return _RecordMerger(sources, selection or RunSelection()).merged()


class _RecordMerger:
    def __init__(self, sources: Sequence[ExperimentRecords], selection: RunSelection) -> None:
        self.sources, self.selection = sources, selection
        self.names = distinct(sources)
        self.titles: set[str] = set()  # titles of tables
        self.rows: dict[str, str] = {}  # label of a row -> its label in the experiment
        self.compared: set[str] = set()  # labels of finished runs
        self.metrics: dict[str, None] = {}  # names of measured metrics

    def merged(self) -> MergedRecords:
        request, all_records = self.selection, [record for source in self.sources for record in source.records]
        _check_names("--seed", map(str, request.seeds), map(str, sorted({record.seed for record in all_records})))

        groups = self._groups()
        titles = {dataset: self._titles(dataset, tables) for dataset, tables in groups.items()}
        every_title = [title for dataset_titles in titles.values() for title in dataset_titles]
        _check_names("--dataset", request.datasets, [*groups, *every_title])

        result = MergedRecords(
            sources=tuple(self.sources), records=(), baselines={}, references={}, delta={}, notes={}, planned={}
        )
        records: list[RunRecord] = []
        for dataset, tables in groups.items():
            for table, title in zip(tables, titles[dataset], strict=True):
                if _is_selected(request.datasets, dataset, title):
                    notes = [*_kept_apart(table, tables, titles[dataset]), *self._joined(dataset, table)]
                    records += self._table(dataset, title, table, notes, result)
                    result.notes[title] = tuple(notes)

        originals = [*self.rows.values(), *self.rows]
        _check_names("--method", request.methods, originals)
        for option, name in (("--baseline", request.baseline), ("--reference", request.reference)):
            _check_names(option, [] if name is None else [name], sorted(self.compared), "no finished run of it")
        _check_names("--metric", request.metrics, list(self.metrics), "no task reports it")

        shown = frozenset(label for label, name in self.rows.items() if _is_selected(request.methods, label, name))
        return replace(
            result,
            records=tuple(records),
            rows=shown if request.methods else None,
            split_datasets=tuple(dataset for dataset, tables in groups.items() if len(tables) > 1),
        )

    def _groups(self) -> dict[str, list[_TableRuns]]:
        """Group the runs of each data set, with one group per table."""
        groups: dict[str, list[_TableRuns]] = {}
        for number, source in enumerate(self.sources):
            for dataset, records in by_dataset(source.records).items():
                current = latest(records) if source.chosen_by_file else _current(records)
                left_out = {record.run_id for record in records} - {record.run_id for record in current}
                older = 0 if source.chosen_by_file else len(left_out)

                source_groups: list[_TableRuns] = []
                by_seed, how = splits_by_seed(current), selection(current)
                for record in current:
                    if not self.selection.seeds or record.seed in self.selection.seeds:
                        _join(source_groups, _TableRuns(Protocol.of(record, by_seed, how), {number: [record]}))
                if source_groups:
                    source_groups[0].older = older

                for group in source_groups:
                    _join(groups.setdefault(dataset, []), group)

        return groups

    def _titles(self, dataset: str, tables: Sequence[_TableRuns]) -> list[str]:
        titles = []
        for table in tables:
            title = dataset
            if len(tables) > 1:
                title = f"{dataset} ({', '.join(self.names[number] for number in table.runs)})"
            if title in self.titles:
                title = f"{title}, data {next(iter(table.protocol.fingerprints.values()))[:8]}"

            number, full_title = 1, title
            while title in self.titles:
                title = f"{full_title}, {(number := number + 1)}"
            self.titles.add(title)
            titles.append(title)
        return titles

    def _joined(self, dataset: str, table: _TableRuns) -> Iterator[str]:
        if len(table.runs) > 1:
            yield f"runs of {listed([self.names[number] for number in table.runs])}"
        if table.older:
            yield f"{table.older} older run{'s' if table.older > 1 else ''} with other settings left out"
        for number in table.runs:
            yield from self.sources[number].notes.get(dataset, ())

    def _table(
        self, dataset: str, title: str, table: _TableRuns, notes: list[str], group: MergedRecords
    ) -> list[RunRecord]:
        """Return the records of a table under the labels of its rows; add to `group` how it is read."""
        labelled = self._labelled(table, notes)
        rows = {label: original for label, original, _ in labelled}
        planned = self._planned(dataset, table, labelled)
        rows |= {label: label for label in planned if label not in rows}
        self.rows |= rows

        finished_rows = [(label, name, record) for label, name, record in labelled if record.status == "finished"]
        finished = {label: (name, method_of(record)) for label, name, record in finished_rows}
        self.compared |= {*finished, *(name for named in finished.values() for name in named)}
        self.metrics |= dict.fromkeys(name for _, _, record in labelled for name in _metrics(record))

        if not any(_is_selected(self.selection.methods, label, name) for label, name in rows.items()):
            return []

        table_sources = [self.sources[number] for number in table.runs]
        base = _compared("baseline", self.selection.baseline, table_sources, finished, notes)
        ref = _compared("reference", self.selection.reference, table_sources, finished, notes)
        group.baselines[title], group.references[title] = base, ref

        group.planned[title] = planned
        if (delta := self._delta(dataset, table, [record for _, _, record in labelled], notes)) is not None:
            group.delta[title] = delta

        return [record.model_copy(update={"dataset": title, "method": label}) for label, _, record in labelled]

    def _planned(
        self, dataset: str, table: _TableRuns, labelled: Sequence[tuple[str, str, RunRecord]]
    ) -> dict[str, frozenset[int]]:
        """Return row -> the seeds planned for it; a row with a label of its own has those of its experiment."""
        labels: dict[str, dict[str, None]] = {}
        for label, original, _ in labelled:
            labels.setdefault(original, {})[label] = None

        seeds_of_row: dict[str, frozenset[int]] = {}
        for number in table.runs:
            for method, seeds in self.sources[number].planned.get(dataset, {}).items():
                selected_seeds = frozenset(
                    seed for seed in seeds if not self.selection.seeds or seed in self.selection.seeds
                )
                for label in labels.get(method, {method: None}):
                    seeds_of_row[label] = seeds_of_row.get(label, frozenset()) | selected_seeds

        return seeds_of_row

    def _labelled(self, table: _TableRuns, notes: list[str]) -> list[tuple[str, str, RunRecord]]:
        """Return (label of the row, label in its experiment, record), each run once."""
        variants: dict[str, dict[str, list[int]]] = {}  # label -> settings -> sources that use it for them
        last_records: dict[tuple[int, str], RunRecord] = {}
        for number, records in table.runs.items():
            last_records |= {(number, record.method): record for record in records}
        for (number, method), record in last_records.items():
            variants.setdefault(method, {}).setdefault(identity(record), []).append(number)

        labels: dict[tuple[int, str], str] = {}
        keys: dict[str, None] = {}
        for method, meanings in variants.items():
            first_record = last_records[next(iter(meanings.values()))[0], method]
            for numbers in meanings.values():
                own_label = f"{method} ({', '.join(self.names[number] for number in numbers)})"
                labels |= {(number, method): method if len(meanings) == 1 else own_label for number in numbers}
                keys |= dict.fromkeys(differing_settings(first_record, last_records[numbers[0], method]))

        ambiguous = [method for method, meanings in variants.items() if len(meanings) > 1]
        if ambiguous:
            difference = f"{listed(ambiguous)} differ{'s' if len(ambiguous) == 1 else ''} in {listed(list(keys))}"
            notes.append(f"one label with several settings has a row for each: {difference}")

        runs: dict[tuple[str, int], tuple[str, str, RunRecord]] = {}
        for number, records in table.runs.items():
            for record in records:
                label = labels[number, record.method]
                earlier = runs.get((label, record.seed))
                if earlier is None or _rank(record) > _rank(earlier[2]):
                    runs[label, record.seed] = (label, record.method, record)

        positions = {label: position for position, label in enumerate(dict.fromkeys(label for label, _ in runs))}
        return sorted(runs.values(), key=lambda run: (positions[run[0]], run[2].seed))

    def _delta(
        self, dataset: str, table: _TableRuns, records: Sequence[RunRecord], notes: list[str]
    ) -> tuple[str, ...] | None:
        """Return the metrics in Δ and η, None for those that the pipeline declares."""
        if self.selection.metrics:
            measured = {name for record in records for name in _metrics(record)}
            selected = tuple(name for name in self.selection.metrics if name in measured)
            if not selected:
                notes.append(f"no task here reports {listed(self.selection.metrics)}: Δ as the pipeline says")
            return selected or None

        choice_of_source = {}
        for number in table.runs:
            choices = self.sources[number].delta
            if choices is not None:
                names = choices.get(dataset, choices.get(""))
                choice_of_source[self.names[number]] = None if names is None else tuple(names)

        if len(set(choice_of_source.values())) > 1:
            texts = [
                f"{', '.join(chosen_names or ('what the pipeline says',))} ({name})"
                for name, chosen_names in choice_of_source.items()
            ]
            notes.append(f"experiments disagree on what enters Δ: {'; '.join(texts)}; the first counts")

        return next(iter(choice_of_source.values()), None)


def distinct(sources: Sequence[ExperimentRecords]) -> list[str]:
    """Return names that tell the sources apart.

    It is the name of the experiment, with its place where several have that name.
    """

    def told(source: ExperimentRecords) -> str:
        if "://" in source.location:
            return f"{source.location}#{source.name}"
        return f"{source.location if len(set(folders)) < len(folders) else Path(source.location).name}:{source.name}"

    names = []
    for source in sources:
        namesakes = [namesake for namesake in sources if namesake.name == source.name]
        folders = [Path(namesake.location).name for namesake in namesakes]
        names.append(source.name if len(namesakes) == 1 else told(source))
    return names


def _join(groups: list[_TableRuns], one: _TableRuns) -> None:
    """Add the group to the one that it compares with, or as a new one."""
    group = next((group for group in groups if not one.protocol.differences(group.protocol)), None)
    if group is None:
        groups.append(one)
        return
    group.protocol = group.protocol.joined(one.protocol)
    group.older += one.older
    for number, records in one.runs.items():
        group.runs.setdefault(number, []).extend(records)


def _current(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Keep, per method and seed, the newest record whose settings match the label's current ones."""
    current = latest(records)
    identities = list(map(identity, current))
    meanings: dict[str, tuple[str, str]] = {}  # method -> when its newest run ended, and its settings
    for record, own in zip(current, identities, strict=True):
        if record.method not in meanings or record.finished >= meanings[record.method][0]:
            meanings[record.method] = (record.finished, own)
    pairs = zip(current, identities, strict=True)
    return [record for record, own in pairs if own == meanings[record.method][1]]


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
    folded_name = name.casefold()
    aliases_of_rows = ([label, *named] for label, named in finished.items())
    ranked = [
        (rank, aliases[0])
        for aliases in aliases_of_rows
        for rank, alias in enumerate(aliases)
        if alias.casefold() == folded_name
    ]
    return min(ranked, key=lambda one: one[0])[1] if ranked else None


def _kept_apart(table: _TableRuns, tables: Sequence[_TableRuns], titles: Sequence[str]) -> Iterator[str]:
    for other_table, title in zip(tables, titles, strict=True):
        if other_table is not table:
            reasons = "; ".join(table.protocol.differences(other_table.protocol))
            yield f"kept apart from {title}: {reasons or 'its runs do not agree with each other'}"


def _metrics(record: RunRecord) -> Iterator[str]:
    """Yield every name of a metric of the record's tasks: `metric` and `task.metric`."""
    for tasks in record.metrics.values():
        for task, values in tasks.items():
            for metric in values:
                if metric != "loss":
                    yield from (metric, f"{task}.{metric}")
