"""Export of an experiment's results as a folder that others can check, with no path, user or machine in it."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from mtlscale.api.submission.validate import Checked, check, file_hash, stated
from mtlscale.config import RESULTS_VERSION, Experiment, UserError
from mtlscale.config.named_files import named
from mtlscale.config.registry.helpers import helper_files
from mtlscale.execution.finding.own_board import own_board
from mtlscale.records import Home, RunRecord, write_atomically
from mtlscale.records.submission_schema import (
    EXPERIMENT,
    RESULTS,
    Provenance,
    in_lines,
    records_hash,
    redacted,
    write_records,
)
from mtlscale.version import __version__

_LOCAL_SECTIONS = ("tracking", "resources", "published")  # settings of where and how it was run, which change no result


def contribute(
    experiment: Experiment, settings: Mapping[str, Any], home: Home, folder: Path, *, by: str, note: str = ""
) -> Checked:
    """Write the results of an experiment into a new folder, completely or not at all.

    Args:
        experiment: The experiment as its file is now.
        settings: The content of its file, with the overrides it was run with.
        home: The home folder that holds its runs.
        folder: The folder to create; it may exist if it is empty.
        by: The contributor.
        note: A remark for readers.

    Returns:
        The result of checking the new folder.

    Raises:
        UserError: If the folder is not empty, or for the first problem of its content, such as a missing run.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and not empty; name a new folder")

    for plugin in experiment.plugins:
        if helpers := helper_files(plugin, plugin.read_bytes()):
            raise UserError(
                f"{experiment.name} cannot be contributed: {plugin.name} imports {', '.join(helpers)} beside it; "
                "readers look at one file, so put that into it"
            )

    board = own_board(experiment, home)
    if board.unsettled:
        raise UserError(f"{experiment.name} cannot be contributed: {next(iter(board.unsettled.values()))}")
    if not board.records:
        raise UserError(f"no runs of {experiment.name} in {home.root}; run it first, or name its --home")

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        staged = Path(name, folder.name)
        staged.mkdir()
        _write(staged, experiment, settings, board.records, by, note)
        checked = check(staged)
        if checked.problems:
            raise UserError(f"{experiment.name} cannot be contributed: {checked.problems[0]}")
        if folder.exists():
            folder.rmdir()
        staged.replace(folder)

    return checked


def _write(
    folder: Path,
    experiment: Experiment,
    settings: Mapping[str, Any],
    records: Sequence[RunRecord],
    by: str,
    note: str,
) -> None:
    text = yaml.safe_dump(_portable(experiment, settings), sort_keys=False, allow_unicode=True, width=120)
    write_atomically(folder / EXPERIMENT, text.encode())
    for plugin in experiment.plugins:
        shutil.copyfile(plugin, folder / Path(plugin).name)

    distinct = {record.run_id: redacted(record, _machine_names()) for record in records}.values()
    content = in_lines(distinct)
    write_records(folder, content)

    provenance = Provenance(
        experiment=experiment.name,
        by=by,
        note=note,
        date=max(record.finished for record in records)[:10],
        results_version=RESULTS_VERSION,
        revisions=sorted({record.revision for record in distinct if record.revision}),
        hardware=sorted({record.hardware for record in distinct if record.hardware}),
        versions=_versions(distinct),
        plugins={Path(plugin).name: file_hash(folder / Path(plugin).name) for plugin in experiment.plugins},
        data=_fingerprints(experiment, records),
        records=records_hash(content),
        leaderboard=stated(experiment, records),
    )
    write_atomically(folder / RESULTS, provenance.model_dump_json(indent=1).encode() + b"\n")


def _portable(experiment: Experiment, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without where and how the experiment was run; files keep only their last path part."""
    portable: dict[str, Any] = json.loads(json.dumps({"name": experiment.name, **settings}, default=str))
    for key in _LOCAL_SECTIONS:
        portable.pop(key, None)

    for dataset in portable["datasets"]:
        if isinstance(dataset, dict):
            dataset.pop("source", None)
    if experiment.plugins:
        portable["plugins"] = [Path(plugin).name for plugin in experiment.plugins]

    # `PureWindowsPath` understands both kinds of slash.
    for reference in named(portable):
        reference.options[reference.key] = PureWindowsPath(reference.name).name
    return portable


def _machine_names() -> list[str]:
    """Return names of this machine and its user that are long enough to identify them."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], os.environ.get("USER", "")}
    with suppress(KeyError, OSError):  # a user without a name
        names.add(getpass.getuser())
    return sorted(name for name in names if len(name) > 2)


def _versions(records: Collection[RunRecord]) -> dict[str, list[str]]:
    library_versions: dict[str, set[str]] = {"mtlscale": {__version__}}
    for record in records:
        for library, version in record.versions.items():
            library_versions.setdefault(library, set()).add(version)
    return {library: sorted(versions) for library, versions in library_versions.items()}


def _fingerprints(experiment: Experiment, records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the name of each prepared data set -> its fingerprint in the last record."""
    datasets = {dataset.label: dataset for dataset in experiment.datasets}
    return {
        datasets[record.dataset].prepared(record.seed): record.fingerprint.partition("+")[0]
        for record in records
        if record.dataset in datasets
    }
