"""What an experiment says over all its data sets together, where these make up a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report import capacity as sizes
from mtlscale.report import courses, learning, similarity
from mtlscale.report import settings as numbers
from mtlscale.report import trying as tries
from mtlscale.report.colors import Looks, page_looks
from mtlscale.report.facts import Facts
from mtlscale.report.frames import by_dataset, newest

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.leaderboard import Leaderboard


@dataclass(frozen=True)
class Study:
    """name: of its picture; sentences: what came out; draw, plot: the picture as a file and on the page."""

    name: str
    title: str
    sentences: tuple[str, ...]
    tables: tuple[Facts, ...]
    draw: Callable[[], Drawing]
    plot: Callable[[], Figure]

    def to_markdown(self) -> str:
        said = "".join(f"- {sentence}\n" for sentence in self.sentences)
        return f"## {self.title}\n\n{said}\n{''.join(table.to_markdown() for table in self.tables)}"


def studies(records: Sequence[RunRecord], board: Leaderboard) -> list[Study]:
    """Those that the data sets of these records make up."""
    runs, found, shown = newest(records), [], page_looks(records, board.tables.values())
    baseline = next((table.baseline for table in board.tables.values() if table.baseline), None)
    reference = next((table.reference for table in board.tables.values() if table.reference), None)
    if reference is not None and (pairs := similarity.pairs(runs, reference)):
        found.append(_similarity(runs, pairs, reference, shown))
    if baseline is not None and (of := sizes.capacity(runs, baseline)) is not None:
        found.append(_capacity(of, shown))
    found += [_learning(curves, board, shown) for curves in learning.learning_curves(runs, board.tables)]
    found += [_course(of, shown) for of in courses.courses(runs, board.tables)]
    found += [study for of in tries.trying(runs) for study in _trying(of, shown)]
    return [*found, *(_setting(of) for of in numbers.settings(runs, reference))]


def _similarity(
    records: Sequence[RunRecord], pairs: dict[str, list[similarity.Pair]], reference: str, shown: Looks
) -> Study:
    correlations = [(method, *row) for method, of in pairs.items() for row in similarity.correlation_rows(of)]
    what = (
        f"Of a method's covariance similarity with its gain over {reference}, over the pairs. In brackets the 95 % "
        "interval of drawing pairs with replacement; pairs share tasks, so that it is, if anything, too narrow."
    )
    return Study(
        "similarity",
        "Covariance similarity and improvement",
        tuple(similarity.sentence(method, reference, of) for method, of in pairs.items()),
        (
            _scores(records, pairs),
            Facts(
                "Correlation with the gain", what, ("method", "similarity", "Pearson", "Spearman"), tuple(correlations)
            ),
        ),
        partial(similarity.similarity_figure, pairs, reference, shown),
        partial(similarity.similarity_plot, pairs, reference, shown),
    )


def _scores(records: Sequence[RunRecord], pairs: dict[str, list[similarity.Pair]]) -> Facts:
    """A row for each pair: every method's score, and the similarities of those that turn something."""
    methods = list(dict.fromkeys(record.method for record in records))
    turning = {method: {pair.dataset: pair for pair in of} for method, of in pairs.items() if similarity.turned(of)}
    rows = []
    for dataset, runs in by_dataset(records).items():
        done = [run for run in runs if run.status == "finished"]
        means = {
            method: [abs(similarity.mean_score(run)) for run in done if run.method == method] for method in methods
        }
        if any(dataset in of for of in turning.values()):
            similar = [
                similarity.number(getattr(of[dataset], when)) if dataset in of else "–"
                for of in turning.values()
                for when in ("before", "after")
            ]
            shown = [f"{np.mean(values):.2f}" if values else "–" for values in means.values()]
            rows.append((dataset, *shown, *similar))
    header = ("pair", *methods, *(f"{method}: {when}" for method in turning for when in ("before", "after")))
    what = (
        "Main metric on test, mean over both tasks and the seeds, and the covariance similarity of the tasks' embedded "
        "training samples before and after they are turned."
    )
    return Facts("Pairs of tasks", what, header, tuple(rows))


def _capacity(of: sizes.Capacity, shown: Looks) -> Study:
    shared = [method for method in sizes.methods(of) if method != of.baseline]
    header = ("task", *(f"{method}: {what}" for method in sizes.methods(of) for what in (of.knob, of.metric)))
    what = f"The size with the best {of.metric} on validation, and what it reaches on test, mean over seeds."
    return Study(
        "capacity",
        "Capacity",
        tuple(sizes.sentence(of, method) for method in shared),
        (Facts("Best sizes", what, header, tuple(sizes.capacity_rows(of))),),
        partial(sizes.capacity_figure, of, shown),
        partial(sizes.capacity_plot, of, shown),
    )


def _course(of: courses.Course, shown: Looks) -> Study:
    return Study(
        of.file,
        of.title,
        tuple(courses.sentences(of)),
        (courses.course_table(of),),
        partial(courses.course_figure, of, shown),
        partial(courses.course_plot, of, shown),
    )


def _learning(of: learning.LearningCurves, board: Leaderboard, shown: Looks) -> Study:
    return Study(
        of.file,
        of.title,
        tuple(learning.sentences(of, board.tables)),
        learning.learning_tables(of),
        partial(learning.learning_figure, of, shown),
        partial(learning.learning_plot, of, shown),
    )


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


def _setting(of: numbers.Setting) -> Study:
    return Study(
        of.file,
        of.title,
        tuple(numbers.sentences(of)),
        (numbers.setting_table(of),),
        partial(numbers.setting_figure, of),
        partial(numbers.setting_plot, of),
    )
