"""The commands that export a trained model and predict with it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, console_of, experiment_named, home_of, records_named
from mtlscale.config import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.inference import ExportedModel
    from mtlscale.inference.labels import LabelMeter
    from mtlscale.inference.predict import PredictionSummary
    from mtlscale.records import Metrics

InputsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT…",
        help="A prepared set, a table (.parquet, .csv, .tsv), pictures or a folder of them, lines of text (.txt, "
        "or - for standard input)",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale export 3f2a91 models/newsgroups")(export)
    app.command(epilog="Example: mtlscale predict models/newsgroups posts.txt --task sci --output found.csv")(predict)


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN_ID", help="The id of a finished run, or its first digits; or an experiment with --method"
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write, which is not there yet")],
    home: HomeOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there")] = False,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A file that the run's experiment names under `plugins`")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Of an experiment: this row's seed that is best on validation")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Of an experiment with several data sets: this one")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx as well, where the network allows it")] = False,
) -> None:
    """Write the model of a run into a folder that loads without Ray, MLflow and this home."""
    from mtlscale.execution.planning.noted_plugins import noted_plugins
    from mtlscale.inference import export as export_run
    from mtlscale.inference import load_model
    from mtlscale.records import best_run, find_run

    results_home = home_of(home)
    if (name := experiment_named(results_home, run)) is not None:
        if method is None:
            raise UserError(f"{name} is an experiment; add --method, or give the id of one of its runs")
        run = best_run(records_named(results_home, run, name), name, method, dataset)
    elif method is not None:
        raise UserError(
            f"--method {method}: {run} is no experiment with runs in {results_home.root}; give its name or file"
        )

    plugins = plugin or noted_plugins(results_home, find_run(results_home, run))
    written = export_run(results_home, run, folder, force=force, plugins=plugins)
    console = console_of()
    console.print(f"{written}", soft_wrap=True, highlight=False)

    if onnx:
        from mtlscale.inference.onnx import write_onnx

        onnx_file = write_onnx(load_model(written, trust_plugins=True))  # this process has run them already
        console.print(f"{onnx_file.path}  ({onnx_file.checked})", soft_wrap=True, highlight=False)


def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `mtlscale export` wrote")],
    inputs: InputsArgument,
    output: Annotated[
        str | None,
        typer.Option(help=".parquet, .csv or .jsonl; - is standard output", show_default="-, of a prepared set none"),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="A task of the model's; of sets whose tasks have inputs of their own")
    ] = None,
    split: Annotated[str, typer.Option(help="Of a prepared set")] = "test",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="A column for every class, not the label's alone")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out inputs that cannot be read instead of stopping")
    ] = False,
    trust_plugins: Annotated[
        bool, typer.Option("--trust-plugins", help="Run the code that the folder brings along, where it does")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples at a time", show_default="as the run evaluated")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Of the processor", show_default="of a prepared set as many as the run had"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics of a prepared set as JSON")] = False,
) -> None:
    """Predict with an exported model; of a prepared set, measure it as the run did."""
    import torch

    from mtlscale.inference import load_model
    from mtlscale.inference.inputs.files import is_prepared
    from mtlscale.inference.predict import predict_files
    from mtlscale.inference.results import sink

    model = load_model(folder, device=device, trust_plugins=trust_plugins)
    model.batch_size = batch_size or model.batch_size
    prepared = Path(inputs[0]) if len(inputs) == 1 and is_prepared(Path(inputs[0])) else None
    if prepared is not None:
        torch.set_num_threads(threads or model.description.run.threads)
        _measure(model, prepared, split, output, task=task, probabilities=probabilities, as_json=as_json)
        return

    if as_json:
        raise UserError("--json prints the metrics of a prepared set; predictions are JSON with `--output -`")
    if threads is not None:
        torch.set_num_threads(threads)

    with sink(output or "-") as out:
        summary = predict_files(model, inputs, out, task=task, skip_bad=skip_bad, probabilities=probabilities)
    _print_summary(summary)
    _print_measured(model, summary.labels)


def _print_measured(model: ExportedModel, labels: LabelMeter) -> None:
    """Print on standard error what predictions reach by the labels in their file, beside the run's test."""
    from mtlscale.cli.output.grid import grid
    from mtlscale.inference.predictions import scaling_of
    from mtlscale.metrics import in_units

    rows = []
    for task, values in labels.compute().items():
        _, deviation = scaling_of(model.suite, task)
        for metric, value in values.items():
            test = model.metrics.get(task, {}).get(metric)
            scales = [("", 1.0), *([(", in units of the data", deviation)] if in_units(metric) else [])]
            for suffix, scale in scales if deviation != 1.0 else scales[:1]:
                of_run = "" if test is None else f"{test * scale:.6g}"
                rows.append((task, f"{metric}{suffix}", labels.counts[task], f"{value * scale:.6g}", of_run))
    if rows:
        headers = ("task", "metric", "labels", "this file", "test of the run")
        console_of(stderr=True).print(grid(headers, rows, right=headers[2:]))


def _measure(
    model: ExportedModel,
    folder: Path,
    split: str,
    output: str | None,
    *,
    task: list[str] | None,
    probabilities: bool,
    as_json: bool,
) -> None:
    """Predict a prepared set into `output`, if there is one, and print its metrics."""
    from mtlscale.inference.predict import predict_set
    from mtlscale.inference.results import sink

    with contextlib.nullcontext() if output is None else sink(output) as out:
        metrics = predict_set(model, folder, split, out, task=task, probabilities=probabilities)
    _print(console_of(stderr=output == "-"), model, folder, split, metrics, as_json)


def _print_summary(summary: PredictionSummary) -> None:
    """Print on standard error which inputs were left out or are unlike the training data, and how many there were."""
    console = console_of(stderr=True)
    for problem in summary.skipped[:20]:
        console.print(f"left out: {problem}", soft_wrap=True, highlight=False)
    for line in summary.unfamiliar.warnings(summary.predicted):
        console.print(f"warning: {line}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"{summary.predicted} predicted, {len(summary.skipped)} left out", highlight=False)


def _print(console: Console, model: ExportedModel, folder: Path, split: str, metrics: Metrics, as_json: bool) -> None:
    """Print a prepared set's metrics, beside those of the run's record if it is the set that the run had."""
    from rich.table import Table

    from mtlscale.data import read_manifest

    if as_json:
        console.print(json.dumps(metrics), soft_wrap=True, highlight=False, markup=False)
        return

    run, manifest = model.description.run, read_manifest(folder)
    recorded = model.description.metrics.get(split, {})
    same_data = manifest.fingerprint == run.fingerprint.partition("+")[0]
    table = Table(
        "task", "metric", split, *(["of the run"] if same_data else []), title=f"{run.method} on {manifest.name}"
    )

    differing = 0
    for task, values in metrics.items():
        for metric, value in values.items():
            recorded_value = recorded.get(task, {}).get(metric)
            differing += same_data and recorded_value is not None and repr(recorded_value) != repr(value)
            row = [f"{value:.6g}"] + (
                [f"{recorded_value:.6g}" if recorded_value is not None else ""] if same_data else []
            )
            table.add_row(task, metric, *row)

    console.print(table)
    if same_data:
        count = sum(map(len, metrics.values()))
        console.print(
            f"all {count} figures are those of run {run.run_id} to the last digit"
            if not differing
            else f"{differing} of {count} figures differ from those of run {run.run_id} in some digit: another number "
            f"of threads than {run.threads}, another device ({run.hardware}) or batch size add up in another order",
            soft_wrap=True,
            highlight=False,
        )
