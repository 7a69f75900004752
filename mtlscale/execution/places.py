"""Where runs are: experiment files and names, home folders, MLflow. What each holds, for one leaderboard of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtlscale.execution.plan import records_of
from mtlscale.execution.standing import PlanEntry, read_plan
from mtlscale.records import Home, Ledger, RunRecord, is_results, records_of_results
from mtlscale.records.contributed import EXPERIMENT as CONTRIBUTED
from mtlscale.report.gathering import Source, Wanted, gather
from mtlscale.report.planned import lacks_runs, left_out, missing_notes, planned_rows
from mtlscale.report.published import read_published
from mtlscale.report.texts import counted
from mtlscale.spec import Experiment, UserError, load_experiment, nearest, shipped


def sources_of(
    places: Sequence[str | Path],
    homes: Sequence[Home] = (),
    overrides: tuple[str, ...] = (),
    *,
    epochs: bool = True,
) -> list[Source]:
    """The experiments that these places name, each once.

    A place is an experiment's file or name, looked up in every home; a home folder; HOME:EXPERIMENT; a folder of
    contributed results; or the URI of an MLflow, with #EXPERIMENT or all of them. `overrides` are for files; `epochs`:
    whether records come with them.
    `UserError` for a place that is none of these, or without runs.
    """
    homes = homes or [Home.default()]
    found: dict[tuple[str, str], Source] = {}
    for place in map(str, places):
        for source in _sources(place, homes, overrides, epochs):
            found.setdefault((source.place, source.name), source)
    return list(found.values())


def load_records(*places: str | Path, home: Path | None = None) -> list[RunRecord]:
    """The records of all runs in these places, as `mtlscale leaderboard` takes them, under the labels that its tables
    have for data sets and rows: for `Leaderboard.from_records`, or a frame of your own."""
    return list(gather(sources_of(places, [Home.at(home)]), Wanted()).records)


def _sources(place: str, homes: Sequence[Home], overrides: tuple[str, ...], epochs: bool) -> list[Source]:
    if "://" in place:
        return _tracked(place)
    path = Path(place)
    if path.suffix in (".yaml", ".yml") or (path.name == place and place in shipped() and not _is_home(path)):
        return _of_file(place, homes, overrides, epochs)
    if path.is_dir():
        return [_of_results(path)] if is_results(path) else _of_folder(path, epochs)
    folder, colon, name = place.rpartition(":")
    if colon and Path(folder).is_dir():
        return [_of_home(Home.at(Path(folder)), name, epochs)]
    there = [home for home in homes if home.ledger(place).is_file()] if path.name == place else []
    if there:
        return [_of_home(home, place, epochs) for home in there]
    if path.name != place:
        raise UserError(f"{place} is no experiment file, home folder, HOME:EXPERIMENT or MLflow URI; correct the path")
    known = [*shipped(), *(name for home in homes for name in _experiments(home))]
    hint = nearest(place, list(dict.fromkeys(known)), listing="experiments")
    raise UserError(f"unknown experiment {place!r}: {hint}")


def _of_file(place: str, homes: Sequence[Home], overrides: tuple[str, ...], epochs: bool) -> list[Source]:
    """An experiment as its file is now, in each of the homes that has runs of it."""
    spec = load_experiment(place, overrides)
    found = {str(home.root): records_of(spec, home, epochs=epochs) for home in homes}
    if not any(found.values()):
        raise UserError(no_runs(spec, homes, place))
    return [
        replace(
            _source(spec.name, root, records, spec, chosen=True),
            planned=planned_rows(spec),
            notes=notes_of(spec, records, Home.at(Path(root))),
        )
        for root, records in found.items()
        if records
    ]


def notes_of(spec: Experiment, records: Sequence[RunRecord], home: Home) -> dict[str, tuple[str, ...]]:
    """What is missing of what the experiment plans; its ledger is read where something is."""
    if not lacks_runs(spec, records):
        return {}
    return missing_notes(spec, records, Ledger(home.ledger(spec.name)).latest(epochs=False).values())


def no_runs(spec: Experiment, homes: Sequence[Home], place: str) -> str:
    """A sentence for an experiment whose file has no runs as it is now, with the reason where there were some."""
    where = " or ".join(str(home.root) for home in homes)
    for home in homes:
        earlier = list(Ledger(home.ledger(spec.name)).latest(epochs=False).values())
        runs = {(run.dataset, run.method): run for run in spec.runs(dict.fromkeys(spec.data(), ""))}
        mine = [record for record in earlier if (record.dataset, record.method) in runs]
        if mine:
            reason = left_out(spec.name, mine, runs[mine[-1].dataset, mine[-1].method])
            now = f"no runs of {spec.name} as its file is now in {home.root}"
            return f"{now}: {reason}; start it with `mtlscale run {place}`"
    return f"no runs of {spec.name} in {where}; start them with `mtlscale run {place}` or name their --home"


def _of_folder(path: Path, epochs: bool) -> list[Source]:
    """All experiments of a home folder, or the one whose folder it is."""
    if (path / "ledger.jsonl").is_file():
        return [_of_home(Home.at(path.absolute().parents[1]), path.absolute().name, epochs)]
    home = Home.at(path)
    names = _experiments(home)
    if not names:
        raise UserError(f"{path}: no runs of any experiment in this home folder; name another, or an experiment's file")
    return [_of_home(home, name, epochs) for name in names]


def _of_results(folder: Path) -> Source:
    """Contributed results, of the experiment that lies beside them."""
    spec = load_experiment(folder / CONTRIBUTED)
    return _source(spec.name, str(folder), records_of_results(folder), spec)


def _of_home(home: Home, name: str, epochs: bool) -> Source:
    """What the ledger of an experiment has. Its file is not known here, save where it is a shipped one."""
    known = Ledger(home.ledger(name)).latest(epochs=epochs)
    if not known:
        there = _experiments(home)
        what = nearest(name, there) if there else "there are none"
        raise UserError(f"no runs of {name} in {home.root}: {what}")

    entries = read_plan(home, name, known)
    current = [_of_entry(known[entry.run_id], entry) for entry in entries if entry.run_id in known]
    if not current:  # nobody knows what belongs together
        return _source(name, str(home.root), tuple(known.values()), _shipped(name))
    planned: dict[str, dict[str, set[int]]] = {}
    for entry in entries:
        planned.setdefault(entry.dataset, {}).setdefault(entry.method, set()).add(entry.seed)
    left = Counter(record.dataset for run_id, record in known.items() if run_id not in {one.run_id for one in entries})
    notes = {
        dataset: (f"{counted(count, 'run')} of other settings left out; `mtlscale show {name}` lists them",)
        for dataset, count in left.items()
    }
    source = _source(name, str(home.root), current, _shipped(name), chosen=True)
    return replace(source, planned=planned, notes=notes)


def _of_entry(record: RunRecord, entry: PlanEntry) -> RunRecord:
    """The record under the labels that the experiment has for it now."""
    return record.model_copy(update={"dataset": entry.dataset, "method": entry.method})


def _tracked(place: str) -> list[Source]:
    """The experiments of an MLflow."""
    from mtlscale.tracking import experiments, read_experiment, read_records

    uri, _, name = place.partition("#")
    names = [name] if name else sorted(experiments(uri))
    found = []
    for one in names:
        records = tuple(read_records(uri, one))
        if records:
            found.append(_source(one, uri, records, read_experiment(uri, one) or _shipped(one)))
    if not found:
        raise UserError(f"{place}: no finished runs of mtlscale's experiments there")
    return found


def _source(
    name: str, place: str, records: Sequence[RunRecord], spec: Experiment | None, *, chosen: bool = False
) -> Source:
    found = Source(name=name, place=place, records=tuple(records), chosen=chosen)
    if spec is None:
        return found
    datasets, methods = ([one.label for one in of] for of in (spec.datasets, spec.methods))

    def planned(record: RunRecord) -> tuple[int, int]:
        """Its place in the experiment's file, so that tables are the same wherever records come from."""
        return _place(record.dataset, datasets), _place(record.method, methods)

    found = replace(found, records=tuple(sorted(found.records, key=planned)))
    published = spec.published
    return replace(
        found,
        description=spec.description,
        baseline=spec.baseline,
        reference=spec.reference,
        delta=spec.delta_of(),
        published=read_published(published) if published is not None and published.is_file() else None,
    )


def _place(label: str, labels: Sequence[str]) -> int:
    return labels.index(label) if label in labels else len(labels)


def _shipped(name: str) -> Experiment | None:
    """The shipped experiment of that name; None where there is none, or it needs what is not here."""
    try:
        return load_experiment(shipped()[name]) if name in shipped() else None
    except UserError:
        return None


def _is_home(path: Path) -> bool:
    return (path / "experiments").is_dir()


def _experiments(home: Home) -> list[str]:
    """Names of a home's experiments that have runs, as they come in the alphabet."""
    return sorted(path.parent.name for path in home.root.glob("experiments/*/ledger.jsonl") if path.stat().st_size)
