"""Calls of MLflow's client, with names and texts that it and its databases take."""

from __future__ import annotations

import hashlib
import posixpath
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mtlscale.tracking.values import Metric

_NAME_TAG = "mtlscale.name."  # before a mapped name, in the key of the tag that has the true one
_LONGEST_KEY, _LONGEST_VALUE = 200, 5000  # characters; MLflow's limits are a little above
_TAKEN = re.compile(r"[/\w.\- :]+")  # what MLflow takes as a name
_MAPPED = re.compile(r".*_[0-9a-f]{12}", re.DOTALL)


def create_run(client: Any, experiment_id: str, tags: Mapping[str, str], started: int) -> str:
    """Create a run that has begun at a time in milliseconds; return MLflow's id of it."""
    return str(client.create_run(experiment_id, start_time=started, tags=_sound(tags) | true_names(tags)).info.run_id)


def log(
    client: Any,
    mine: str,
    metrics: Sequence[Metric] = (),
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Log to MLflow's run `mine`; its client makes several calls of what is too much for one."""
    from mlflow import entities

    params, tags, timestamp = params or {}, tags or {}, int(time.time() * 1000)
    tags = _sound(tags) | true_names({*tags, *params, *(key for key, _, _ in metrics)})
    client.log_batch(
        mine,
        [entities.Metric(sound_name(key), value, timestamp, step) for key, value, step in metrics],
        [entities.Param(key, value) for key, value in _sound(params).items()],
        [entities.RunTag(key, value) for key, value in tags.items()],
    )


def set_status(client: Any, mine: str, status: str, ended: int | None = None) -> None:
    """Set a run's status, and its end, now or at a time in milliseconds, unless it is RUNNING."""
    if status == "RUNNING":
        client.update_run(mine, status)
    else:
        client.set_terminated(mine, status, ended)


def sound_name(name: str) -> str:
    """Return the name that MLflow gets of a parameter, metric or tag: the same, if MLflow takes it.

    Another one keeps what MLflow takes of it and gets a hash, so that unlike names stay unlike.
    """
    is_path = posixpath.normpath(name) != name or name.startswith(("..", "/"))
    if _TAKEN.fullmatch(name) and len(name) <= _LONGEST_KEY and not is_path and not _MAPPED.fullmatch(name):
        return name
    readable = re.sub(r"[^\w.\- :]", "_", name).strip(" .")[: _LONGEST_KEY - 13]
    return f"{readable}_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]}"


def sound_value(text: str, longest: int = _LONGEST_VALUE) -> str:
    """Return a text that every database of MLflow takes: of bounded length, without NUL and halves of characters."""
    return text[:longest].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def true_names(names: Iterable[str]) -> dict[str, str]:
    """Return the tags that keep the true names of those that MLflow does not take."""
    return {f"{_NAME_TAG}{sound}": sound_value(name) for name in sorted(names) if (sound := sound_name(name)) != name}


def _sound(texts: Mapping[str, str]) -> dict[str, str]:
    return {sound_name(name): sound_value(text) for name, text in texts.items()}
