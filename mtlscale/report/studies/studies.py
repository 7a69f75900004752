"""Studies: results of an experiment over all its data sets together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.config import extensions
from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import LineStyles, page_looks
from mtlscale.report.formats.markdown import markdown_section
from mtlscale.report.formats.sheet import Sheet, text_sheet
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.studies import capacity as sizes
from mtlscale.report.studies import data_settings as courses
from mtlscale.report.studies import learning, similarity
from mtlscale.report.studies import method_settings as numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.tables.leaderboard import Leaderboard


@dataclass(frozen=True)
class Study:
    """The conclusions, tables and charts of a study.

    Attributes:
        name: The name of its chart's file.
        sentences: The conclusions.
        draw: The function that draws the chart as a file.
        plot: The function that draws the chart on the page.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    tables: tuple[Sheet, ...]
    draw: Callable[[], Drawing]
    plot: Callable[[], Figure]

    def to_markdown(self) -> str:
        bullets = "".join(f"- {sentence}\n" for sentence in self.sentences)
        tables = "".join(f"{markdown_section(table)}\n" for table in self.tables)
        return f"## {self.title}\n\n{bullets}\n{tables}"


def studies(records: Sequence[RunRecord], board: Leaderboard) -> list[Study]:
    """Return the studies that the data sets of these records make up."""
    runs, study_list, shown = newest(records), [], page_looks(records, board.tables.values())

    baseline = next((table.baseline for table in board.tables.values() if table.baseline), None)
    reference = next((table.reference for table in board.tables.values() if table.reference), None)

    if reference is not None and (pairs := similarity.pairs(runs, reference)):
        study_list.append(_similarity(runs, pairs, reference, shown))
    if baseline is not None and (result := sizes.capacity(runs, baseline)) is not None:
        study_list.append(_capacity(result, shown))

    study_list += [_learning(curves, board, shown) for curves in learning.learning_curves(runs, board.tables)]
    study_list += [_course(result, shown) for result in courses.courses(runs, board.tables)]
    study_list += [study for more in extensions("studies") for study in more(runs, shown)]

    return [*study_list, *(_setting(result) for result in numbers.settings(runs, reference))]


def _similarity(
    records: Sequence[RunRecord], pairs: dict[str, list[similarity.Pair]], reference: str, styles: LineStyles
) -> Study:
    correlations = [
        (method, *row) for method, method_pairs in pairs.items() for row in similarity.correlation_rows(method_pairs)
    ]
    explanation = (
        f"Of a method's covariance similarity with its gain over {reference}, over the pairs. In brackets the 95 % "
        "interval of drawing pairs with replacement; pairs share tasks, so that it is, if anything, too narrow."
    )

    return Study(
        "similarity",
        "Covariance similarity and improvement",
        tuple(similarity.sentence(method, reference, method_pairs) for method, method_pairs in pairs.items()),
        (
            _scores(records, pairs),
            text_sheet(
                "Correlation with the gain",
                explanation,
                ("method", "similarity", "Pearson", "Spearman"),
                tuple(correlations),
            ),
        ),
        partial(similarity.similarity_figure, pairs, reference, styles),
        partial(similarity.similarity_plot, pairs, reference, styles),
    )


def _scores(records: Sequence[RunRecord], pairs: dict[str, list[similarity.Pair]]) -> Sheet:
    """Return a row for each pair: every method's score, and the similarities of methods that turn embeddings."""
    methods = list(dict.fromkeys(record.method for record in records))
    turning = {
        method: {pair.dataset: pair for pair in method_pairs}
        for method, method_pairs in pairs.items()
        if similarity.turned(method_pairs)
    }

    rows = []
    for dataset, runs in by_dataset(records).items():
        finished = [run for run in runs if run.status == "finished"]
        means = {
            method: [abs(similarity.mean_score(run)) for run in finished if run.method == method] for method in methods
        }

        if any(dataset in method_pairs for method_pairs in turning.values()):
            similar = [
                similarity.number(getattr(method_pairs[dataset], when)) if dataset in method_pairs else "–"
                for method_pairs in turning.values()
                for when in ("before", "after")
            ]
            mean_texts = [f"{np.mean(values):.2f}" if values else "–" for values in means.values()]
            rows.append((dataset, *mean_texts, *similar))

    header = ("pair", *methods, *(f"{method}: {when}" for method in turning for when in ("before", "after")))
    explanation = (
        "Main metric on test, mean over both tasks and the seeds, and the covariance similarity of the tasks' embedded "
        "training samples before and after they are turned."
    )
    return text_sheet("Pairs of tasks", explanation, header, tuple(rows))


def _capacity(capacity: sizes.Capacity, styles: LineStyles) -> Study:
    shared = [method for method in sizes.methods(capacity) if method != capacity.baseline]
    header = (
        "task",
        *(f"{method}: {caption}" for method in sizes.methods(capacity) for caption in (capacity.knob, capacity.metric)),
    )
    caption = f"The size with the best {capacity.metric} on validation, and what it reaches on test, mean over seeds."
    return Study(
        "capacity",
        "Capacity",
        tuple(sizes.sentence(capacity, method) for method in shared),
        (text_sheet("Best sizes", caption, header, tuple(sizes.capacity_rows(capacity))),),
        partial(sizes.capacity_figure, capacity, styles),
        partial(sizes.capacity_plot, capacity, styles),
    )


def _course(course: courses.Course, styles: LineStyles) -> Study:
    return Study(
        course.file,
        course.title,
        tuple(courses.sentences(course)),
        (courses.course_table(course),),
        partial(courses.course_figure, course, styles),
        partial(courses.course_plot, course, styles),
    )


def _learning(learning_curves: learning.LearningCurves, board: Leaderboard, styles: LineStyles) -> Study:
    return Study(
        learning_curves.file,
        learning_curves.title,
        tuple(learning.sentences(learning_curves, board.tables)),
        learning.learning_tables(learning_curves),
        partial(learning.learning_figure, learning_curves, styles),
        partial(learning.learning_plot, learning_curves, styles),
    )


def _setting(setting: numbers.Setting) -> Study:
    return Study(
        setting.file,
        setting.title,
        tuple(numbers.sentences(setting)),
        (numbers.setting_table(setting),),
        partial(numbers.setting_figure, setting),
        partial(numbers.setting_plot, setting),
    )
