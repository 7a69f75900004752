"""What the fronts of rows with several solutions cover; their other columns are those of the central solution."""

from __future__ import annotations

from functools import partial

import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family

_front = partial(
    Definition,
    better="higher",
    manual="What the [front](fronts.md#on-the-leaderboard) of a method with several solutions covers. Its other "
    "columns are those of the central one.",
    numbers="what a front covers, how far it reaches, the angle to its rays, and how many networks are on it",
)


@family(
    _front(
        key="hypervolume",
        title="front %",
        explain="hypervolume: the share of all possible results that some ray is better than",
        shown=220,
        stored=604,
        compact=40,
    ),
    _front(
        key="spread",
        title="spread %",
        explain="how far a front reaches: best less worst of a task, of its range, mean over tasks",
        detail=True,
        shown=221,
        stored=605,
    ),
    _front(
        key="off_ray",
        title="off ray °",
        better="lower",
        explain="angle between the losses and the ray that the preference asks for, mean over rays",
        shown=223,
        stored=606,
    ),
    _front(
        key="rays_found",
        title="rays",
        explain="networks on a front that no other of the same front is better than in all tasks",
        shown=222,
        stored=607,
    ),
)
def fronts(frame: Frame) -> pd.DataFrame:
    """Return what each run's front covers."""
    return pd.DataFrame() if frame.front is None else frame.front.of_runs(frame.runs)
