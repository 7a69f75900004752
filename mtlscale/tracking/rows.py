"""The rows that an experiment opens on: one of each method on each data set, above the runs of its seeds.

A row's values come from the leaderboard, which this package does not know: the driver passes them in. Runs of the same
label with other settings, of an earlier version of the file, have a row of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtlscale.tracking.fields import knobs_of

# Parameters in which the runs of a row differ, or labels.
_EXCLUDED_PARAMS = ("seed", "dataset.split", "dataset", "method", "label")


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


def shared_params(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that the runs of a row share, by their dotted names."""
    return {key: value for key, value in knobs_of(spec).items() if key not in _EXCLUDED_PARAMS}


def row_key(dataset: str, method: str, params: Mapping[str, str]) -> str:
    """Return the tag that a row is found by: its labels and a hash of its settings."""
    settings = hashlib.sha256(json.dumps(sorted(params.items())).encode()).hexdigest()[:16]
    return json.dumps([dataset, method, settings], ensure_ascii=False)
