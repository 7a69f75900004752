"""The command that says which tasks of a data set belong together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, SourceOption, console_of, home_of
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from mtlscale.data import PreparedData
    from mtlscale.encoders import Encoder
    from mtlscale.records import Diagnosis

STEPS = ("gradients at initialisation", "affinities on the way", "gradients after the epoch")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale diagnose digits")(diagnose)


def diagnose(
    dataset: Annotated[str, typer.Argument(help="A name of `mtlscale list datasets`")],
    source: SourceOption = None,
    home: HomeOption = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the pipeline, e.g. length=128")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="What tasks share, e.g. lstm or '{name: mlp, hidden: [32]}'", show_default="a small one"),
    ] = None,
    samples: Annotated[int, typer.Option(min=2, help="Training samples of a task that are looked at")] = 2000,
    lr: Annotated[float, typer.Option(help="Learning rate of the epoch that is trained")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples and the network")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for diagnosis.html and .json", show_default="diagnoses/DATASET in --home"),
    ] = None,
    download: Annotated[bool, typer.Option(help="Fetch the files where they are public and not given")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print diagnosis.json instead of tables")] = False,
) -> None:
    """Say which tasks belong together, before a sweep is paid for: how alike inputs and labels are, how their
    gradients agree, and how much a step for one helps the others."""
    from mtlscale.data import load_prepared
    from mtlscale.execution.prepare import prepare
    from mtlscale.report.diagnosis import write_diagnosis
    from mtlscale.report.diagnosis_tables import tables
    from mtlscale.report.diagnosis_trial import experiment
    from mtlscale.spec import parse_override

    if not (lr > 0 and math.isfinite(lr)):
        raise UserError(f"--lr {lr}: choose a number above 0")
    options = dict(parse_override(text, "--option") for text in option or ())
    chosen = None if encoder is None else _encoder(encoder)
    place, console = home_of(home), console_of()
    if json:
        console.quiet = True
    with console.status(f"preparing {dataset}"):
        folder = prepare(dataset, options, source, place.root, download=download)
    found = _diagnosed(load_prepared(folder), chosen, dataset, samples=samples, lr=lr, seed=seed, quiet=json)
    given = None if source is None else str(source.absolute() if source.exists() else source)
    trial = experiment(found, options, given)
    files = write_diagnosis(found, output or place.root / "diagnoses" / dataset, trial)
    if json:
        print(found.to_json(), end="")
    for table in tables(found):
        console.print(table)
    console.print(f"{files['html']}  ({found.seconds:.1f} s)", soft_wrap=True, highlight=False)
    if "trial" in files:
        console.print(f"to try the groups: mtlscale run {files['trial']}", soft_wrap=True, highlight=False)


def _encoder(text: str) -> Encoder:
    """From a name, or a name with options in YAML."""
    from mtlscale.spec import build, parse_override

    given = parse_override(f"encoder={text}", "--encoder")[1]
    options = dict(given) if isinstance(given, dict) else {"name": given}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise UserError(f"--encoder {text}: write a name, or {{name: NAME, option: value}}")
    encoder: Encoder = build("encoders", name, options, "--encoder")
    return encoder


def _diagnosed(
    data: PreparedData, encoder: Encoder | None, name: str, *, samples: int, lr: float, seed: int, quiet: bool
) -> Diagnosis:
    from mtlscale.cli.terminal import epochs_bar
    from mtlscale.training.diagnosis import PARTS, diagnose

    console = console_of()
    tasks = len(data.suite.tasks)
    if not quiet:
        console.print(f"{name}: {tasks} task{'s' * (tasks > 1)}, inputs, labels, gradients and affinities")
    with epochs_bar(console, disable=quiet or not console.is_terminal, unit="measurements") as bar:
        work = bar.add_task("inputs and labels", total=None)

        def tell(done: int, total: int) -> None:
            step = STEPS[done // PARTS % len(STEPS)]
            bar.update(work, completed=done, total=total, description=step)

        return diagnose(
            data,
            encoder,
            name=name,
            samples=samples,
            lr=lr,
            seed=seed,
            tell=tell,
        )
