"""Records read back from MLflow alone, whose runs keep them as `record.json`."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mtlscale.config import Experiment, UserError, without_secrets
from mtlscale.records import EPOCHS, Epoch, RunRecord
from mtlscale.records.record import parsed_epochs
from mtlscale.tracking.fields import RECORD, SETTINGS
from mtlscale.tracking.service import check_uri, client_of, database_file, in_one_line

RUNS_PER_PAGE = 1000
_AT_ONCE = 16  # files requested from a server at the same time


def _warn(text: str) -> None:
    logging.getLogger("mtlscale.tracking").warning(text)


def experiments(uri: str, *, tell: Callable[[str], None] = _warn) -> list[str]:
    """Return the names of the experiments that mtlscale has written there, oldest first.

    Raises:
        UserError: There is no MLflow.
    """
    with _reading(uri, tell) as client:
        return [name for name, _ in _ours(client).values()]


def read_records(
    uri: str,
    experiment: str | None = None,
    *,
    dataset: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    tell: Callable[[str], None] = _warn,
) -> list[RunRecord]:
    """Return the records of runs that have ended, in the order of their experiment's plan.

    Args:
        experiment: The experiment to read; None: all.
        dataset: Restrict to this label of a data set, as rows have it.
        method: Restrict to this label of a method, as rows have it.
        seed: Restrict to this seed.
        tell: Receives a message on what is left out.

    Raises:
        UserError: No MLflow answers within ten seconds, or the experiment does not exist or is not mtlscale's.
    """
    with _reading(uri, tell) as client:
        chosen = _select_experiments(client, uri, experiment, tell)
        conditions = [f"tags.`mtlscale.{key}` = {_quoted(value)}" for key, value in
                      (("kind", "run"), ("dataset", dataset), ("method", method)) if value is not None]  # fmt: skip
        if seed is not None:
            conditions.append(f"params.seed = '{seed}'")

        runs = [
            run
            for run in pages(client, list(chosen), " and ".join(conditions))
            if "mtlscale.status" in run.data.tags and run.info.status in ("FINISHED", "FAILED")
        ]
        texts = _artifact_texts([run.info for run in runs], RECORD, uri)

        records_by_experiment: dict[str, list[RunRecord]] = {experiment_id: [] for experiment_id in chosen}
        unreadable = 0
        for run, text in zip(runs, texts, strict=True):
            try:
                record = RunRecord.model_validate_json(text or b"")
            except ValueError:
                unreadable += 1
                continue
            records_by_experiment[run.info.experiment_id].append(
                _labelled(record, chosen[run.info.experiment_id][0], run.data.tags)
            )

        if unreadable:
            tell(
                f"{without_secrets(uri)}: {unreadable} run{'s' if unreadable > 1 else ''} without a readable "
                f"{RECORD} left out"
            )

        return [
            record
            for experiment_id, records in records_by_experiment.items()
            for record in _as_planned(records, read_settings(client, chosen[experiment_id][1], uri))
        ]


def epoch_reader(uri: str, experiment: str) -> Callable[[str], list[Epoch]]:
    """Return the reader of the epochs of an experiment's runs, by our run id, from the files that MLflow keeps."""

    def read(run_id: str) -> list[Epoch]:
        with _reading(uri, _warn) as client:
            places = list(_select_experiments(client, uri, experiment, _warn))
            runs = list(pages(client, places, f"tags.`mtlscale.run_id` = '{run_id}'"))
            texts = _artifact_texts([run.info for run in runs], EPOCHS, uri)
            return parsed_epochs(next(filter(None, texts), b"").splitlines())

    return read


def read_experiment(uri: str, name: str, *, tell: Callable[[str], None] = _warn) -> Experiment | None:
    """Return the experiment as it was run, for its baseline, reference and choice of metrics.

    It is None if this version cannot read it.
    """
    with _reading(uri, tell) as client:
        ((_, parent),) = _select_experiments(client, uri, name, tell).values()
        try:
            return Experiment.model_validate(read_settings(client, parent, uri))
        except ValueError:
            return None


def read_settings(client: Any, parent: str, uri: str) -> dict[str, Any]:
    """Return the experiment's file as it was written last; empty if there is none."""
    (text,) = _artifact_texts([client.get_run(parent).info], SETTINGS, uri)
    with contextlib.suppress(ValueError):
        settings = json.loads(text or b"")
        if isinstance(settings, dict):
            return settings
    return {}


def pages(client: Any, places: list[str], condition: str, *, deleted: bool = False) -> Iterator[Any]:
    """Yield all runs of these experiments that meet the condition, page by page, oldest first.

    Args:
        deleted: Whether to yield deleted ones, too.
    """
    from mlflow.entities import ViewType

    view, order = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY, ["attributes.start_time ASC"]
    if places:
        yield from _paged(lambda token: client.search_runs(places, condition, view, RUNS_PER_PAGE, order, token))


def _paged(search: Callable[[str | None], Any]) -> Iterator[Any]:
    token = None
    while True:
        page = search(token)
        yield from page
        token = page.token
        if not token:
            return


