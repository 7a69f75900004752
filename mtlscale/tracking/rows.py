"""The rows that an experiment opens on: one of each method on each data set, above the runs of its seeds.

What a row says of its runs comes from the leaderboard, which this package does not know: the driver hands it over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mtlscale.tracking.entries import Entry, knobs_of, milliseconds, row_name
from mtlscale.tracking.reader import pages

_MODEL = "mtlscale.model_run"
SEARCH = "search"  # the row above all trials
_OWN = (
    "seed",
    "dataset.split",
    "dataset",
    "method",
    "label",
)  # parameters in which the runs of a row differ, or labels


@dataclass(frozen=True)
class Row:
    """What the leaderboard says of a method on a data set. `settings`: the spec of its newest run; `planned`: seeds."""

    dataset: str
    method: str
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    finished: int
    failed: int
    planned: int
    best: str = ""  # run_id of the seed that is best on validation

    @property
    def status(self) -> str:
        if self.finished + self.failed < self.planned:
            return "RUNNING"
        return "FINISHED" if self.finished else "FAILED"


class Place(NamedTuple):
    """Where a run belongs: its labels and the settings that it shares with other seeds. None: among the trials."""

    dataset: str
    method: str
    params: Mapping[str, str] | None

    @classmethod
    def of(cls, dataset: str, method: str, spec: Mapping[str, Any]) -> Place:
        return cls.of_params(dataset, method, knobs_of(spec))

    @classmethod
    def of_params(cls, dataset: str, method: str, params: Mapping[str, str]) -> Place:
        """From what MLflow has of a run."""
        return cls(dataset, method, {key: value for key, value in params.items() if key not in _OWN})

    @property
    def key(self) -> str:
        """Labels and a hash of the settings."""
        if self.params is None:
            return json.dumps([SEARCH, self.dataset, self.method], ensure_ascii=False)
        settings = hashlib.sha256(json.dumps(sorted(self.params.items())).encode()).hexdigest()[:16]
        return json.dumps([self.dataset, self.method, settings], ensure_ascii=False)


@dataclass
class _Known:
    """A row that MLflow has."""

    mine: str
    status: str = "RUNNING"
    metrics: dict[str, float] = field(default_factory=dict)
    model: str = ""  # run_id of the run whose model MLflow has


class Rows:
    """Which MLflow run is which row of an experiment, and what is to be written so that all of them are there.

    Runs of the same label with other settings, of an earlier version of the file, have a row of their own.
    """

    def __init__(self, owner: str, about: Mapping[str, str]) -> None:
        self._owner, self._about = owner, about
        self._known: dict[str, _Known] = {}

    def load(self, client: Any, experiment_id: str) -> None:
        """Those that an earlier driver has made."""
        condition = f"tags.`mtlscale.owner` = '{self._owner}' and tags.`mtlscale.row` != ''"
        for run in pages(client, [experiment_id], condition):
            known = _Known(run.info.run_id, run.info.status, dict(run.data.metrics), run.data.tags.get(_MODEL, ""))
            self._known.setdefault(run.data.tags["mtlscale.row"], known)

    def above(self, place: Place) -> str:
        """MLflow's id of the row above runs there; `missing` has seen to it that there is one."""
        return self._known[place.key].mine

    def missing(self, places: Iterable[Place]) -> Iterator[list[Entry]]:
        """The rows of these places that are not there yet: each list is to be written, and told to `made`, before the
        next is asked for."""
        new = {place.key: place for place in places if place.key not in self._known}
        trials = any(place.params is None for place in new.values())
        if trials and SEARCH not in self._known:
            yield [self._entry(SEARCH, SEARCH, {"mtlscale.kind": "search"}, {})]
        if new:
            yield [self._labelled(place) for place in new.values()]

    def made(self, entry: Entry) -> None:
        self._known[entry.tags["mtlscale.row"]] = _Known(entry.mine)

    def changed(self, rows: Iterable[Row]) -> list[Entry]:
        """What these rows say and MLflow does not have; of rows without a run in MLflow nothing."""
        entries = []
        for row in rows:
            known = self._known.get(Place.of(row.dataset, row.method, row.settings).key)
            if known is None:
                continue
            step = row.finished + row.failed
            values = {**row.metrics, "seeds_finished": row.finished, "seeds_failed": row.failed}
            new = {key: float(value) for key, value in values.items() if known.metrics.get(key) != float(value)}
            if not new and known.status == row.status:
                continue
            ended = None if row.status == "RUNNING" else milliseconds()
            metrics = [(key, value, step) for key, value in new.items()]
            entry = Entry("", known.mine, status=row.status, ended=ended, metrics=metrics)
            if known.status != row.status:
                entry.params = {"method": row.method}  # there already: it says that the row is taken up again
            entries.append(entry)
            known.metrics |= new
            known.status = row.status
        return entries

    def without_model(self, rows: Iterable[Row]) -> list[Row]:
        """Those whose best run has no model in MLflow yet."""
        found = []
        for row in rows:
            known = self._known.get(Place.of(row.dataset, row.method, row.settings).key)
            if known is not None and row.best and known.model != row.best:
                found.append(row)
        return found

    def has_model(self, row: Row, uri: str) -> Entry:
        """That it has one now."""
        known = self._known[Place.of(row.dataset, row.method, row.settings).key]
        known.model = row.best
        ended = None if known.status == "RUNNING" else milliseconds()
        tags = {"mtlscale.model": uri, _MODEL: row.best}
        return Entry("", known.mine, status=known.status, ended=ended, tags=tags)

    def ended(self, status: str) -> list[Entry]:
        """Those that nothing more will be said of: a search has ended as the experiment did."""
        entries = []
        for known in self._known.values():
            if known.status == "RUNNING":
                known.status = status
                entries.append(Entry("", known.mine, status=status, ended=milliseconds()))
        return entries

    def _labelled(self, place: Place) -> Entry:
        name, trials = row_name(place.dataset, place.method), place.params is None
        tags = {"mtlscale.kind": "row", "mtlscale.dataset": place.dataset, "mtlscale.method": place.method}
        if trials:
            tags |= {"mtlscale.kind": "search", "mlflow.parentRunId": self._known[SEARCH].mine}
        plain = {"dataset": place.dataset, "method": place.method, "label": name}
        return self._entry(place.key, name, tags, {**(place.params or {}), **plain})

    def _entry(self, key: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> Entry:
        own = {"mlflow.runName": name, "mtlscale.owner": self._owner, "mtlscale.row": key}
        return Entry("", started=milliseconds(), tags={**own, **tags, **self._about}, params=dict(params))


Table = Callable[[], list[Row]]  # what the leaderboard says now
