"""The rows that an experiment opens on: one of each method on each data set, above the runs of its seeds.

A row's values come from the leaderboard, which this package does not know: the driver passes them in.
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
_EXCLUDED_PARAMS = (
    "seed",
    "dataset.split",
    "dataset",
    "method",
    "label",
)  # parameters in which the runs of a row differ, or labels


@dataclass(frozen=True)
class Row:
    """Values of the leaderboard for a method on a data set.

    `settings` is the spec of its newest run, `planned` the number of its seeds.
    """

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


class RunKey(NamedTuple):
    """Position of a run: its labels and the settings that it shares with other seeds; `params` is None for trials."""

    dataset: str
    method: str
    params: Mapping[str, str] | None

    @classmethod
    def of(cls, dataset: str, method: str, spec: Mapping[str, Any]) -> RunKey:
        params = {key: value for key, value in knobs_of(spec).items() if key not in _EXCLUDED_PARAMS}
        return cls(dataset, method, params)

    @property
    def key(self) -> str:
        """The labels and a hash of the settings."""
        if self.params is None:
            return json.dumps([SEARCH, self.dataset, self.method], ensure_ascii=False)
        settings = hashlib.sha256(json.dumps(sorted(self.params.items())).encode()).hexdigest()[:16]
        return json.dumps([self.dataset, self.method, settings], ensure_ascii=False)


@dataclass
class _KnownRow:
    """Row that MLflow has."""

    mine: str
    status: str = "RUNNING"
    metrics: dict[str, float] = field(default_factory=dict)
    model: str = ""  # our run_id of the run whose model MLflow has


class SummaryRuns:
    """Map from the rows of an experiment to MLflow runs; it also makes the entries that complete the rows.

    Runs of the same label with other settings, of an earlier version of the file, have a row of their own.
    """

    def __init__(self, owner: str, about: Mapping[str, str]) -> None:
        self._owner, self._about = owner, about
        self._known_rows: dict[str, _KnownRow] = {}

    def load(self, client: Any, experiment_id: str) -> None:
        """Load the rows that an earlier driver has made."""
        condition = f"tags.`mtlscale.owner` = '{self._owner}' and tags.`mtlscale.row` != ''"
        for run in pages(client, [experiment_id], condition):
            stored_row = _KnownRow(
                run.info.run_id, run.info.status, dict(run.data.metrics), run.data.tags.get(_MODEL, "")
            )
            self._known_rows.setdefault(run.data.tags["mtlscale.row"], stored_row)

    def above(self, key: RunKey) -> str:
        """Return MLflow's id of the row above the runs of a position; `missing` has created it."""
        return self._known_rows[key.key].mine

    def missing(self, key: RunKey) -> Iterator[Entry]:
        """Yield the entries of the rows above a position that do not exist yet.

        Each must be written, and passed to `created`, before the next is requested.
        """
        if key.key in self._known_rows:
            return
        if key.params is None and SEARCH not in self._known_rows:
            yield self._entry(SEARCH, SEARCH, {"mtlscale.kind": "search"}, {})
        yield self._labelled(key)

    def created(self, entry: Entry) -> None:
        self._known_rows[entry.tags["mtlscale.row"]] = _KnownRow(entry.mine)

    def changed(self, rows: Iterable[Row]) -> list[Entry]:
        """Return the values of these rows that MLflow lacks; nothing for rows without a run in MLflow."""
        entries = []
        for row in rows:
            stored = self._known_rows.get(RunKey.of(row.dataset, row.method, row.settings).key)
            if stored is None:
                continue

            step = row.finished + row.failed
            values = {**row.metrics, "seeds_finished": row.finished, "seeds_failed": row.failed}
            new_values = {key: float(value) for key, value in values.items() if stored.metrics.get(key) != float(value)}
            if not new_values and stored.status == row.status:
                continue

            ended = None if row.status == "RUNNING" else milliseconds()
            metrics = [(key, value, step) for key, value in new_values.items()]
            entry = Entry("", stored.mine, status=row.status, ended=ended, metrics=metrics)
            if stored.status != row.status:
                entry.params = {"method": row.method}  # already stored; marks the row as resumed
            entries.append(entry)
            stored.metrics |= new_values
            stored.status = row.status
        return entries

    def without_model(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows whose best run has no model in MLflow yet."""
        lacking = []
        for row in rows:
            stored = self._known_rows.get(RunKey.of(row.dataset, row.method, row.settings).key)
            if stored is not None and row.best and stored.model != row.best:
                lacking.append(row)
        return lacking

    def has_model(self, row: Row, uri: str) -> Entry:
        """Note that the row's best run has a model now, and return the entry that says so."""
        stored = self._known_rows[RunKey.of(row.dataset, row.method, row.settings).key]
        stored.model = row.best
        ended = None if stored.status == "RUNNING" else milliseconds()
        tags = {"mtlscale.model": uri, _MODEL: row.best}
        return Entry("", stored.mine, status=stored.status, ended=ended, tags=tags)

    def ended(self, status: str) -> list[Entry]:
        """End all running rows, since nothing more will be written: a search ends as the experiment did."""
        entries = []
        for stored in self._known_rows.values():
            if stored.status == "RUNNING":
                stored.status = status
                entries.append(Entry("", stored.mine, status=status, ended=milliseconds()))
        return entries

    def _labelled(self, key: RunKey) -> Entry:
        name, is_search = row_name(key.dataset, key.method), key.params is None
        tags = {"mtlscale.kind": "row", "mtlscale.dataset": key.dataset, "mtlscale.method": key.method}
        if is_search:
            tags |= {"mtlscale.kind": "search", "mlflow.parentRunId": self._known_rows[SEARCH].mine}
        plain = {"dataset": key.dataset, "method": key.method, "label": name}
        return self._entry(key.key, name, tags, {**(key.params or {}), **plain})

    def _entry(self, key: str, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> Entry:
        row_tags = {"mlflow.runName": name, "mtlscale.owner": self._owner, "mtlscale.row": key}
        return Entry("", started=milliseconds(), tags={**row_tags, **tags, **self._about}, params=dict(params))


Table = Callable[[], list[Row]]  # returns the leaderboard's current rows