@contextlib.contextmanager
def _reading(uri: str, tell: Callable[[str], None]) -> Iterator[Any]:
    """Open a client; errors of MLflow become a `UserError` of one line."""
    if (remark := check_uri(uri)) is not None:
        tell(remark)
    if (file := database_file(uri)) is not None and not file.is_file():
        raise UserError(f"there is no MLflow database {file}; name one that is there")

    with in_one_line(uri):
        yield client_of(uri)


def _ours(client: Any) -> dict[str, tuple[str, str]]:
    """Return MLflow's id of each of our experiments -> its name, and MLflow's id of its report run."""
    names = {experiment.experiment_id: experiment.name for experiment in _all_experiments(client)}
    reports = {
        run.info.experiment_id: run.info.run_id
        for run in pages(client, list(names), "tags.`mtlscale.kind` = 'experiment'")
    }
    return {key: (names[key], reports[key]) for key in sorted(reports, key=_number)}


def _number(source: str) -> tuple[int, str]:
    return (int(source), "") if source.isdigit() else (0, source)


def _all_experiments(client: Any) -> Iterator[Any]:
    return _paged(lambda token: client.search_experiments(page_token=token))


def _select_experiments(
    client: Any, uri: str, name: str | None, tell: Callable[[str], None]
) -> dict[str, tuple[str, str]]:
    """Return the experiments to read, and tell the names of those that are not ours."""
    ours = _ours(client)
    if name is not None:
        chosen = {key: name_and_report for key, name_and_report in ours.items() if name_and_report[0] == name}
        if chosen:
            return chosen
        subject = (
            f"no experiment {name!r} at {uri}"
            if client.get_experiment_by_name(name) is None
            else f"experiment {name!r} at {uri} was not written by mtlscale"
        )
        names = ", ".join(own_name for own_name, _ in ours.values())
        raise UserError(f"{subject}; " + (f"choose one of: {names}" if names else "there are none of mtlscale's"))

    foreign_names = sorted(
        foreign.name for foreign in _all_experiments(client) if foreign.experiment_id not in {*ours, "0"}
    )
    if foreign_names:
        subject = "1 experiment" if len(foreign_names) == 1 else f"{len(foreign_names)} experiments"
        shown_names = ", ".join(foreign_names[:5]) + (", …" if len(foreign_names) > 5 else "")
        tell(f"{without_secrets(uri)}: {subject} not written by mtlscale left out ({shown_names})")
    return ours


def _quoted(value: str) -> str:
    """Quote a string for MLflow's filters, which know no escape."""
    if "'" in value and '"' in value:
        raise UserError(f"MLflow cannot search for {value!r}: it has both kinds of quotes")
    return f'"{value}"' if "'" in value else f"'{value}'"


def _labelled(record: RunRecord, experiment: str, tags: dict[str, str]) -> RunRecord:
    """Return the record with the labels that the run has here: another experiment may have filled its folder."""
    labels = {"experiment": experiment, "dataset": tags["mtlscale.dataset"], "method": tags["mtlscale.method"]}
    return record.model_copy(update=labels)


def _as_planned(records: Sequence[RunRecord], settings: dict[str, Any]) -> list[RunRecord]:
    """Sort records by the plan, so that tables equal those of the ledger; unplanned records come last."""

    def places(part: str) -> dict[str, int]:
        labels = (
            entry.get("label") or entry.get("name") for entry in settings.get(part, ()) if isinstance(entry, dict)
        )
        return {label: index for index, label in enumerate(labels) if label is not None}

    datasets, methods = places("datasets"), places("methods")
    seeds = {seed: index for index, seed in enumerate(settings.get("seeds", ()))}

    def place(record: RunRecord) -> tuple[float, float, float, str]:
        last = float("inf")
        position_in_plan = (
            datasets.get(record.dataset, last),
            methods.get(record.method, last),
            seeds.get(record.seed, last),
        )
        return (*position_in_plan, record.finished)

    return sorted(records, key=place)


def _artifact_texts(runs: Sequence[Any], name: str, uri: str) -> list[bytes | None]:
    """Return a file of each of these runs, None for a run that has none; remote files are read in parallel."""
    database = database_file(uri)

    def text(info: Any, folder: Path) -> bytes | None:
        if (local := _local(info.artifact_uri, database)) is not None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return (local / name).read_bytes()
            return None
        return _download(info.artifact_uri, name, folder / info.run_id, uri)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda info: text(info, Path(folder)), runs))


def _local(artifacts: str, database: Path | None) -> Path | None:
    """Return the folder of a run's files on this machine; beside its database if a home was moved."""
    parts = urlsplit(artifacts)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(unquote(parts.path))
    if folder.is_dir() or database is None or "mlartifacts" not in folder.parts:
        return folder
    path_below = folder.parts[len(folder.parts) - folder.parts[::-1].index("mlartifacts") :]
    return database.parent.joinpath("mlartifacts", *path_below)


def _download(artifacts: str, name: str, target: Path, uri: str) -> bytes | None:
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    target.mkdir(parents=True, exist_ok=True)
    repository = get_artifact_repository(artifacts, tracking_uri=uri)
    try:
        repository._download_file(name, str(target / name))  # the public method asks first whether it is a folder
    except (MlflowException, OSError) as error:
        if "404" in str(error) or "RESOURCE_DOES_NOT_EXIST" in str(error) or isinstance(error, FileNotFoundError):
            return None
        raise
    return (target / name).read_bytes()
