"""Where runs are: experiment files and names, home folders, MLflow. What each holds, for one leaderboard of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mtlscale.execution.plan import records_of
from mtlscale.records import Home, Ledger, RunRecord, is_results, records_of_results
from mtlscale.records.contributed import EXPERIMENT as CONTRIBUTED
from mtlscale.report.gathering import Source, Wanted, gather
from mtlscale.report.published import read_published
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
        raise UserError(
            f"no runs of {spec.name} in {' or '.join(found)}; start them with `mtlscale run {place}` or name their "
            "--home"
        )
    return [_source(spec.name, root, records, spec, chosen=True) for root, records in found.items() if records]


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
    records = tuple(Ledger(home.ledger(name)).latest(epochs=epochs).values())
    if not records:
        there = _experiments(home)
        what = nearest(name, there) if there else "there are none"
        raise UserError(f"no runs of {name} in {home.root}: {what}")
    return _source(name, str(home.root), records, _shipped(name))


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
