"""Sensitivity to a number in a method's settings, such as λ or the batch: scores of otherwise equal methods."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import counted, file_name
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sensitivity import FEWEST, Sensitivity, frame, is_number, spans, value_table
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.stats.ties import tied

_OF_METHODS = ("objective", "balancer", "architecture", "encoder", "training")
_LOG_AXIS_RATIO = 8.0  # largest over smallest value from which an axis is logarithmic
_NO_SETTINGS = ("results_version", "head", "seed")


@section("method_settings", order=70, formats=(REPORT, HTML))
def method_settings(view: View) -> Iterator[ReportSection]:
    """Yield a study for each number in which methods differ."""
    return (setting.study({}) for setting in settings(view.records, view.reference))


def settings(records: Sequence[RunRecord], reference: str | None) -> Iterator[Sensitivity]:
    """Yield the study of each number in which several methods differ and in nothing else; of the newest runs."""
    finished = [record for record in records if record.status == "finished" and record.metrics.get("test")]
    metrics = {record.shared_metric for record in finished}
    if len(metrics) != 1 or (metric := metrics.pop()) is None:
        return

    datasets = {record.dataset for record in finished}
    numbers = {method: _numbers(runs) for method, runs in _by_method(finished).items()}

    higher = finished[0].higher_is_better[metric]
    scores = {method: _scores(runs, metric, datasets) for method, runs in _by_method(finished).items()}
    level = scores[reference][1].mean() if reference in scores else np.nan

    names = {name for _, method_numbers in numbers.values() for name in method_numbers}
    for name in sorted(names, key=lambda name: (_OF_METHODS.index(name.partition(".")[0]), name)):
        groups: dict[str, dict[float, str]] = {}
        for method, (spec, method_numbers) in numbers.items():
            if name in method_numbers and len(scores[method][1]):
                shared_settings = json.dumps(
                    [spec, {key: value for key, value in method_numbers.items() if key != name}], sort_keys=True
                )
                groups.setdefault(shared_settings, {}).setdefault(method_numbers[name], method)

        lines: dict[str, pd.DataFrame] = {}
        for methods in groups.values():
            if len(methods) >= FEWEST:
                lines[_line(list(methods.values()), lines)] = _setting_rows(methods, scores)

        if lines:
            yield _setting(name, metric, higher, len(datasets), reference or "", level, lines)


def _by_method(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    runs_by_method: dict[str, list[RunRecord]] = {}
    for record in records:
        runs_by_method.setdefault(record.method, []).append(record)
    return runs_by_method


def _numbers(runs: Sequence[RunRecord]) -> tuple[str, dict[str, float]]:
    """Return a method's settings that its runs share: those that are no numbers as text, and the numbers by name."""
    setting_texts = {
        json.dumps([run.spec.get(part) for part in _OF_METHODS], sort_keys=True, default=str) for run in runs
    }
    if len(setting_texts) > 1:
        return "", {}

    numbers: dict[str, float] = {}
    other_settings: dict[str, Any] = {}
    for part in _OF_METHODS:
        part_settings = runs[0].spec.get(part)
        for key, value in part_settings.items() if isinstance(part_settings, dict) else ():
            number = is_number(value) and key not in _NO_SETTINGS
            (numbers if number else other_settings)[f"{part}.{key}"] = value

    return json.dumps(other_settings, sort_keys=True, default=str), numbers


def _scores(runs: Sequence[RunRecord], metric: str, datasets: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores [seeds] on val and on test: means over tasks and data sets, of seeds that finished on all."""
    seed_scores: dict[int, dict[str, tuple[float, float]]] = {}
    for run in runs:
        seed_scores.setdefault(run.seed, {})[run.dataset] = (_mean(run, "val", metric), _mean(run, "test", metric))

    complete_means = [
        np.mean(list(seed_scores[seed].values()), axis=0)
        for seed in sorted(seed_scores)
        if set(seed_scores[seed]) == datasets
    ]
    stacked = np.array(complete_means).reshape(-1, 2)
    return stacked[:, 0], stacked[:, 1]


def _mean(run: RunRecord, split: str, metric: str) -> float:
    """Return the mean over tasks; NaN where a task has no value."""
    values = [run.metrics.get(split, {}).get(task, {}).get(metric, np.nan) for task in run.main_metrics]
    return float(np.mean(values))


def _setting_rows(methods: Mapping[float, str], scores: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    rows = []
    for value, method in methods.items():
        val, test = scores[method]
        deviation = test.std(ddof=1) if len(test) > 1 else np.nan
        rows.append((float(value), test.mean(), float(half_width(deviation, len(test))), val.mean()))
    return frame(rows, "val")


def _line(methods: Sequence[str], settings: Mapping[str, object]) -> str:
    """Return the words that the labels of a line's methods begin with alike, or the first label."""
    words = zip(*(method.split() for method in methods), strict=False)
    common_words = " ".join(
        position_words[0] for position_words in takewhile(lambda position_words: len(set(position_words)) == 1, words)
    )
    return methods[0] if not common_words or common_words in settings else common_words


def _setting(
    name: str, metric: str, higher: bool, datasets: int, reference: str, level: float, lines: Mapping[str, pd.DataFrame]
) -> Sensitivity:
    """Return the scores over a setting, with their sentences and table."""
    short = name.partition(".")[2]
    shown = short.replace("_", " ")
    title = f"{metric} by {shown}" + (f", mean over {counted(datasets, 'data set')}" if datasets > 1 else "")

    has_level = not np.isnan(level)
    reference_text = f"; {reference}: {level:.2f}" if has_level else ""
    explanation = f"Test, mean over seeds, with half the 95 % interval over them{reference_text}."
    return Sensitivity(
        file=f"by_setting_{file_name(name)}",
        title=title,
        over=shown,
        panels={"": lines},
        sentences=[_sentence(line, rows, 1.0 if higher else -1.0) for line, rows in lines.items()],
        tables=[value_table(title, explanation, short, lines)],
        measured=metric,
        log=spans(lines.values(), _LOG_AXIS_RATIO),
        levels={"": (level, reference)} if has_level else {},
    )


def _sentence(line: str, rows: pd.DataFrame, sign: float) -> str:
    """Name the value that is best on test, which nobody knows, and the one that validation would choose."""
    best = rows.iloc[int(tied(sign * rows["value"]).to_numpy().argmax())]
    text = f"{line}: best on test at {best['x']:g} ({best['value']:.2f})"
    if rows["val"].notna().all():
        chosen = rows.iloc[int(tied(sign * rows["val"]).to_numpy().argmax())]
        text += f"; validation chooses {chosen['x']:g} ({chosen['value']:.2f} on test)"
    return f"{text}."
