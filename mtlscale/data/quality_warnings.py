"""Warnings on a prepared set that a user should read before its results: leaks, cuts, guessed columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mtlscale.config import Experiment
from mtlscale.data.format.manifest import Manifest

_MOST = 5  # tasks or columns that a line names
_TWICE = {
    "test_inputs_in_train_or_val": "test inputs",
    "test_texts_in_train_or_val": "test texts",
    "test_sentences_in_train_or_val": "test sentences",
}


def remarks(label: str, manifest: Manifest) -> Iterator[str]:
    """Yield one line per warning.

    Args:
        label: The label of the data set in the experiment.
        manifest: The manifest of the prepared set.
    """
    notes, options = manifest.notes, manifest.options
    if "features" in notes and options.get("features") == []:
        yield f"{label}: the features are all other columns: {_listed(notes['features'])}; set `features` for others"

    for note, subject in _TWICE.items():
        if note in notes:
            if manifest.suite.inputs == "shared":
                rows = sum(shard.rows for shard in manifest.shards("test", "all"))
                count = sum(notes[note].values()) if isinstance(notes[note], Mapping) else notes[note]
                yield f"{label}: {count} of {rows} {subject} stand in training or validation, too"
                continue
            tests = sum(manifest.counts[task]["test"] for task in notes[note] if task in manifest.counts)
            count = sum(notes[note].values())
            yield f"{label}: {count} of {tests} {subject} stand in training or validation, too: {_counts(notes[note])}"

    if cuts := notes.get("cuts_in_long_sentences"):
        length = options.get("length")
        yield f"{label}: sentences longer than `length` = {length} are cut {sum(cuts.values())} times: {_counts(cuts)}"
    if unseen := notes.get("tags_not_in_training"):
        yield f"{label}: tags that training does not have are classes that no method has seen: {_counts(unseen)}"
    if unknown := notes.get("unknown_categories"):
        yield f"{label}: values that training does not have count as unknown: {_counts(unknown)}"
    if hashed := notes.get("hashed_categories"):
        yield f"{label}: columns with more categories than `most_categories` are hashed: {_counts(hashed)}"
    for column, reason in notes.get("left_out", {}).items():
        yield f"{label}: column {column!r} is no input: {reason}"
    for column, what in notes.get("looks_like", {}).items():
        yield f"{label}: column {column!r} looks like {what} and is taken as a category"
    yield from (f"{label}: {line}" for line in word_lines(notes))
    for column, target in notes.get("perfect_predictors", {}).items():
        yield f"{label}: column {column!r} gives target {target!r} away without an error; leave it out of `features`"


def word_lines(notes: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each column in which a word such as NA is a value, or stands for empty cells among texts."""
    for column, counts in notes.get("words_as_values", {}).items():
        for word, count in counts.items():
            yield (f"{count} cells of {column!r} are the text {word}, kept as a value; `missing: [{word}]` makes them "
                   "empty cells")  # fmt: skip
    for column, counts in notes.get("words_as_empty", {}).items():
        for word, count in counts.items():
            yield f"{count} cells of {column!r} are the text {word}, taken as empty; `missing: []` keeps it as a value"


def left_out(experiment: Experiment) -> Iterator[str]:
    """Yield a line for the data sets that go without the same rows, or without the same default floors."""
    for rows, labels in experiment.without_rows().items():
        yield f"{', '.join(labels)}: without the row{'s' * (len(rows) > 1)} {_joined(rows)}, as the file says"
    for floors, labels in experiment.left_out().items():
        whose = "its pipeline leaves" if len(labels) == 1 else "their pipelines leave"
        yield f"{', '.join(labels)}: without the floor{'s' * (len(floors) > 1)} {_joined(floors)}, which {whose} out"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _counts(counts: Mapping[str, int]) -> str:
    return _listed([f"{name} {count}" for name, count in counts.items()])


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
