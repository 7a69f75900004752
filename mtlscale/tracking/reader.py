"""Records read back from an MLflow alone: what its runs keep as `record.json`."""

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

from mtlscale.records import RunRecord
from mtlscale.spec import Experiment, UserError
from mtlscale.tracking.entries import RECORD, SETTINGS
from mtlscale.tracking.service import check_uri, client_of, database_file

RUNS_PER_PAGE = 1000
_AT_ONCE = 16  # files asked of a server


def _say(text: str) -> None:
    logging.getLogger("mtlscale.tracking").warning(text)


def experiments(uri: str, *, tell: Callable[[str], None] = _say) -> list[str]:
    """Names of the experiments that mtlscale has written there, oldest first. `UserError` where no MLflow is."""
    with _reading(uri, tell) as client:
        return [name for name, _ in _ours(client).values()]


def read_records(
    uri: str,
    experiment: str | None = None,
    *,
    dataset: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    tell: Callable[[str], None] = _say,
) -> list[RunRecord]:
    """Records of the runs that have ended, in the order of their experiment's plan: of one experiment, or of all.

    The names are labels, as rows have them. `UserError` within ten seconds where no MLflow answers, and for an
    experiment that is not there or was not written by mtlscale. `tell` hears what was left out.
    """
    with _reading(uri, tell) as client:
        chosen = _chosen(client, uri, experiment, tell)
        conditions = [f"tags.`mtlscale.{key}` = {_quoted(value)}" for key, value in
                      (("kind", "run"), ("dataset", dataset), ("method", method)) if value is not None]  # fmt: skip
        if seed is not None:
            conditions.append(f"params.seed = '{seed}'")
        runs = [
            run
            for run in pages(client, list(chosen), " and ".join(conditions))
            if "mtlscale.status" in run.data.tags and run.info.status in ("FINISHED", "FAILED")
        ]
        texts = _texts([run.info for run in runs], RECORD, uri)
        found: dict[str, list[RunRecord]] = {place: [] for place in chosen}
        lost = 0
        for run, text in zip(runs, texts, strict=True):
            try:
                record = RunRecord.model_validate_json(text or b"")
            except ValueError:
                lost += 1
                continue
            found[run.info.experiment_id].append(_labelled(record, chosen[run.info.experiment_id][0], run.data.tags))
        if lost:
            tell(f"{uri}: {lost} run{'s' if lost > 1 else ''} without a readable {RECORD} left out")
        return [
            record
            for place, records in found.items()
            for record in _as_planned(records, read_settings(client, chosen[place][1], uri))
        ]


def read_experiment(uri: str, name: str, *, tell: Callable[[str], None] = _say) -> Experiment | None:
    """The experiment as it was run, for its baseline, reference and choice of metrics; None where this version cannot
    read it."""
    with _reading(uri, tell) as client:
        ((_, parent),) = _chosen(client, uri, name, tell).values()
        try:
            return Experiment.model_validate(read_settings(client, parent, uri))
        except ValueError:
            return None


def read_settings(client: Any, parent: str, uri: str) -> dict[str, Any]:
    """The experiment's file as it was written last; empty where there is none."""
    (text,) = _texts([client.get_run(parent).info], SETTINGS, uri)
    with contextlib.suppress(ValueError):
        settings = json.loads(text or b"")
        if isinstance(settings, dict):
            return settings
    return {}


