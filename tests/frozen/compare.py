"""Two results of a case beside each other: how far their numbers are apart, and how many bytes are the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-12  # relative
SMALL = 1e-3  # of single numbers, such as metrics, what is smaller counts as this large
STATES = ("last", "chosen", "objective")


@dataclass
class Difference:
    """The largest relative difference and where it is; of the tensors, how many have the same bytes."""

    largest: float = 0.0
    where: str = ""
    tensors: int = 0
    identical: int = 0

    def see(self, found: Any, wanted: Any, scale: float, where: str) -> None:
        """Take in two numbers (or texts, or nothing), relative to `scale`."""
        if _is_number(found) and _is_number(wanted):
            same = found == wanted or (math.isnan(found) and math.isnan(wanted))
            size = 0.0 if same else abs(found - wanted) / scale if scale > 0 else math.inf
            size = math.inf if math.isnan(size) else size
        else:
            size = 0.0 if type(found) is type(wanted) and found == wanted else math.inf
        if size > self.largest:
            self.largest, self.where = size, f"{where}: {found} instead of {wanted}"


def difference(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> Difference:
    """Of the results of one case, one for each trial, from those that were frozen."""
    result = Difference()
    result.see(len(found), len(wanted), 1.0, "trials")
    for trial, (left, right) in enumerate(zip(found, wanted, strict=False)):
        for key in sorted({*left, *right}):
            compared = _states if key in STATES else _values
            compared(result, left.get(key) or {}, right.get(key) or {}, f"trial {trial}, {key}")
    return result


def _states(result: Difference, found: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    result.see(", ".join(sorted(found)), ", ".join(sorted(wanted)), 1.0, where)
    for name in found.keys() & wanted.keys():
        (digest, count, *left), (known, size, *right) = found[name], wanted[name]
        result.tensors += 1
        result.identical += digest == known
        result.see(count, size, 1.0, f"{where}, {name}, size")
        total = _largest(right[:2])  # of the absolute values
        typical = max(total / max(size, 1), _largest(right[2:]))
        for part, (one, other) in enumerate(zip(left, right, strict=False)):
            result.see(one, other, total if part < 2 else typical, f"{where}, {name}[{part}]")


def _values(result: Difference, found: Any, wanted: Any, where: str) -> None:
    """Entries of a dictionary for themselves, those of a list relative to the largest in it."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        result.see(", ".join(sorted(found)), ", ".join(sorted(wanted)), 1.0, where)
        for key in found.keys() & wanted.keys():
            _values(result, found[key], wanted[key], f"{where}, {key}")
    elif isinstance(found, list) and isinstance(wanted, list):
        result.see(len(found), len(wanted), 1.0, f"{where}, length")
        scale = _largest(wanted)
        for place, (left, right) in enumerate(zip(found, wanted, strict=False)):
            if _is_number(left):
                result.see(left, right, scale, f"{where}[{place}]")
            else:
                _values(result, left, right, f"{where}[{place}]")
    else:
        scale = max(abs(wanted), SMALL) if _is_number(wanted) else 1.0
        result.see(found, wanted, scale, where)


def _largest(values: list[Any]) -> float:
    return max((abs(v) for v in values if _is_number(v) and math.isfinite(v)), default=0.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
