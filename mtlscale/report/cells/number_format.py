"""Numbers and names as words, alike in tables, sentences and charts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

EMPTY = "–"
MOST_LISTED = 4  # names in a note
# Columns that a table may be sorted by.
SCORE_NAMES = {
    "delta_i": "Δ",
    "delta_main": "Δ of the main metrics",
    "average": "the average",
    "mean_rank": "the mean rank",
}


def decimals(values: pd.Series[float], figures: int = 4, least: int = 2) -> int:
    """Return the digits after the point that show `figures` digits of the column's largest value."""
    largest = values.abs().max()
    if not np.isfinite(largest) or largest == 0:
        return least
    return int(np.clip(figures - 1 - np.floor(np.log10(largest)), least, 6))


def signed(value: float, form: str) -> str:
    """Format a number with a true minus sign, so that signs line up; no sign before a rounded zero, "" for NaN."""
    text = format(value, form)
    if np.isnan(value):
        return ""
    return text.lstrip("+-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def names(values: Sequence[object], limit: int = 6) -> str:
    """Join names as "a, b and c"; of many name the first, and count how many more."""
    limit = limit if len(values) > limit + 1 else len(values)
    shown = [str(name) for name in values[:limit]]
    if len(values) > limit:
        return f"{', '.join(shown)} and {len(values) - limit} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def listed(values: Sequence[str], limit: int = MOST_LISTED) -> str:
    """Join the first names with commas, and count how many more there are."""
    shown = ", ".join(values[:limit])
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where the number is not 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def count_text(value: float) -> str:
    """Format a count in three digits: 12,300,000 as 12.3 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}" if value > 0 else EMPTY


def with_width(value: float | None, width: float | None = None, form: str = ".2f") -> str:
    """Format a mean and half its interval, the mean alone where there is no interval, a dash where there is no mean."""
    if value is None or np.isnan(value):
        return EMPTY
    return f"{value:{form}}" if width is None or np.isnan(width) else f"{value:{form}} ± {width:{form.lstrip('+')}}"


def file_name(text: str) -> str:
    """Return a text as a part of a file's name."""
    return re.sub(r"[^0-9A-Za-z.-]+", "_", text)


def number_word(number: int) -> str:
    """Return a number as a word, above twelve in figures."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[number] if number < len(words) else str(number)


def points(size: float) -> str:
    """Return a size in points."""
    return f"{size:g} point{'' if size == 1 else 's'}"


def about(size: float, unit: str) -> str:
    """Return a size in two figures, without a power of ten: "1.2 points", "490 points"."""
    rounded = float(f"{size:.2g}")
    return f"{rounded:g}{unit and f' {unit}'}{'s' if unit and rounded != 1 else ''}"


def rounded_down(size: float) -> float:
    """Return a positive size in two figures, the third cut off."""
    step = 10.0 ** (np.floor(np.log10(size)) - 1)
    return float(f"{np.floor(size / step * (1 + 1e-12)) * step:.2g}")
