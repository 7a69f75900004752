"""Studies of runs in environments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import Looks
from mtlscale.report.studies.studies import Study
from mtlscale.rl.report import sample_efficiency as tries


def sample_efficiency_studies(records: Sequence[RunRecord], shown: Looks) -> Iterator[Study]:
    """Yield the studies of success against environment steps and seconds."""
    for result in tries.trying(records):
        yield from _trying(result, shown)


def _trying(of: tries.Trying, shown: Looks) -> list[Study]:
    means, tasks = tries.panels(of), tries.task_panels(of)
    first = Study(
        of.file,
        of.title,
        tuple(tries.sentences(of)),
        (tries.cost_table(of),),
        partial(tries.trying_figure, means, shown),
        partial(tries.trying_plot, means, shown),
    )

    if len(of.tasks) == 1:
        return [first]
    return [
        first,
        Study(
            f"{of.file}_tasks",
            of.task_title,
            tuple(tries.task_sentences(of)),
            (),
            partial(tries.trying_figure, tasks, shown),
            partial(tries.trying_plot, tasks, shown),
        ),
    ]
