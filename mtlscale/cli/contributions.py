"""The commands for results that others contribute."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, SetOption, SourceOption, console_of, home_of
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from mtlscale.execution.contributions import Checked
    from mtlscale.records import Home, RunRecord

_TOLERANCE = 1e-6


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale contribute quickstart results/my_quickstart --by 'A. Name'")(contribute)
    app.command("validate-results", epilog="Example: mtlscale validate-results results/* --rerun 1")(validate)


def contribute(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    folder: Annotated[Path, typer.Argument(help="A new folder, e.g. results/my_experiment")],
    by: Annotated[str, typer.Option(help="Your name, as you want it to stand there")],
    note: Annotated[str, typer.Option(help="What readers should know")] = "",
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Write an experiment's results into a folder that others can check: the experiment, its records, and where they
    came from, without paths, user or machine."""
    from mtlscale.execution.contributing import contribute as write
    from mtlscale.spec import find_experiment, load_experiment, read_settings

    if not by.strip():
        raise UserError("--by: say who contributes the results")
    overrides = tuple(set_ or ())
    spec = load_experiment(experiment, overrides)
    settings = read_settings(find_experiment(experiment), overrides)
    checked = write(spec, settings, home_of(home), folder, by=by.strip(), note=note.strip())
    size = sum(path.stat().st_size for path in folder.iterdir())
    _say(f"{folder}: {len(checked.records)} runs, {size / 1000:,.0f} kB; look at it, then open a pull request")


def validate(
    paths: Annotated[list[Path], typer.Argument(help="Folders of contributed results")],
    rerun: Annotated[int, typer.Option(min=0, help="Runs of each folder to do once more, chosen by hash")] = 0,
    run: Annotated[list[str] | None, typer.Option("--run", metavar="RUN_ID", help="Runs to do once more")] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Largest relative difference that a run may have when it is done once more")
    ] = _TOLERANCE,
    source: SourceOption = None,
    home: HomeOption = None,
) -> None:
    """Check contributed results line by line: form, run ids, missing runs, selection, data, figures, leaderboard.

    Numbers that were made up pass all that; --rerun does runs once more and compares. Exit status 1 where something
    is wrong.
    """
    from mtlscale.execution.contributions import check, conflicts

    several = [check(path) for path in paths]
    wrong = [(checked, problem) for checked in several for problem in checked.problems]
    wrong += conflicts(several)
    bad = bool(wrong)
    for checked, problem in wrong:
        print(checked.folder / str(problem))
    for checked in several:
        if checked.problems or checked.provenance is None:
            continue
        _say(f"{checked.folder}: {_told(checked)}")
        bad |= not _repeated(checked, _chosen(checked, rerun, run or ()), tolerance, home_of(home), source)
    unknown = set(run or ()) - {record.run_id for checked in several for record in checked.records}
    if unknown:
        raise UserError(f"--run {min(unknown)}: no run of these folders has this id")
    if bad:
        sys.exit(1)


def _told(checked: Checked) -> str:
    assert checked.experiment is not None and checked.provenance is not None
    experiment, count = checked.experiment, len(checked.records)
    others = sum(record.status != "finished" for record in checked.records)
    unfinished = f", {others} of them not finished" if others else ""
    return (
        f"{len(experiment.datasets)} data sets, {len(experiment.methods)} methods, "
        f"{len(experiment.seeds)} seed{'s' * (len(experiment.seeds) > 1)}, {count} runs{unfinished}, by "
        f"{checked.provenance.by}: all is as it should be"
    )


def _chosen(checked: Checked, count: int, named: Sequence[str]) -> list[RunRecord]:
    """The named runs, and so many others that nobody can choose beforehand: any change of the records draws anew."""
    assert checked.provenance is not None
    drawn = checked.provenance.records
    records = {record.run_id: record for record in checked.records if record.status == "finished"}
    order = sorted(records, key=lambda run_id: hashlib.sha256(f"{drawn}{run_id}".encode()).hexdigest())
    wanted = [run_id for run_id in records if run_id in named]
    return [records[run_id] for run_id in dict.fromkeys([*wanted, *order[:count]])]


def _repeated(
    checked: Checked, records: Sequence[RunRecord], tolerance: float, home: Home, source: Path | None
) -> bool:
    """Whether all of these end as they did."""
    if not records:
        return True
    from mtlscale.execution.repeat import repeat

    assert checked.experiment is not None
    fine = True
    for found in repeat(checked.experiment, records, home, source):
        record = found.known
        same = found.difference <= tolerance
        fine &= same
        told = "the same to the last digit" if found.difference == 0 else f"differs by {found.difference:.1e}"
        at = f" in {found.where}" if found.where else ""
        elsewhere = f" (computed on {'; '.join(found.elsewhere)})" if found.elsewhere and found.difference else ""
        verdict = "" if same else f", more than {tolerance:g}"
        _say(
            f"  {record.run_id} {record.dataset} · {record.method} · seed {record.seed}: {told}{at}{verdict}{elsewhere}"
        )
    return fine


def _say(text: str) -> None:
    console_of().print(text, soft_wrap=True, highlight=False, markup=False)
