"""The command that says which tasks of a data set belong together."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtlscale.cli import completion
from mtlscale.cli.options import HomeOption, PluginOption, SourceOption, console_of, home_of, load_plugins
from mtlscale.config import UserError

if TYPE_CHECKING:
    from mtlscale.data import PreparedData
    from mtlscale.encoders import Encoder
    from mtlscale.records import Diagnosis

STEPS = ("gradients at initialisation", "affinities on the way", "gradients after the epoch")

DatasetArgument = Annotated[
    str,
    typer.Argument(
        help="A name of `mtlscale list datasets`, or an experiment with one data set, whose encoder is taken, too",
        autocompletion=completion.data,
    ),
]
PipelineOption = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the pipeline, e.g. length=128")
]
EncoderOption = Annotated[
    str | None,
    typer.Option(help="What tasks share, e.g. lstm or '{name: mlp, hidden: [32]}'", show_default="a small one"),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(help="Folder for diagnosis.html and .json", show_default="diagnoses/DATASET in --home"),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale diagnose digits")(diagnose)


def diagnose(
    dataset: DatasetArgument,
    source: SourceOption = None,
    home: HomeOption = None,
    option: PipelineOption = None,
    plugin: PluginOption = None,
    encoder: EncoderOption = None,
    samples: Annotated[int, typer.Option(min=2, help="Training samples of a task that are looked at")] = 2000,
    lr: Annotated[float, typer.Option(help="Learning rate of the epoch that is trained")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples and the network")] = 0,
    output: OutputOption = None,
    download: Annotated[bool, typer.Option(help="Fetch the files where they are public and not given")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print diagnosis.json instead of tables")] = False,
) -> None:
    """Say which tasks belong together, before a sweep is paid for.

    It measures how alike inputs and labels are, how gradients agree, and how much a step for one helps the others.
    """
    from mtlscale.config import parse_override
    from mtlscale.data import load_prepared
    from mtlscale.execution.preparing.prepare import prepare
    from mtlscale.report.diagnosis.diagnosis_page import write_diagnosis
    from mtlscale.report.diagnosis.diagnosis_tables import tables
    from mtlscale.report.diagnosis.diagnosis_trial import experiment

    if not (lr > 0 and math.isfinite(lr)):
        raise UserError(f"--lr {lr}: choose a number above 0")

    options = dict(parse_override(text, "--option") for text in option or ())
    load_plugins(plugin)

    subject = _subject(dataset, options, source, plugin or [])
    chosen = subject.encoder if encoder is None else _encoder(encoder)
    results_home, console = home_of(home), console_of()
    if json:
        console.quiet = True
    with console.status(f"preparing {subject.dataset}"):
        folder = prepare(subject.dataset, subject.options, subject.source, results_home.root, download=download)
    diagnosis = _diagnosed(
        load_prepared(folder), chosen, subject.dataset, samples=samples, lr=lr, seed=seed, quiet=json
    )

    source_path = None if subject.source is None else str(subject.source)
    source_path = (
        str(Path(source_path).absolute()) if source_path is not None and Path(source_path).exists() else source_path
    )
    trial = experiment(diagnosis, subject.options, source_path, subject.plugins)
    files = write_diagnosis(diagnosis, output or results_home.root / "diagnoses" / subject.dataset, trial)

    if json:
        print(diagnosis.to_json(), end="")
    for table in tables(diagnosis):
        console.print(table)
    console.print(f"{files['html']}  ({diagnosis.seconds:.1f} s)", soft_wrap=True, highlight=False)
    if "trial" in files:
        console.print(f"to try the groups: mtlscale run {files['trial']}", soft_wrap=True, highlight=False)


@dataclass(frozen=True)
class _Subject:
    """Data set to diagnose."""

    dataset: str
    options: dict[str, Any]
    source: Path | str | None
    plugins: list[Path]
    encoder: Encoder | None  # the experiment's; None: a small one


def _subject(name: str, options: dict[str, Any], source: Path | None, plugins: list[Path]) -> _Subject:
    """Return the data set of this name, or that of an experiment."""
    from mtlscale.config import ModelSpec, load_experiment, names, shipped

    if name in names("datasets") or not (name in shipped() or Path(name).suffix in (".yaml", ".yml")):
        return _Subject(name, options, source, plugins, None)

    if options:
        raise UserError(f"--option: {name} is an experiment; its data set's options are in the file")
    experiment = load_experiment(name)
    if len(experiment.datasets) > 1:
        dataset_names = ", ".join(entry.name for entry in experiment.datasets)
        raise UserError(f"{name} has several data sets: {dataset_names}; diagnose one by its name")

    entry = experiment.datasets[0]
    if entry.tasks is not None:
        raise UserError(f"{name} trains some tasks of {entry.name}; drop `tasks` of the data set: all are diagnosed")
    encoder: Encoder | None = None
    if "encoder" in experiment.model.model_fields_set | entry.model.keys():
        model = ModelSpec.model_validate({**experiment.model.model_dump(), **entry.model})
        encoder = model.encoder.build("encoders", "model.encoder")
    return _Subject(entry.name, asdict(entry.build()), source or entry.source, [*plugins, *experiment.plugins], encoder)


def _encoder(text: str) -> Encoder:
    """Build an encoder from a name, or from a name with options in YAML."""
    from mtlscale.config import build, parse_override

    value = parse_override(f"encoder={text}", "--encoder")[1]
    options = dict(value) if isinstance(value, dict) else {"name": value}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise UserError(f"--encoder {text}: write a name, or {{name: NAME, option: value}}")
    encoder: Encoder = build("encoders", name, options, "--encoder")
    return encoder


def _diagnosed(
    data: PreparedData, encoder: Encoder | None, name: str, *, samples: int, lr: float, seed: int, quiet: bool
) -> Diagnosis:
    from mtlscale.cli.output.terminal import epochs_bar
    from mtlscale.training.diagnosis.diagnosis import PARTS, diagnose

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
