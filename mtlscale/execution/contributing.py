"""An experiment's results as a folder that others can check: no path, user or machine in it."""

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

from mtlscale.execution.contributions import Checked, check, file_hash, stated
from mtlscale.execution.plan import records_of
from mtlscale.records import Home, RunRecord, write_atomically
from mtlscale.records.contributed import EXPERIMENT, RECORDS, RESULTS, Provenance, in_lines, records_hash, redacted
from mtlscale.spec import RESULTS_VERSION, Experiment, UserError
from mtlscale.spec.files import named
from mtlscale.version import __version__

_OWN = ("tracking", "resources", "published")  # what says where and how it was run, and changes no result


def contribute(
    experiment: Experiment, settings: Mapping[str, Any], home: Home, folder: Path, *, by: str, note: str = ""
) -> Checked:
    """Write the results of an experiment into a new folder, whole or not at all. settings: what its file says, with the
    overrides it was run with.

    `UserError` where the folder is not empty, and for the first thing that is wrong with what would be in it: a run
    that is missing, say.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and not empty; name a new folder")
    records = records_of(experiment, home, epochs=False)
    if not records:
        raise UserError(f"no runs of {experiment.name} in {home.root}; run it first, or name its --home")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        made = Path(name, folder.name)
        made.mkdir()
        _write(made, experiment, settings, records, by, note)
        checked = check(made)
        if checked.problems:
            raise UserError(f"{experiment.name} cannot be contributed: {checked.problems[0]}")
        if folder.exists():
            folder.rmdir()
        made.replace(folder)
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
    distinct = {record.run_id: redacted(record, _here()) for record in records}.values()
    content = in_lines(distinct)
    write_atomically(folder / RECORDS, content)
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
    """What the file says but for where and how it was run; files go by their last part."""
    found: dict[str, Any] = json.loads(json.dumps({"name": experiment.name, **settings}, default=str))
    for key in _OWN:
        found.pop(key, None)
    for dataset in found["datasets"]:
        if isinstance(dataset, dict):
            dataset.pop("source", None)
    if experiment.plugins:
        found["plugins"] = [Path(plugin).name for plugin in experiment.plugins]
    for place in named(found):
        place.options[place.key] = PureWindowsPath(place.name).name  # which knows both slashes
    return found


def _here() -> list[str]:
    """Names of this machine and its user, so far as they say anything."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], os.environ.get("USER", "")}
    with suppress(KeyError, OSError):  # a user without a name
        names.add(getpass.getuser())
    return sorted(name for name in names if len(name) > 2)


def _versions(records: Collection[RunRecord]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {"mtlscale": {__version__}}
    for record in records:
        for library, version in record.versions.items():
            found.setdefault(library, set()).add(version)
    return {library: sorted(versions) for library, versions in found.items()}


def _fingerprints(experiment: Experiment, records: Sequence[RunRecord]) -> dict[str, str]:
    """Name of the prepared data -> the fingerprint of them that the last record has."""
    datasets = {dataset.label: dataset for dataset in experiment.datasets}
    return {
        datasets[record.dataset].prepared(record.seed): record.fingerprint.partition("+")[0]
        for record in records
        if record.dataset in datasets
    }
