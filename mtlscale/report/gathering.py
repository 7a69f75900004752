"""The runs of several experiments in one leaderboard: what compares stands in one table, what does not stays apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.records import RunRecord
from mtlscale.report.frames import by_dataset, method_of, newest
from mtlscale.report.protocols import Protocol, apart, identity, selection, splits_by_seed
from mtlscale.spec import UserError, nearest

if TYPE_CHECKING:
    from mtlscale.report.leaderboard import Leaderboard, Planned
    from mtlscale.report.published import Published

_SHOWN = 4  # names in a note


@dataclass(frozen=True, kw_only=True)
class Source:
    """The records of one experiment, the newest last, and what it says about reading them."""

    name: str  # of the experiment
    place: str  # a home folder, or where MLflow is
    records: tuple[RunRecord, ...]
    chosen: bool = False  # its file has chosen the records: none is of an earlier version of it
    baseline: str = "stl"
    reference: str = "equal"
    delta: Mapping[str, Sequence[str]] | None = None  # as `Experiment.delta_of`; None where it is not known
    published: Published | None = None
    description: str = ""  # the sentence above its leaderboard
    planned: Planned = field(default_factory=dict)  # rows that it plans, where that is known
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # data set -> what to say of its runs


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which runs, and what they are compared with; nothing asks for everything, as the experiments say."""

    methods: Sequence[str] = ()
    datasets: Sequence[str] = ()
    seeds: Sequence[int] = ()
    baseline: str | None = None
    reference: str | None = None
    metrics: Sequence[str] = ()  # in Δ and η


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Records under the labels of their tables and rows, and what there is to say about each table."""

    sources: tuple[Source, ...]
    records: tuple[RunRecord, ...]
    baselines: dict[str, str]
    references: dict[str, str]
    delta: dict[str, tuple[str, ...]]
    notes: dict[str, tuple[str, ...]]
    planned: dict[str, dict[str, frozenset[int]]]  # table -> row -> seeds
    rows: frozenset[str] | None = None  # labels of the rows to show, where not all are asked for
    apart: tuple[str, ...] = ()  # data sets with several tables

    def leaderboard(self, *, whole: bool = False) -> Leaderboard:
        """The tables with the rows that are asked for, `whole`: with those that they are compared with, too. Ranks and
        corrections of tests are over all rows: asking for fewer makes nothing more certain."""
        from mtlscale.report.leaderboard import Leaderboard
        from mtlscale.report.published import Published

        tables = [table for source in self.sources if source.published for table in source.published.tables]
        unique = [table for place, table in enumerate(tables) if table not in tables[:place]]
        board = Leaderboard.from_records(
            self.records,
            self.baselines,
            self.references,
            Published(tables=tuple(unique)) if unique else None,
            self.delta,
            self.notes,
            self.planned,
        )
        if self.rows is None:
            return board
        return board.only(self.rows | (self._compared if whole else frozenset()))

    @property
    def _compared(self) -> frozenset[str]:
        return frozenset((*self.baselines.values(), *self.references.values()))

    def shown(self, *, whole: bool = False) -> list[RunRecord]:
        """The records of these rows."""
        rows = None if self.rows is None else self.rows | (self._compared if whole else frozenset())
        return [record for record in self.records if rows is None or record.method in rows]


@dataclass
class _Group:
    """The runs of one table, by the number of the source they come from."""

    protocol: Protocol
    runs: dict[int, list[RunRecord]] = field(default_factory=dict)
    older: int = 0  # runs with settings of before, left out


def gather(sources: Sequence[Source], wanted: Wanted | None = None) -> Gathered:
    """The tables of these experiments. `UserError` for what is asked for and nobody has."""
    return _Gathering(sources, wanted or Wanted()).gathered()


class _Gathering:
    def __init__(self, sources: Sequence[Source], wanted: Wanted) -> None:
        self.sources, self.wanted = sources, wanted
        self.names = distinct(sources)
        self.taken: set[str] = set()  # titles of tables
        self.rows: dict[str, str] = {}  # label of a row -> as its experiment has it
        self.compared: set[str] = set()  # labels of finished runs
        self.metrics: dict[str, None] = {}  # that are measured

    def gathered(self) -> Gathered:
        wanted, everything = self.wanted, [record for source in self.sources for record in source.records]
        _known("--seed", map(str, wanted.seeds), map(str, sorted({record.seed for record in everything})))
        groups = self._groups()
        titles = {dataset: self._titles(dataset, tables) for dataset, tables in groups.items()}
        every_title = [title for of in titles.values() for title in of]
        _known("--dataset", wanted.datasets, [*groups, *every_title])
        found = Gathered(
            sources=tuple(self.sources), records=(), baselines={}, references={}, delta={}, notes={}, planned={}
        )
        records: list[RunRecord] = []
        for dataset, tables in groups.items():
            for table, title in zip(tables, titles[dataset], strict=True):
                if _asked(wanted.datasets, dataset, title):
                    notes = [*_kept_apart(table, tables, titles[dataset]), *self._joined(dataset, table)]
                    records += self._table(dataset, title, table, notes, found)
                    found.notes[title] = tuple(notes)
        originals = [*self.rows.values(), *self.rows]
        _known("--method", wanted.methods, originals)
        for option, name in (("--baseline", wanted.baseline), ("--reference", wanted.reference)):
            _known(option, [] if name is None else [name], sorted(self.compared), "no finished run of it")
        _known("--metric", wanted.metrics, list(self.metrics), "no task reports it")
        shown = frozenset(label for label, name in self.rows.items() if _asked(wanted.methods, label, name))
        return replace(
            found,
            records=tuple(records),
            rows=shown if wanted.methods else None,
            apart=tuple(dataset for dataset, tables in groups.items() if len(tables) > 1),
        )

    def _groups(self) -> dict[str, list[_Group]]:
        """Data set -> what stands in one table each."""
        found: dict[str, list[_Group]] = {}
        for number, source in enumerate(self.sources):
            for dataset, records in by_dataset(source.records).items():
                current = newest(records) if source.chosen else _current(records)
                older = 0 if source.chosen else _older(records, current)
                mine: list[_Group] = []
                by_seed, how = splits_by_seed(current), selection(current)
                for record in current:
                    if not self.wanted.seeds or record.seed in self.wanted.seeds:
                        _join(mine, _Group(Protocol.of(record, by_seed, how), {number: [record]}))
                if mine:
                    mine[0].older = older
                for group in mine:
                    _join(found.setdefault(dataset, []), group)
        return found

    def _titles(self, dataset: str, tables: Sequence[_Group]) -> list[str]:
        titles = []
        for table in tables:
            title = dataset
            if len(tables) > 1:
                title = f"{dataset} ({', '.join(self.names[number] for number in table.runs)})"
            if title in self.taken:
                title = f"{title}, data {next(iter(table.protocol.fingerprints.values()))[:8]}"
            number, whole = 1, title
            while title in self.taken:
                title = f"{whole}, {(number := number + 1)}"
            self.taken.add(title)
            titles.append(title)
        return titles

    def _joined(self, dataset: str, table: _Group) -> Iterator[str]:
        if len(table.runs) > 1:
            yield f"runs of {_listed([self.names[number] for number in table.runs])}"
        if table.older:
            yield f"{table.older} older run{'s' if table.older > 1 else ''} with other settings left out"
        for number in table.runs:
            yield from self.sources[number].notes.get(dataset, ())

    def _table(self, dataset: str, title: str, table: _Group, notes: list[str], found: Gathered) -> list[RunRecord]:
        """The records of a table under the labels of its rows; fills in what it is read by."""
        labelled = self._labelled(table, notes)
        rows = {label: original for label, original, _ in labelled}
        planned = self._planned(dataset, table, labelled)
        rows |= {label: label for label in planned if label not in rows}
        self.rows |= rows
        done = [(label, name, record) for label, name, record in labelled if record.status == "finished"]
        finished = {label: (name, method_of(record)) for label, name, record in done}
        self.compared |= {*finished, *(name for named in finished.values() for name in named)}
        self.metrics |= dict.fromkeys(name for _, _, record in labelled for name in _metrics(record))
        if not any(_asked(self.wanted.methods, label, name) for label, name in rows.items()):
            return []
        of = [self.sources[number] for number in table.runs]
        base = _compared("baseline", self.wanted.baseline, of, finished, notes)
        ref = _compared("reference", self.wanted.reference, of, finished, notes)
        found.baselines[title], found.references[title] = base, ref
        found.planned[title] = planned
        if (delta := self._delta(dataset, table, [record for _, _, record in labelled], notes)) is not None:
            found.delta[title] = delta
        return [record.model_copy(update={"dataset": title, "method": label}) for label, _, record in labelled]

    def _planned(
        self, dataset: str, table: _Group, labelled: Sequence[tuple[str, str, RunRecord]]
    ) -> dict[str, frozenset[int]]:
        """Row -> the seeds that experiments of the table plan for it; of a row with a label of its own, those of its
        label."""
        labels: dict[str, dict[str, None]] = {}
        for label, original, _ in labelled:
            labels.setdefault(original, {})[label] = None
        found: dict[str, frozenset[int]] = {}
        for number in table.runs:
            for method, seeds in self.sources[number].planned.get(dataset, {}).items():
                wanted = frozenset(seed for seed in seeds if not self.wanted.seeds or seed in self.wanted.seeds)
                for label in labels.get(method, {method: None}):
                    found[label] = found.get(label, frozenset()) | wanted
        return found

    def _labelled(self, table: _Group, notes: list[str]) -> list[tuple[str, str, RunRecord]]:
        """(label of the row, label in its experiment, record), each run once."""
        variants: dict[str, dict[str, list[int]]] = {}  # label -> settings -> sources that mean them by it
        last: dict[tuple[int, str], RunRecord] = {}
        for number, records in table.runs.items():
            last |= {(number, record.method): record for record in records}
        for (number, method), record in last.items():
            variants.setdefault(method, {}).setdefault(identity(record), []).append(number)
        labels: dict[tuple[int, str], str] = {}
        keys: dict[str, None] = {}
        for method, meanings in variants.items():
            first = last[next(iter(meanings.values()))[0], method]
            for numbers in meanings.values():
                own = f"{method} ({', '.join(self.names[number] for number in numbers)})"
                labels |= {(number, method): method if len(meanings) == 1 else own for number in numbers}
                keys |= dict.fromkeys(apart(first, last[numbers[0], method]))
        several = [method for method, meanings in variants.items() if len(meanings) > 1]
        if several:
            what = f"{_listed(several)} differ{'s' if len(several) == 1 else ''} in {_listed(list(keys))}"
            notes.append(f"one label with several settings has a row for each: {what}")
        once: dict[tuple[str, int], tuple[str, str, RunRecord]] = {}
        for number, records in table.runs.items():
            for record in records:
                label = labels[number, record.method]
                known = once.get((label, record.seed))
                if known is None or _rank(record) > _rank(known[2]):
                    once[label, record.seed] = (label, record.method, record)
        places = {label: place for place, label in enumerate(dict.fromkeys(label for label, _ in once))}
        return sorted(once.values(), key=lambda run: (places[run[0]], run[2].seed))

    def _delta(
        self, dataset: str, table: _Group, records: Sequence[RunRecord], notes: list[str]
    ) -> tuple[str, ...] | None:
        """The metrics in Δ and η, None for what the pipeline says."""
        if self.wanted.metrics:
            measured = {name for record in records for name in _metrics(record)}
            asked = tuple(name for name in self.wanted.metrics if name in measured)
            if not asked:
                notes.append(f"no task here reports {_listed(self.wanted.metrics)}: Δ as the pipeline says")
            return asked or None
        said = {}
        for number in table.runs:
            choices = self.sources[number].delta
            if choices is not None:
                names = choices.get(dataset, choices.get(""))
                said[self.names[number]] = None if names is None else tuple(names)
        if len(set(said.values())) > 1:
            texts = [f"{', '.join(of or ('what the pipeline says',))} ({name})" for name, of in said.items()]
            notes.append(f"experiments disagree on what enters Δ: {'; '.join(texts)}; the first counts")
        return next(iter(said.values()), None)


def distinct(sources: Sequence[Source]) -> list[str]:
    """Names that tell the sources apart: of the experiment, with its place where there are several of that name."""

    def told(source: Source) -> str:
        if "://" in source.place:
            return f"{source.place}#{source.name}"
        return f"{source.place if len(set(folders)) < len(folders) else Path(source.place).name}:{source.name}"

    names = []
    for source in sources:
        alike = [other for other in sources if other.name == source.name]
        folders = [Path(other.place).name for other in alike]
        names.append(source.name if len(alike) == 1 else told(source))
    return names


def _join(groups: list[_Group], one: _Group) -> None:
    """Into the group that it compares with, or as a new one."""
    group = next((group for group in groups if not one.protocol.differences(group.protocol)), None)
    if group is None:
        groups.append(one)
        return
    group.protocol = group.protocol.joined(one.protocol)
    group.older += one.older
    for number, records in one.runs.items():
        group.runs.setdefault(number, []).extend(records)


def _current(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The newest record of each method and seed, of those that mean by its label what it means now."""
    current = newest(records)
    meanings: dict[str, tuple[str, str]] = {}  # method -> when its newest run ended, what it did
    for record in current:
        if record.method not in meanings or record.finished >= meanings[record.method][0]:
            meanings[record.method] = (record.finished, identity(record))
    return [record for record in current if identity(record) == meanings[record.method][1]]


