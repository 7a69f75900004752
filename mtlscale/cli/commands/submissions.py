"""The commands for results that others contribute."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import DatasetOption, HomeOption, SetOption, SourceOption, console_of, home_of, only
from mtlscale.config import UserError

if TYPE_CHECKING:
    from mtlscale.api.submission.validate import Checked
    from mtlscale.records import Home, RunRecord
    from mtlscale.records.submission_schema import Problem

_NOT_DONE = "not done once more"
_MOST_PROBLEMS = 50  # of a folder that are listed


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale contribute quickstart results/my_quickstart --by 'A. Name'")(contribute)
    app.command("validate-results", epilog="Example: mtlscale validate-results results/* --rerun 1")(validate)


def contribute(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    folder: Annotated[Path, typer.Argument(help="A new folder, e.g. results/my_experiment")],
    by: Annotated[str, typer.Option(help="Your name, as you want it to stand there")],
    note: Annotated[str, typer.Option(help="What readers should know")] = "",
    datasets: DatasetOption = None,
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Write an experiment's results into a folder that others can check.

    It has the experiment, its records, and where they came from, without paths, user or machine.
    """
    from mtlscale.api.submission.write import contribute as write
    from mtlscale.config import find_experiment, load_experiment, read_settings

    if not by.strip():
        raise UserError("--by: say who contributes the results")
    overrides = tuple(set_ or ())
    full_experiment = load_experiment(experiment, overrides)
    spec = only(full_experiment, None, datasets)
    settings = dict(read_settings(find_experiment(experiment), overrides))
    settings["datasets"] = [
        entry
        for entry, dataset in zip(settings["datasets"], full_experiment.datasets, strict=True)
        if dataset in spec.datasets
    ]

    checked = write(spec, settings, home_of(home), folder, by=by.strip(), note=note.strip())
    size = sum(path.stat().st_size for path in folder.iterdir())
    _print(f"{folder}: {len(checked.records)} runs, {size / 1000:,.0f} kB; look at it, then open a pull request")


def validate(
    paths: Annotated[list[Path], typer.Argument(help="Folders of contributed results")],
    rerun: Annotated[int, typer.Option(min=0, help="Runs of each folder to do once more, chosen by hash")] = 0,
    run: Annotated[list[str] | None, typer.Option("--run", metavar="RUN_ID", help="Runs to do once more")] = None,
    trust_plugins: Annotated[
        bool, typer.Option("--trust-plugins", help="Let --rerun and --run execute the plugins of the results")
    ] = False,
    source: SourceOption = None,
    home: HomeOption = None,
) -> None:
    """Check contributed results line by line: form, run ids, missing runs, selection, data, figures, leaderboard.

    Nothing of the folders is executed. Numbers that were made up pass all that; --rerun does runs once more and
    compares. Exit status 1 where something is wrong.
    """
    from mtlscale.api.submission.trusted_rerun import check_trusted
    from mtlscale.api.submission.validate import conflicts

    checked_folders, unreadable = _checked(paths)
    problems = [(checked, problem) for checked in checked_folders for problem in checked.problems]
    problems += conflicts(checked_folders)
    selected = {index: _selected_runs(folder, rerun, run or ()) for index, folder in enumerate(checked_folders)}
    for index, records in selected.items():
        if records:
            check_trusted(checked_folders[index], trusted=trust_plugins)

    has_failed = bool(problems) or unreadable
    _print_problems(problems)
    for index, checked in enumerate(checked_folders):
        if checked.problems or checked.provenance is None:
            continue
        _print(f"{checked.folder}: {_summary(checked)}")
        if checked.plugins:
            _print(
                f"  plugins {checked.plugins} were read, not run: rows that need them are known by label, and what "
                "they declare of Δ is not checked"
            )
        has_failed |= not _repeated(checked, selected[index], home_of(home), source)

    unknown = set(run or ()) - {record.run_id for checked in checked_folders for record in checked.records}
    if unknown:
        raise UserError(f"--run {min(unknown)}: no run of these folders has this id")
    if has_failed:
        sys.exit(1)


