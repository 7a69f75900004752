"""Planned rows without runs: they stay in the table, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtlscale.config import Experiment, Run, UserError, component, plugin_file
from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import counted, names
from mtlscale.report.tables.protocols import differing_settings

_MAX_LISTED = 3  # settings in a sentence


def planned_rows(experiment: Experiment) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the planned seeds of the experiment's file: data set -> method -> seeds."""
    return {
        dataset.label: {method.row: tuple(experiment.seeds) for method in experiment.methods_of(dataset)}
        for dataset in experiment.datasets
    }


def lacks_runs(experiment: Experiment, records: Sequence[RunRecord]) -> bool:
    """Return whether a planned run of the experiment has no record."""
    recorded = {(record.dataset, record.method, record.seed) for record in records}
    rows = sum(len(experiment.methods_of(dataset)) for dataset in experiment.datasets)
    return len(recorded) < rows * len(experiment.seeds)


def missing_notes(
    experiment: Experiment, records: Sequence[RunRecord], known: Iterable[RunRecord]
) -> dict[str, tuple[str, ...]]:
    """Return for each data set the notes on planned rows without runs, and on the outdated runs that they had.

    Args:
        experiment: The experiment as its file is now.
        records: Its runs.
        known: All runs in its ledger, those of earlier versions of the file and of its plugins among them.
    """
    recorded = {(record.dataset, record.method) for record in records}
    earlier: dict[tuple[str, str], list[RunRecord]] = {}
    for record in known:
        if (record.dataset, record.method) not in recorded:
            earlier.setdefault((record.dataset, record.method), []).append(record)

    runs = {(run.dataset, run.method): run for run in experiment.runs(dict.fromkeys(experiment.data(), ""))}
    # A run may stand under two labels, and its record under either.
    labels_by_run: dict[str, list[tuple[str, str]]] = {}
    for labels, run in runs.items():
        labels_by_run.setdefault(run.run_id, []).append(labels)

    dataset_notes: dict[str, list[str]] = {}
    methods_without_runs: dict[str, list[str]] = {}
    for labels, run in runs.items():
        if labels in recorded:
            continue
        earlier_labels = next(
            (candidate for candidate in (labels, *labels_by_run[run.run_id]) if candidate in earlier), None
        )
        if earlier_labels is not None:
            text = f"{run.method}: {left_out(experiment.name, earlier[earlier_labels], run)}"
            dataset_notes.setdefault(run.dataset, []).append(text)
        else:
            methods_without_runs.setdefault(run.dataset, []).append(run.method)

    for dataset, methods in methods_without_runs.items():
        dataset_notes.setdefault(dataset, []).append(f"no runs yet of {names(methods)}")

    return {dataset: tuple(notes) for dataset, notes in dataset_notes.items()}


def left_out(experiment: str, records: Sequence[RunRecord], run: Run) -> str:
    """Return the note on runs that are not those of the experiment's file: how many, why, and where to see them."""
    keys = differing_settings(records[-1], run)
    files = [file for key in keys if key.endswith(".plugin") and (file := _plugin(run, key.partition(".")[0]))]
    settings = [key for key in keys if not key.endswith(".plugin")]

    if files:
        cause = f"another version of {names(list(dict.fromkeys(files)))}"
    elif settings:
        cause = f"other settings ({names(settings, _MAX_LISTED)})"
    else:
        cause = "other data or metrics"

    return f"{counted(len(records), 'run')} of {cause} left out; `mtlscale show {experiment}` lists them"


def _plugin(run: Run, part: str) -> str:
    """Return the name of the file that a part of a run comes from; "" for components that are shipped now."""
    try:
        return plugin_file(component(f"{part}s", run.spec[part]["name"]))
    except UserError:
        return ""