def _older(records: Sequence[RunRecord], current: Sequence[RunRecord]) -> int:
    return len({record.run_id for record in records} - {record.run_id for record in current})


def _rank(record: RunRecord) -> tuple[bool, str]:
    """The larger of two records of the same run counts."""
    return record.status == "finished", record.finished


def _asked(filters: Sequence[str], *labels: str) -> bool:
    """Whether one of the filters names one of the labels; without filters everything is asked for."""
    names = {name.casefold() for name in filters}
    return not names or any(label.casefold() in names for label in labels)


def _known(option: str, asked: Iterable[str], known: Iterable[str], why: str = "no run has it") -> None:
    """`UserError` for the first that is not known, with the nearest names."""
    names = list(dict.fromkeys(known))
    for name in asked:
        if not _asked([name], *names):
            raise UserError(f"{option} {name}: {why}: {nearest(name, names) if names else 'there are none'}")


def _compared(
    kind: str, asked: str | None, sources: Sequence[Source], finished: Mapping[str, tuple[str, str]], notes: list[str]
) -> str:
    """The label of the row that a table is compared with: the one asked for, or that of the first experiment."""
    said = list(dict.fromkeys(getattr(source, kind) for source in sources))
    found = [_row(name, finished) for name in ([asked] if asked is not None else said)]
    label = next((label for label in found if label is not None), None)
    if asked is None and len(said) > 1:
        notes.append(f"experiments disagree on the {kind}: {_listed(said)}; {label or said[0]} counts")
    if label is None and kind == "reference" and asked is not None:
        notes.append(f"no tests: no finished run of {asked}")
    return label or asked or str(said[0])


def _row(name: str, finished: Mapping[str, tuple[str, str]]) -> str | None:
    """The row of that label, else the first whose experiment labels it so, else the first whose method is so called."""
    wanted = name.casefold()
    ways = ([label, *named] for label, named in finished.items())
    ranked = [(rank, way[0]) for way in ways for rank, known in enumerate(way) if known.casefold() == wanted]
    return min(ranked, key=lambda one: one[0])[1] if ranked else None


def _kept_apart(table: _Group, tables: Sequence[_Group], titles: Sequence[str]) -> Iterator[str]:
    for other, title in zip(tables, titles, strict=True):
        if other is not table:
            what = "; ".join(table.protocol.differences(other.protocol))
            yield f"kept apart from {title}: {what or 'its runs do not agree with each other'}"


def _metrics(record: RunRecord) -> Iterator[str]:
    """What names a metric of its tasks."""
    for tasks in record.metrics.values():
        for task, values in tasks.items():
            for metric in values:
                if metric != "loss":
                    yield from (metric, f"{task}.{metric}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
