"""Comparison of methods on arrays and data frames, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.api.running import run
from mtlscale.config import UserError, build, experiment_from, nearest
from mtlscale.data import read_manifest
from mtlscale.execution.preparing.arrays import joined, write_table
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.preparing.prepare import prepared_folders
from mtlscale.execution.preparing.starter_settings import METHODS, starter_encoder, starter_training
from mtlscale.records import Home, Ledger
from mtlscale.records.events import Sink
from mtlscale.report.cells.number_format import counted

if TYPE_CHECKING:
    from mtlscale.config import Experiment
    from mtlscale.report.results import Results

_EXAMPLES = {"targets": "{'y': 'class'}", "options": "{'group': 'patient'}", "training": "{'epochs': 5}"}
_LETTERS = 8  # of the table's hash in a default name


def compare(
    X: Any,
    Y: Any,
    methods: Sequence[str | Mapping[str, Any]] = METHODS,
    *,
    name: str | None = None,
    targets: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    home: Home | Path | str | None = None,
    sinks: Iterable[Sink] = (),
    **settings: Any,
) -> Results:
    """Train methods on inputs and targets of yours and return the leaderboard.

    The data are written once as a Parquet file below the home folder; everything else is what an experiment file with
    the data set `table` does. A run that is finished is not run again, also if a file asks for it.

    Args:
        X: The inputs: a data frame, an array [N, D], or a mapping of columns. Numbers, dates and categories.
        Y: The targets: a data frame or array with a column per task, or one column. A label may be missing.
        methods: Methods as in an experiment file: names, or mappings with settings.
        name: The name of the experiment, of which one home has one for each table; default: `comparison-` and the first
            letters of a hash of the table.
        targets: Target column -> `class`, `regression` or `multilabel`; others are guessed from their values.
        options: Options of the data set `table`, such as `group`, `categorical`, or `smiles` for molecules.
        seeds: Seeds of initialisation and sample order.
        home: The home folder; default `$MTLSCALE_HOME`, else `./outputs`.
        sinks: Whoever takes the events, each an object with `take(event)`.
        settings: Other keys of an experiment file, such as `model`, `training`, `search` or `floors`.

    Returns:
        The results: a notebook shows their leaderboard, `to_pandas()` has the metrics of every run, and
        `leaderboard().to_pandas()` a row per method.

    Raises:
        UserError: X and Y do not go together, the name belongs to other data in this home, or something that an
            experiment file would be refused for.
    """
    results_home = home if isinstance(home, Home) else Home.at(None if home is None else Path(home))
    for key, mapping in (("targets", targets), ("options", options), ("training", settings.get("training"))):
        if mapping is not None and not isinstance(mapping, Mapping):
            raise UserError(f"compare: {key} should be a mapping, such as {_EXAMPLES[key]}, not {mapping!r}")

    table, columns = joined(X, Y)
    options_of_table = _options(columns, targets or {}, options or {})
    source = write_table(table, results_home.tables)
    chosen_name = f"comparison-{source.stem[:_LETTERS]}" if name is None else name
    dataset = {"name": "table", "label": chosen_name, "source": str(source), "options": options_of_table}

    pipeline = build("datasets", "table", options_of_table, "compare: options")
    graphs = bool(pipeline.smiles)
    train = round(len(table) * (1 - pipeline.test) * (1 - pipeline.validation))
    experiment = experiment_from(
        {
            "name": chosen_name,
            "datasets": [dataset],
            "methods": [methods] if isinstance(methods, str) else list(methods),
            "seeds": list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else seeds,
            "model": {"encoder": starter_encoder(images=False, graphs=graphs)},
            **settings,
            "training": starter_training(train, images=False, graphs=graphs) | dict(settings.get("training", {})),
        },
        "compare",
    )
    _check_name(experiment, results_home)
    return run(experiment, home=results_home, sinks=sinks)


def _check_name(experiment: Experiment, home: Home) -> None:
    """Raise `UserError` if all runs under the experiment's name in this home are of other tables."""
    records = Ledger(home.ledger(experiment.name)).latest().values()
    if not records:
        return

    data = prepare_data(experiment, home, None, False)
    own = next(iter(data.manifests.values()))
    of_same_table = {own.fingerprint}  # prepared with other options, too
    for manifest in map(read_manifest, prepared_folders(own.name, home.root)):
        if manifest.source.fingerprint == own.source.fingerprint:
            of_same_table.add(manifest.fingerprint)

    if not any(record.fingerprint.partition("+")[0] in of_same_table for record in records):
        raise UserError(
            f"compare: the name {experiment.name} belongs to {counted(len(records), 'run')} of other data in "
            f"{home.root}; pass another `name`, or none for one of the table's own"
        )


def _options(columns: Sequence[str], targets: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the data set, all columns of Y as targets."""
    unknown = next((column for column in targets if column not in columns), None)
    if unknown is not None:
        raise UserError(f"compare: targets: Y has no column {unknown!r}; {nearest(unknown, columns)}")
    if "targets" in options:
        raise UserError("compare: options: `targets` are the columns of Y; give their kinds by compare(targets=…)")

    kinds = {column: targets.get(column, "auto") for column in columns}
    return {"constant": "drop", **options, "targets": kinds}
