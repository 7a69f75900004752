"""Sources of records for one leaderboard: experiment files and names, home folders, contributed results, MLflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mtlscale.config import (
    Experiment,
    Outline,
    UserError,
    find_experiment,
    load_experiment,
    nearest,
    read_outline,
    shipped,
    without_secrets,
)
from mtlscale.config.registry import components
from mtlscale.config.registry.report_parts import stems
from mtlscale.execution.finding.own_board import own_board
from mtlscale.execution.planning.status import board_at_start, read_plan
from mtlscale.records import Board, Home, Ledger, RunRecord, is_results, records_of_results
from mtlscale.records.submission_schema import EXPERIMENT as CONTRIBUTED
from mtlscale.records.submission_schema import check_files
from mtlscale.report.cells.number_format import counted
from mtlscale.report.merge_experiments import ExperimentRecords, RunSelection, gather
from mtlscale.report.tables.planned import lacks_runs, left_out, missing_notes, planned_rows
from mtlscale.report.tables.published import read_published


def sources_of(
    places: Sequence[str | Path],
    homes: Sequence[Home] = (),
    overrides: tuple[str, ...] = (),
) -> list[ExperimentRecords]:
    """Return the experiments that these places name, each once.

    A place is an experiment's file or name, looked up in every home; a home folder; HOME:EXPERIMENT; a folder of
    contributed results; or the URI of an MLflow, with #EXPERIMENT or all of them.

    Args:
        places: The places.
        homes: The home folders in which names are looked up.
        overrides: Changes of the settings of experiment files.

    Raises:
        UserError: For a place that is none of these, or without runs.
    """
    homes = homes or [Home.default()]
    sources: dict[tuple[str, str], ExperimentRecords] = {}

    for location in map(str, places):
        for source in _sources(location, homes, overrides):
            sources.setdefault((source.location, source.name), source)
    return list(sources.values())


def load_records(*places: str | Path, home: Path | None = None) -> list[RunRecord]:
    """Return the records of all runs in these places, as `mtlscale leaderboard` takes them.

    They have the labels of its tables for data sets and rows: for `Leaderboard.from_records`, or a frame of your own.
    """
    if not places:
        raise UserError("load_records: name an experiment, its file, a home folder or an MLflow's address")
    return list(gather(sources_of(places, [Home.at(home)]), RunSelection()).records)


def _sources(location: str, homes: Sequence[Home], overrides: tuple[str, ...]) -> list[ExperimentRecords]:
    if "://" in location:
        return _tracked(location)

    path = Path(location)
    if path.name == CONTRIBUTED and is_results(path.parent):
        path = path.parent
    is_home = (path / "experiments").is_dir()
    if path.suffix in (".yaml", ".yml") or (path.name == location and location in shipped() and not is_home):
        return _of_file(location, homes, overrides)
    if path.is_dir():
        if not is_results(path):
            return _of_folder(path)
        return [_of_results(path)]

    folder, colon, name = location.rpartition(":")
    if colon and Path(folder).is_dir():
        return [_of_home(Home.at(Path(folder)), name)]

    homes_with_runs = [home for home in homes if home.ledger(location).is_file()] if path.name == location else []
    if homes_with_runs:
        return [_of_home(home, location) for home in homes_with_runs]
    if path.name != location:
        raise UserError(
            f"{location} is no experiment file, home folder, HOME:EXPERIMENT or MLflow URI; correct the path"
        )

    known_names = [*shipped(), *(name for home in homes for name in _experiments(home))]
    hint = components.other_kind(location) or nearest(location, list(dict.fromkeys(known_names)), listing="experiments")
    raise UserError(f"unknown experiment {location!r}: {hint}")


def _of_results(folder: Path) -> ExperimentRecords:
    """Return contributed results; their plugins are not imported."""
    check_files(folder)
    outline = read_outline(folder / CONTRIBUTED)
    source = _source(outline.name, str(folder), records_of_results(folder), outline)
    files = ", ".join(plugin.path.name for plugin in outline.plugins)
    note = (
        f"the plugins of {folder} ({files}) are not imported: where the file has no `delta`, all metrics enter Δ, "
        "and metrics of plugins have no unit"
    )
    return replace(source, notes=dict.fromkeys(sorted(outline.unknown), (note,)))


def own_experiment(location: str, overrides: tuple[str, ...] = ()) -> Experiment:
    """Load an experiment of the user's own, whose plugins are part of it.

    Raises:
        UserError: If it lies among results that somebody contributed.
    """
    file = find_experiment(location)
    if is_results(file.parent):
        raise UserError(
            f"{location} is part of contributed results, whose plugins are not imported; name the folder: `mtlscale "
            f"leaderboard {file.parent} --output page.html`"
        )
    return load_experiment(location, overrides)


def _of_file(location: str, homes: Sequence[Home], overrides: tuple[str, ...]) -> list[ExperimentRecords]:
    """Return an experiment as its file is now, from each of the homes that has runs of it."""
    spec = load_experiment(location, overrides)
    boards = {home: own_board(spec, home) for home in homes}
    if not any(board.records for board in boards.values()):
        unsettled = {dataset: line for board in boards.values() for dataset, line in board.unsettled.items()}
        raise UserError(no_runs(spec, homes, location, unsettled))

    return [
        replace(
            _source(spec.name, home, board.records, spec, chosen_by_file=True),
            planned=planned_rows(spec),
            plugins=stems(spec.plugins),
            notes=notes_of(spec, board),
        )
        for home, board in boards.items()
        if board.records
    ]


def notes_of(spec: Experiment, board: Board) -> dict[str, tuple[str, ...]]:
    """Return notes on planned runs that are missing."""
    if not lacks_runs(spec, board.records):
        return {}
    notes = missing_notes(spec, board.records, board.rows.values())
    return {**notes, **{dataset: (line,) for dataset, line in board.unsettled.items()}}


def no_runs(spec: Experiment, homes: Sequence[Home], location: str, unsettled: Mapping[str, str]) -> str:
    """Return a sentence for an experiment whose file has no runs as it is now, with the reason if there were some."""
    if unsettled:
        return next(iter(unsettled.values()))
    roots = " or ".join(str(home.root) for home in homes)
    for home in homes:
        earlier = list(Ledger(home.ledger(spec.name)).latest().values())
        runs = {(run.dataset, run.method): run for run in spec.runs(dict.fromkeys(spec.data(), ""))}
        matching_records = [record for record in earlier if (record.dataset, record.method) in runs]
        if matching_records:
            reason = left_out(
                spec.name, matching_records, runs[matching_records[-1].dataset, matching_records[-1].method]
            )
            message = f"no runs of {spec.name} as its file is now in {home.root}"
            return f"{message}: {reason}; start it with `mtlscale run {location}`"
    return f"no runs of {spec.name} in {roots}; start them with `mtlscale run {location}` or name their --home"


def _of_folder(path: Path) -> list[ExperimentRecords]:
    """Return all experiments of a home folder, or the one whose folder it is."""
    if (path / "ledger.jsonl").is_file():
        return [_of_home(Home.at(path.absolute().parents[1]), path.absolute().name)]
    home = Home.at(path)
    names = _experiments(home)
    if not names:
        raise UserError(f"{path}: no runs of any experiment in this home folder; name another, or an experiment's file")
    return [_of_home(home, name) for name in names]


def _of_home(home: Home, name: str) -> ExperimentRecords:
    """Return what the ledger of an experiment has; its file is unknown here, unless it is a shipped experiment."""
    board = board_at_start(home, name)
    if not board.rows:
        home_experiments = _experiments(home)
        hint = nearest(name, home_experiments) if home_experiments else "there are none"
        raise UserError(f"no runs of {name} in {home.root}: {hint}")

    if not read_plan(home, name):  # nothing says which runs belong together
        return _source(name, home, board.records, _shipped(name))
    if not board.records:
        datasets = dict.fromkeys(record.dataset for record in board.others)
        note = "of other settings or data than at the last start, of which no run has ended yet"
        return replace(_source(name, home, board.others, _shipped(name)), notes=dict.fromkeys(datasets, (note,)))

    planned: dict[str, dict[str, set[int]]] = {}
    for one in board.wanted:
        planned.setdefault(one.dataset, {}).setdefault(one.method, set()).add(one.seed)
    excluded_counts = Counter(record.dataset for record in board.others)

    notes = {
        dataset: (f"{counted(count, 'run')} of other settings or data left out; `mtlscale show {name}` lists them",)
        for dataset, count in excluded_counts.items()
    }
    source = _source(name, home, board.records, _shipped(name), chosen_by_file=True)
    return replace(source, planned=planned, notes=notes)


def _tracked(location: str) -> list[ExperimentRecords]:
    """Return the experiments of an MLflow."""
    from mtlscale.tracking import epoch_reader, experiments, read_experiment, read_records

    uri, _, name = location.partition("#")
    names = [name] if name else sorted(experiments(uri))
    sources = []
    for experiment in names:
        records = tuple(read_records(uri, experiment))
        if records:
            spec = read_experiment(uri, experiment) or _shipped(experiment)
            sources.append(
                replace(_source(experiment, without_secrets(uri), records, spec), epochs=epoch_reader(uri, experiment))
            )
    if not sources:
        raise UserError(f"{location}: no finished runs of mtlscale's experiments there")
    return sources


def _source(
    name: str,
    place: Home | str,
    records: Sequence[RunRecord],
    spec: Experiment | Outline | None,
    *,
    chosen_by_file: bool = False,
) -> ExperimentRecords:
    location = str(place.root) if isinstance(place, Home) else place
    source = ExperimentRecords(name=name, location=location, records=tuple(records), chosen_by_file=chosen_by_file)
    if isinstance(place, Home):
        source = replace(source, epochs=place.epochs)
    if spec is None:
        return source
    datasets, methods = ([component.label for component in components] for components in (spec.datasets, spec.methods))

    def planned(record: RunRecord) -> tuple[int, int]:
        """Return a record's position in the experiment's file, so that tables are the same for every source."""
        return _label_position(record.dataset, datasets), _label_position(record.method, methods)

    source = replace(source, records=tuple(sorted(source.records, key=planned)))
    published = spec.published
    return replace(
        source,
        description=spec.description,
        baseline=spec.baseline,
        reference=spec.reference,
        delta=spec.delta_of(),
        published=read_published(published) if published is not None and published.is_file() else None,
    )


def _label_position(label: str, labels: Sequence[str]) -> int:
    return labels.index(label) if label in labels else len(labels)


def _shipped(name: str) -> Experiment | None:
    """Return the shipped experiment of that name; None if there is none, or it cannot be loaded here."""
    try:
        return load_experiment(shipped()[name]) if name in shipped() else None
    except UserError:
        return None


def _experiments(home: Home) -> list[str]:
    """Return the sorted names of a home's experiments that have runs."""
    return sorted(path.parent.name for path in home.root.glob("experiments/*/ledger.jsonl") if path.stat().st_size)