def _checked(paths: Sequence[Path]) -> tuple[list[Checked], bool]:
    """Return the checked folders, and whether one of several could not be read."""
    from mtlscale.api.submission.validate import check

    checked_folders, unreadable = [], False
    for path in paths:
        try:
            checked_folders.append(check(path))
        except UserError as error:
            if len(paths) == 1:
                raise
            print(error)
            unreadable = True
    return checked_folders, unreadable


def _print_problems(problems: Sequence[tuple[Checked, Problem]]) -> None:
    """Print the first problems of each folder, and how many there are."""
    counts: Counter[Path] = Counter()
    for checked, problem in problems:
        counts[checked.folder] += 1
        if counts[checked.folder] <= _MOST_PROBLEMS:
            print(f"{checked.folder}/{problem}")
    for folder, count in counts.items():
        if count > _MOST_PROBLEMS:
            print(f"{folder}: and {count - _MOST_PROBLEMS:,} more problems")


def _summary(checked: Checked) -> str:
    assert checked.outline is not None and checked.provenance is not None
    experiment, count = checked.outline, len(checked.records)
    unfinished_count = sum(record.status != "finished" for record in checked.records)
    unfinished = f", {unfinished_count} of them not finished" if unfinished_count else ""
    return (
        f"{len(experiment.datasets)} data sets, {len(experiment.methods)} methods, "
        f"{len(experiment.seeds)} seed{'s' * (len(experiment.seeds) > 1)}, {count} runs{unfinished}, by "
        f"{checked.provenance.by}: all is as it should be"
    )


def _selected_runs(checked: Checked, count: int, named: Sequence[str]) -> list[RunRecord]:
    """Return the named runs, and `count` others that nobody can predict: any change of the records draws anew."""
    if checked.problems or checked.provenance is None:
        return []
    records_hash = checked.provenance.records
    records = {record.run_id: record for record in checked.records if record.status == "finished"}
    order = sorted(records, key=lambda run_id: hashlib.sha256(f"{records_hash}{run_id}".encode()).hexdigest())
    named_ids = [run_id for run_id in records if run_id in named]
    return [records[run_id] for run_id in dict.fromkeys([*named_ids, *order[:count]])]


def _repeated(checked: Checked, records: Sequence[RunRecord], home: Home, source: Path | None) -> bool:
    """Return whether repeated runs end as they did, to the last digit or within what seeds differ by."""
    from mtlscale.api.submission.trusted_rerun import rerun_with_plugins
    from mtlscale.execution.rehearsal.rerun import rerun
    from mtlscale.records.reproduction import DIFFERENT, SAME, WITHIN

    outcomes: Counter[str] = Counter()
    other_courses = 0
    for record in records:
        name = f"{record.run_id} {record.dataset} · {record.method} · seed {record.seed}"
        try:
            if checked.plugins:
                repetition = rerun_with_plugins(checked, record, home, source, lambda text: _print(f"  {text}"))
            else:
                repetition, _ = rerun(record, home, source=source)
        except UserError as error:  # one run whose data are not here takes no other along
            outcomes[_NOT_DONE] += 1
            _print(f"  {name}: {_NOT_DONE}: {error}")
            continue

        repetition = repetition.among(checked.records)
        outcomes[repetition.outcome] += 1
        other_courses += repetition.outcome == WITHIN and repetition.takes_another_course
        reasons = "" if repetition.same else "; ".join([repetition.explanation, *repetition.surroundings])
        _print(f"  {name}: {repetition.outcome}{reasons and f' ({reasons})'}")

    if records:
        counts = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in (SAME, WITHIN, DIFFERENT, _NOT_DONE))
        courses = f"; {other_courses} took another course, as chaotic runs do" if other_courses else ""
        _print(f"  {len(records)} runs done once more: {counts}{courses}")
    # A run whose data cannot be had here says nothing, unless more than half are such.
    return not outcomes[DIFFERENT] and outcomes[_NOT_DONE] * 2 <= len(records)


def _print(text: str) -> None:
    console_of().print(text, soft_wrap=True, highlight=False, markup=False)
