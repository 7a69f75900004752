"""The commands that compare what has been run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, SetOption, WideOption, console_of, home_of
from mtlscale.cli.output.terminal import ALL_COLUMNS, shown_path
from mtlscale.config import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.report.rendered import Report
    from mtlscale.report.results import Results

PlacesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE...",
        help="Experiments: YAML files or names, home folders, HOME:EXPERIMENT, or MLflow URIs "
        "(sqlite:///…, http://…), with #EXPERIMENT or all of theirs",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="terminal, markdown, csv, json, latex or html",
        show_default="that of --output's suffix, else terminal",
    ),
]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="Write into this file, whole or not")]
MethodsOption = Annotated[list[str] | None, typer.Option("--method", help="Show this row; may be given again")]
DatasetsOption = Annotated[list[str] | None, typer.Option("--dataset", help="This data set; may be given again")]
SeedsOption = Annotated[list[int] | None, typer.Option("--seed", help="Runs of this seed; may be given again")]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric in Δ and η; may be given again", show_default="as the experiments say"),
]
BaselineOption = Annotated[
    str | None, typer.Option(help="Row that Δ is taken to", show_default="as the experiments say, else stl")
]
ReferenceOption = Annotated[
    str | None, typer.Option(help="Row that tests compare with", show_default="as the experiments say, else equal")
]
PairwiseOption = Annotated[bool, typer.Option("--pairwise", help="Every method against every other, too")]
OverallOption = Annotated[
    bool | None,
    typer.Option(
        "--overall/--no-overall",
        help="The table across data sets; CSV, which is one table, then is that",
        show_default="where there are several, but in CSV",
    ),
]
RopeOption = Annotated[
    float | None,
    typer.Option(help="Points that make no difference in practice, across data sets", show_default="1"),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="These columns in this order, by header or name, such as average,Δ,runs; `tasks` for those of all tasks",
    ),
]
SectionsOption = Annotated[
    list[str] | None,
    typer.Option("--section", metavar="KEY", help="This section alone, such as learning_curves; may be given again"),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label",
        help="LaTeX: the label of a single table, and what those of several begin with",
        show_default="tab:DATASET",
    ),
]
HomesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--home",
        help="Folder to look experiments up in; may be given again",
        show_default="$MTLSCALE_HOME or ./outputs",
    ),
]


_LABELS = "labels are for --format latex, of letters, digits and : . _ -"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog="Example: mtlscale leaderboard quickstart --format markdown\n\n"
        "Example: mtlscale leaderboard outputs other/outputs sqlite:///mlflow.db#mine --output all.html"
    )(leaderboard)
    app.command(epilog="Example: mtlscale report quickstart")(report)


def leaderboard(
    places: PlacesArgument,
    format: FormatOption = None,
    output: OutputOption = None,
    method: MethodsOption = None,
    dataset: DatasetsOption = None,
    seed: SeedsOption = None,
    metric: MetricsOption = None,
    baseline: BaselineOption = None,
    reference: ReferenceOption = None,
    pairwise: PairwiseOption = False,
    overall: OverallOption = None,
    rope: RopeOption = None,
    wide: WideOption = False,
    columns: ColumnsOption = None,
    section: SectionsOption = None,
    label: LabelOption = None,
    set_: SetOption = None,
    home: HomesOption = None,
) -> None:
    """Compare methods on the runs there are, of one experiment or of many. Nothing is run, and no home is written into.

    What does not compare (other data, tasks, metrics or splits) stands in tables of its own, with a note.
    """
    from mtlscale.api.sources import sources_of
    from mtlscale.report.merge_experiments import RunSelection, gather
    from mtlscale.report.rendered import format_of

    form = format_of(format, output)
    if output is not None:
        _check_writable(output)
    if rope is not None and not rope > 0:
        raise UserError(f"--rope {rope:g}: give the largest difference that makes none, in points above 0")

    names = [name.strip() for text in columns or () for name in text.split(",") if name.strip()]
    if names and form not in ("terminal", "markdown", "latex"):
        raise UserError(f"--columns: {form} has all columns; choose terminal, markdown or latex")
    if label is not None and (form != "latex" or not re.fullmatch(r"[A-Za-z0-9:._-]+", label)):
        raise UserError(f"--label {label}: {_LABELS}")

    homes = [home_of(folder) for folder in home] if home else [home_of(None)]
    sources = sources_of(places, homes, tuple(set_ or ()))
    selection = RunSelection(
        methods=method or (),
        datasets=dataset or (),
        seeds=seed or (),
        baseline=baseline,
        reference=reference,
        metrics=metric or (),
    )

    if overall is None and (names or section):  # columns of the user's are of the data sets
        overall = False
    shown = gather(sources, selection).report(
        form,
        overall=overall,
        rope=rope,
        pairwise=pairwise,
        columns=names,
        label=label or "",
        only=section or (),
    )
    _print(shown, form, output, wide)


def report(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Write the page, tables and pictures of the runs there are, and say where they are."""
    for path in _results(experiment, set_, home).write_report().values():
        print(path)


def _print(board: Report, form: str, output: Path | None, wide: bool) -> None:
    from mtlscale.records import write_atomically

    if output is None and form == "terminal":
        _show(console_of(), board, wide)
        return

    if form == "terminal":
        console = console_of()
        with console.capture() as captured:
            _show(console, board, wide)
        text = captured.get()
    else:
        text = board.text(form)

    if output is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return

    try:
        write_atomically(output, text.encode())
    except OSError as error:
        raise UserError(f"--output {output} cannot be written: {error.strerror}; name a file that can") from None
    console_of().print(str(output), soft_wrap=True, highlight=False)


def _show(console: Console, board: Report, wide: bool) -> None:
    for part in board.printed(wide=wide):
        console.print(part)
    if not wide and not board.columns:
        console.print(_page_line(board), soft_wrap=True, highlight=False, markup=False)


def _page_line(board: Report) -> str:
    """Return where the page of the experiment is, or how to get one."""
    from mtlscale.records import Home

    if len(board.sources) == 1 and "://" not in (location := board.sources[0][1]):
        page = Home(Path(location)).experiment(board.sources[0][0]) / "leaderboard.html"
        if page.is_file():
            return f"page: {shown_path(page)} ({ALL_COLUMNS})"
    return f"page: add --output page.html ({ALL_COLUMNS})"


def _check_writable(output: Path) -> None:
    """Raise `UserError` if the file cannot be written, before anything is read."""
    folder = output.parent
    if output.is_dir():
        raise UserError(f"--output {output} is a folder; name a file in it")
    if not folder.is_dir():
        raise UserError(f"--output {output}: there is no folder {folder}; make it, or name another")
    if not os.access(folder, os.W_OK):
        raise UserError(f"--output {output}: the folder {folder} cannot be written; name a file elsewhere")


def _results(experiment: str, set_: list[str] | None, home: Path | None) -> Results:
    from mtlscale.api.sources import no_runs, own_experiment
    from mtlscale.execution.finding.own_board import own_board
    from mtlscale.report.results import Results

    spec = own_experiment(experiment, tuple(set_ or ()))
    results_home = home_of(home)

    board = own_board(spec, results_home)
    if not board.records:
        raise UserError(no_runs(spec, [results_home], experiment, board.unsettled))
    return Results(spec, board.records, results_home.experiment(spec.name), notes=board.unsettled)
