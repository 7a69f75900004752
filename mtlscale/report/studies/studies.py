"""All studies of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mtlscale.config import extensions
from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import page_looks
from mtlscale.report.stats.frames import newest
from mtlscale.report.studies.capacity import capacity, capacity_study
from mtlscale.report.studies.data_settings import courses
from mtlscale.report.studies.learning import learning_curves
from mtlscale.report.studies.method_settings import settings
from mtlscale.report.studies.similarity import pairs
from mtlscale.report.studies.similarity_study import similarity_study
from mtlscale.report.studies.study import Study

if TYPE_CHECKING:
    from mtlscale.report.leaderboard import Leaderboard


def studies(records: Sequence[RunRecord], board: Leaderboard) -> list[Study]:
    """Return the studies that the data sets of these records make up."""
    runs, shown = newest(records), page_looks(newest(records), board.tables.values())
    baseline = next((table.baseline for table in board.tables.values() if table.baseline), None)
    reference = next((table.reference for table in board.tables.values() if table.reference), None)

    found: list[Study] = []
    if reference is not None and (pairs_by_method := pairs(runs, reference)):
        found.append(similarity_study(runs, pairs_by_method, reference, shown))
    if baseline is not None and (sizes := capacity(runs, baseline)) is not None:
        found.append(capacity_study(sizes, shown))

    found += [curves.study(shown) for curves in learning_curves(runs, board.tables)]
    found += [course.study(shown) for course in courses(runs, board.tables)]
    found += [study for more in extensions("studies") for study in more(runs, shown)]
    return [*found, *(setting.study({}) for setting in settings(runs, reference))]
