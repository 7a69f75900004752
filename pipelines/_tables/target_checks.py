"""What a user should look at in target and other columns before anything is trained: values that look like others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, UserError
from mtlscale.data.format.table_columns import distinct_names
from mtlscale.data.tables.arrow_types import is_text
from pipelines._tables.suspicions import row_names
from pipelines._tables.targets import Target, labels_of

_SENTINELS = (9.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0)  # with either sign, that stand for no value
_NEARLY_EMPTY = 0.05  # share of rows with a label
_FEW = 50  # categories that are compared in spelling
_FEWEST_TESTS = 10  # rows
_LISTED = 4
_TOTAL = re.compile(r"\s*(grand |sub)?(total|totals|sum|summe|average|mean|mittelwert)\s*:?\s*", re.IGNORECASE)


def target_warnings(
    pipeline: str, table: pa.Table, targets: Sequence[Target], splits: Mapping[str, np.ndarray], rows: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each thing about the targets that `run` would refuse, or that a result would hide.

    Args:
        pipeline: The pipeline, for messages.
        splits: Split -> its rows; empty if the rows cannot be split.
        rows: The name of each row in messages.
    """
    labelled = {target.column: int(target.present.sum()) for target in targets}
    nearly_empty = [name for name, count in labelled.items() if count < _NEARLY_EMPTY * len(rows)]
    if len(nearly_empty) > _LISTED:
        names = ", ".join(map(repr, nearly_empty[:_LISTED]))
        yield f"{len(nearly_empty)} targets have a label in less than {_NEARLY_EMPTY:.0%} of the rows: {names} …"
    else:
        yield from (f"target {name!r} has a label in {labelled[name]} of {len(rows)} rows" for name in nearly_empty)

    for target in targets:
        name = target.column
        if target.kind != "multilabel" and (reason := row_names(name, table[name])):
            yield f"target {name!r} seems to name the rows: {reason}; name another target"
        if target.kind == "class" and (rare := rare_classes(target)):
            names = ", ".join(map(repr, rare[:_LISTED]))
            yield f"target {name!r} has classes of one row: {names}; one part alone can have such a row"
        if splits:
            unseen: list[tuple[str, str]] = []
            try:
                labels_of(pipeline, target, splits, rows, unseen)
            except UserError as error:
                yield str(error).removeprefix(f"{pipeline}: ")
            if unseen:
                yield f"{len(unseen)} rows cannot be used, the first: {' '.join(unseen[0])}"
    for name, other in _same_targets(table, targets):
        yield f"target {name!r} is the same as {other!r} in every row: one task twice; name one of them"
    if splits and 0 < len(splits["test"]) < _FEWEST_TESTS:
        yield f"the test part has {len(splits['test'])} of {sum(len(splits[split]) for split in SPLITS)} rows; no " \
              "difference between methods can be seen in them"  # fmt: skip


def _same_targets(table: pa.Table, targets: Sequence[Target]) -> Iterator[tuple[str, str]]:
    """Yield each target whose cells are those of an earlier one, and that one."""
    for index, target in enumerate(targets):
        for earlier in targets[:index]:
            if table[target.column].equals(table[earlier.column]):
                yield target.column, earlier.column
                break


def rare_classes(target: Target) -> list[str]:
    """Return the classes of a target that one row has, where most classes have more."""
    classes, counts = np.unique(target.values[target.present].astype(str), return_counts=True)
    rare = classes[counts == 1].tolist()
    return rare if 2 * len(rare) < len(classes) else []


def value_warnings(table: pa.Table, names: Sequence[str], kinds: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each column with a number that stands for no value, or with names that differ in spelling.

    Args:
        names: The columns.
        kinds: Column -> `class`, `regression`, `number`, `category`, …
    """
    for name in names:
        column = table[name]
        if kinds.get(name) in ("regression", "number") and (found := sentinel(column)):
            number, count, low, high = found
            yield (
                f"column {name!r} has {number:.15g} in {count} rows, far from its other values ({low:g} to {high:g}); "
                f"if it stands for an empty cell: --option \"missing=['{number:.15g}']\""
            )
        if is_text(column.type) and (alike := spellings(column)):
            pairs = "; ".join(" and ".join(map(repr, group)) for group in alike[:_LISTED])
            yield f"column {name!r} has values that differ in spelling alone: {pairs}; write them alike"
        if is_text(column.type) and len(column) and (last := str(column[-1].as_py())) and _TOTAL.fullmatch(last):
            yield f"the last row has {last!r} in {name!r}: leave it out if it sums up the others"


def sentinel(column: pa.ChunkedArray) -> tuple[float, int, float, float] | None:
    """Return a number such as -999 that lies far from all others, how often it stands, and the range of the others."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    numbers = column.drop_null().to_numpy().astype(float)
    numbers = numbers[np.isfinite(numbers)]
    for number in {float(numbers.min()), float(numbers.max())} if len(numbers) else ():
        others = numbers[numbers != number]
        if abs(number) not in _SENTINELS or len(others) < 2 or len(others) == len(numbers) - 1:
            continue
        low, high = float(others.min()), float(others.max())
        if number < low - (high - low) or number > high + (high - low):
            return number, len(numbers) - len(others), low, high
    return None


def spellings(column: pa.ChunkedArray) -> list[list[str]]:
    """Return groups of different texts that are one but for case, spaces and marks."""
    names = [name for name in distinct_names(column)[0] if name]
    if len(names) > _FEW:
        return []
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"(?<=\w)[\s._-]+(?=\w)", " ", name.casefold()), []).append(name)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def alike_columns(targets: Sequence[str], inputs: Sequence[str]) -> str:
    """Return the line on inputs that are called like the targets but for a number, as Outcome_M1 and Outcome_M2."""
    stems = {_stem(target) for target in targets} - {None}
    others = [name for name in inputs if _stem(name) in stems]
    if not others:
        return ""
    shown = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
    pattern = f"{_stem(others[0])}*"
    if len(others) == 1:
        return f"1 input is called like the targets ({shown}); if it is one, too: --targets '{pattern}'"
    return f"{len(others)} inputs are called like the targets ({shown}); if they are some, too: --targets '{pattern}'"


def _stem(name: str) -> str | None:
    match = re.fullmatch(r"(\D*[A-Za-z_]\D*)\d+", name)
    return match[1] if match is not None else None