def pages(client: Any, places: list[str], condition: str) -> Iterator[Any]:
    """All runs of these experiments that the condition holds for, page by page, oldest first."""
    token = None
    while places:
        page = client.search_runs(
            places,
            condition,
            max_results=RUNS_PER_PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        yield from page
        token = page.token
        if not token:
            break


@contextlib.contextmanager
def _reading(uri: str, tell: Callable[[str], None]) -> Iterator[Any]:
    """A client; what goes wrong in MLflow is the user's to mend, in a line."""
    if (word := check_uri(uri)) is not None:
        tell(word)
    if (file := database_file(uri)) is not None and not file.is_file():
        raise UserError(f"there is no MLflow database {file}; name one that is there")
    client = None
    try:
        client = client_of(uri)
        from mlflow.exceptions import MlflowException

        yield client
    except OSError as error:  # requests' own are among them
        raise UserError(f"MLflow at {uri} cannot be read: {str(error).splitlines()[0][:200]}") from None
    except Exception as error:
        if client is None or isinstance(error, MlflowException):
            raise UserError(f"MLflow at {uri} cannot be read: {_first(error)}") from None
        raise


def _first(error: Exception) -> str:
    text = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return f"{text}; `mlflow db upgrade` mends it" if "schema" in text else text


def _ours(client: Any) -> dict[str, tuple[str, str]]:
    """MLflow's id of each experiment of ours -> its name, and MLflow's id of its own run."""
    known = {found.experiment_id: found.name for found in _all(client)}
    found = pages(client, list(known), "tags.`mtlscale.kind` = 'experiment'")
    parents = {run.info.experiment_id: run.info.run_id for run in found}
    return {place: (known[place], parents[place]) for place in sorted(parents, key=_number)}


def _number(place: str) -> tuple[int, str]:
    return (int(place), "") if place.isdigit() else (0, place)


def _all(client: Any) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_experiments(page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _chosen(client: Any, uri: str, name: str | None, tell: Callable[[str], None]) -> dict[str, tuple[str, str]]:
    """The experiments to read; those that are not ours are named."""
    ours = _ours(client)
    if name is not None:
        one = {place: known for place, known in ours.items() if known[0] == name}
        if one:
            return one
        there = client.get_experiment_by_name(name) is not None
        what = (
            f"experiment {name!r} at {uri} was not written by mtlscale" if there else f"no experiment {name!r} at {uri}"
        )
        names = ", ".join(known[0] for known in ours.values())
        raise UserError(f"{what}; " + (f"choose one of: {names}" if names else "there are none of mtlscale's"))
    others = [found.name for found in _all(client) if found.experiment_id not in ours and found.experiment_id != "0"]
    if others:
        what = "1 experiment" if len(others) == 1 else f"{len(others)} experiments"
        shown = ", ".join(sorted(others)[:5]) + (", …" if len(others) > 5 else "")
        tell(f"{uri}: {what} not written by mtlscale left out ({shown})")
    return ours


def _quoted(value: str) -> str:
    """As a string of MLflow's filters, which know no escape."""
    if "'" in value and '"' in value:
        raise UserError(f"MLflow cannot search for {value!r}: it has both kinds of quotes")
    return f'"{value}"' if "'" in value else f"'{value}'"


def _labelled(record: RunRecord, experiment: str, tags: dict[str, str]) -> RunRecord:
    """The labels that the run has here: its folder may have been filled by another experiment."""
    labels = {"experiment": experiment, "dataset": tags["mtlscale.dataset"], "method": tags["mtlscale.method"]}
    return record.model_copy(update=labels)


def _as_planned(records: Sequence[RunRecord], settings: dict[str, Any]) -> list[RunRecord]:
    """In the order of the plan, so that the tables are those of the ledger; what it does not name comes last."""

    def places(part: str) -> dict[str, int]:
        labels = (one.get("label") or one.get("name") for one in settings.get(part, ()) if isinstance(one, dict))
        return {label: place for place, label in enumerate(labels) if label is not None}

    datasets, methods = places("datasets"), places("methods")
    seeds = {seed: place for place, seed in enumerate(settings.get("seeds", ()))}

    def place(record: RunRecord) -> tuple[float, float, float, str]:
        last = float("inf")
        at = datasets.get(record.dataset, last), methods.get(record.method, last), seeds.get(record.seed, last)
        return (*at, record.finished)

    return sorted(records, key=place)


def _texts(runs: Sequence[Any], name: str, uri: str) -> list[bytes | None]:
    """A file of each of these runs, None where a run has none: read where it lies, else asked for many at once."""
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
    """The folder of a run's files, where it is on this machine; beside its database, where a home was moved."""
    parts = urlsplit(artifacts)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(unquote(parts.path))
    if folder.is_dir() or database is None or "mlartifacts" not in folder.parts:
        return folder
    behind = folder.parts[len(folder.parts) - folder.parts[::-1].index("mlartifacts") :]
    return database.parent.joinpath("mlartifacts", *behind)


def _download(artifacts: str, name: str, target: Path, uri: str) -> bytes | None:
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    target.mkdir(parents=True, exist_ok=True)
    repository = get_artifact_repository(artifacts, tracking_uri=uri)
    try:
        repository._download_file(name, str(target / name))  # what is public asks first whether it is a folder
    except (MlflowException, OSError) as error:
        if "404" in str(error) or "RESOURCE_DOES_NOT_EXIST" in str(error) or isinstance(error, FileNotFoundError):
            return None
        raise
    return (target / name).read_bytes()
