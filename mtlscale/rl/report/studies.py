"""Studies of runs in environments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.studies.studies import Study
from mtlscale.rl.report import sample_efficiency as tries


def sample_efficiency_studies(records: Sequence[RunRecord], styles: LineStyles) -> Iterator[Study]:
    """Yield the studies of success against environment steps and seconds."""
    for result in tries.sample_efficiencies(records):
        yield from _efficiency_study(result, styles)


def _efficiency_study(efficiency: tries.SampleEfficiency, styles: LineStyles) -> list[Study]:
    means, tasks = tries.panels(efficiency), tries.task_panels(efficiency)
    first = Study(
        efficiency.file,
        efficiency.title,
        tuple(tries.sentences(efficiency)),
        (tries.cost_table(efficiency),),
        partial(tries.sample_efficiency_figure, means, styles),
        partial(tries.sample_efficiency_plot, means, styles),
    )

    if len(efficiency.tasks) == 1:
        return [first]
    return [
        first,
        Study(
            f"{efficiency.file}_tasks",
            efficiency.task_title,
            tuple(tries.task_sentences(efficiency)),
            (),
            partial(tries.sample_efficiency_figure, tasks, styles),
            partial(tries.sample_efficiency_plot, tasks, styles),
        ),
    ]
