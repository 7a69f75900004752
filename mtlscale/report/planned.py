"""What an experiment plans beside the runs that there are: rows without runs stay, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtlscale.records import RunRecord
from mtlscale.report.protocols import apart
from mtlscale.report.texts import counted, names
from mtlscale.spec import Experiment, Run, UserError, component, plugin_file

_SHOWN = 3  # settings in a sentence


def planned_rows(experiment: Experiment) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return data set -> method -> seeds of the experiment's file."""
    rows = {method.label: tuple(experiment.seeds) for method in experiment.methods}
    return {dataset.label: dict(rows) for dataset in experiment.datasets}


def lacks_runs(experiment: Experiment, records: Sequence[RunRecord]) -> bool:
    """Return whether a planned run of the experiment has no record."""
    places = {(record.dataset, record.method, record.seed) for record in records}
    return len(places) < len(experiment.datasets) * len(experiment.methods) * len(experiment.seeds)


def missing_notes(
    experiment: Experiment, records: Sequence[RunRecord], known: Iterable[RunRecord]
) -> dict[str, tuple[str, ...]]:
    """Say of each data set which planned rows have no run, and what became of the runs that they had.

    Args:
        experiment: the experiment as its file is now.
        records: its runs.
        known: all that its ledger has, runs of earlier versions of the file and of its plugins among them.
    """
    there = {(record.dataset, record.method) for record in records}
    earlier: dict[tuple[str, str], list[RunRecord]] = {}
    for record in known:
        if (record.dataset, record.method) not in there:
            earlier.setdefault((record.dataset, record.method), []).append(record)

    runs = {(run.dataset, run.method): run for run in experiment.runs(dict.fromkeys(experiment.data(), ""))}
    alike: dict[str, list[tuple[str, str]]] = {}  # a run may stand under two labels, and its record under either
    for place, run in runs.items():
        alike.setdefault(run.run_id, []).append(place)
    found: dict[str, list[str]] = {}
    without: dict[str, list[str]] = {}
    for place, run in runs.items():
        if place in there:
            continue
        known_as = next((other for other in (place, *alike[run.run_id]) if other in earlier), None)
        if known_as is not None:
            text = f"{run.method}: {left_out(experiment.name, earlier[known_as], run)}"
            found.setdefault(run.dataset, []).append(text)
        else:
            without.setdefault(run.dataset, []).append(run.method)
    for dataset, methods in without.items():
        found.setdefault(dataset, []).append(f"no runs yet of {names(methods)}")
    return {dataset: tuple(notes) for dataset, notes in found.items()}


def left_out(experiment: str, records: Sequence[RunRecord], run: Run) -> str:
    """Say how many runs are not those of the experiment's file, why, and where to see them."""
    keys = apart(records[-1], run)
    files = [file for key in keys if key.endswith(".plugin") and (file := _plugin(run, key.partition(".")[0]))]
    settings = [key for key in keys if not key.endswith(".plugin")]
    if files:
        why = f"another version of {names(list(dict.fromkeys(files)))}"
    elif settings:
        why = f"other settings ({names(settings, _SHOWN)})"
    else:
        why = "other data or metrics"
    return f"{counted(len(records), 'run')} of {why} left out; `mtlscale show {experiment}` lists them"


def _plugin(run: Run, part: str) -> str:
    """Return the name of the file that a part of a run comes from; "" for what is shipped now."""
    try:
        return plugin_file(component(f"{part}s", run.spec[part]["name"]))
    except UserError:
        return ""
