"""Numbers and dates as texts write them: decimal commas, thousands separators, and the order of day and month."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

POINT, COMMA = ".", ","
DECIMALS = ("", POINT, COMMA)
_SPACES = "\u00a0\u2007\u2009\u202f '’"  # that stand between thousands, besides the other of point and comma
_EXPONENT = r"(?:[eE][-+]?\d+)?"
_DATE_PARTS = ("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
               "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y",
               "%d-%b-%y")  # fmt: skip
_TIME_PARTS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
DATE_FORMATS = tuple(f"{day}{time}" for day in _DATE_PARTS for time in _TIME_PARTS)
_MOSTLY = 0.9  # share of texts that are alike in a column
_FEWEST = 3  # different texts that show a notation
_ASKED = 200  # texts that are looked at
_UNIT = re.compile(r"([$€£¥₹]|USD|EUR|GBP|CHF)?\s?[-+]?\d[\d., ]*?(\s?[^\d\s.,+-][^\d,]{0,9})?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[-+]\d\d:?\d\d)?)?")
_DATE_LIKE = re.compile(r"[\dA-Za-z]+[ ./-][\dA-Za-z]+,?[ ./-]\d+.*")


@lru_cache
def _grouped(decimal: str) -> re.Pattern[str]:
    """Return the pattern of a number in groups of three digits (in India of two, before the last three)."""
    others = re.escape((COMMA if decimal == POINT else POINT) + _SPACES)
    point = re.escape(decimal)
    return re.compile(rf"[-+]?\d{{1,3}}([{others}])(?:\d{{2,3}}\1)*\d{{3}}(?:{point}\d*)?{_EXPONENT}")


def number_in(text: str, decimal: str = "") -> float | None:
    """Return the number that a text is, None if it is none.

    Args:
        text: The text; thousands may be separated.
        decimal: The decimal mark; "": the point, and a separator of thousands only where it can be nothing else.
    """
    text = text.strip().replace("\u2212", "-")
    mark = decimal or POINT
    try:
        if mark == POINT:
            return float(text)
        if POINT not in text:
            return float(text.replace(COMMA, POINT))
    except ValueError:
        pass
    match = _grouped(mark).fullmatch(text)
    if match is None or (not decimal and _may_be_decimal(text, match[1])):
        return None
    return float(re.sub(f"[{re.escape(match[1])}]", "", text).replace(mark, POINT))


def _may_be_decimal(text: str, separator: str) -> bool:
    """Return whether a number such as 1,234 may have three decimals as well."""
    return separator == COMMA and text.count(COMMA) == 1 and POINT not in text


def is_number(text: str) -> bool:
    """Return whether a text is a number in one of the notations."""
    return number_in(text, POINT) is not None or number_in(text, COMMA) is not None


def date_in(text: str, formats: Sequence[str]) -> datetime.datetime | None:
    """Return the time that a text is, as 2024-01-31 or in a format of `strptime`, in UTC if it names a zone."""
    text = text.strip()
    readers = [datetime.datetime.fromisoformat] if _ISO.fullmatch(text) else []
    readers += [partial(_in_format, form) for form in formats]
    for read in readers:
        try:
            time = read(text)
        except ValueError:
            continue
        return time.astimezone(datetime.UTC).replace(tzinfo=None) if time.tzinfo else time
    return None


def _in_format(form: str, text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, form)


@dataclass(frozen=True)
class Question:
    """What a column of texts looks like, and the setting that says so.

    Attributes:
        what: Words for what was seen.
        example: A text of the column.
        setting: The option that reads it; "" if there is none.
        advice: What to do without one.
    """

    what: str
    example: str
    setting: str = ""
    advice: str = ""

    @property
    def looks_like(self) -> str:
        """What was seen, with the example."""
        return f"{self.what} ({self.example!r})"

    @property
    def mend(self) -> str:
        """What to do about it."""
        return f"set `{self.setting}`" if self.setting else self.advice


def question_of(texts: Sequence[Any]) -> Question | None:
    """Return what a column of texts that are no plain numbers or dates looks like; None: nothing but texts."""
    different = list(dict.fromkeys(text.strip() for text in texts[: 10 * _ASKED] if text and text.strip()))[:_ASKED]
    if len(different) < _FEWEST:
        return None
    example = different[0]
    commas = sum(number_in(text, COMMA) is not None for text in different)
    points = sum(number_in(text, POINT) is not None for text in different)
    enough = _MOSTLY * len(different)

    if commas >= enough and any(COMMA in text for text in different):
        example = next(text for text in different if COMMA in text)
        if points >= enough:
            return Question("numbers with decimal commas or with thousands separators", example,
                            "decimal: ','` or `decimal: '.'")  # fmt: skip
        return Question("numbers with decimal commas", example, "decimal: ','")
    if points >= enough:
        return Question("numbers with thousands separators", example, "decimal: '.'")

    if formats := _date_formats(different, enough):
        settings = "` or `".join(f"dates: ['{form}']" for form in formats[:2])
        return Question("dates", example, settings)
    return _unit(different, enough)


def _date_formats(different: Sequence[str], enough: float) -> list[str]:
    """Return the formats that fit most of the texts, all of them equally well."""
    if sum(_DATE_LIKE.fullmatch(text) is not None for text in different) < enough:
        return []
    counts = {form: sum(date_in(text, [form]) is not None for text in different)
              for form in DATE_FORMATS if any(date_in(text, [form]) for text in different[:5])}  # fmt: skip
    most = max(counts.values(), default=0)
    return [form for form, count in counts.items() if count == most >= enough]


def _unit(different: Sequence[str], enough: float) -> Question | None:
    """Return the question about numbers with one and the same unit, percent sign or currency."""
    marks: Counter[str] = Counter()
    for text in different:
        match = _UNIT.fullmatch(text)
        if match is not None and (match[1] is None) != (match[2] is None):
            marks[(match[1] or match[2]).strip()] += 1
    mark, count = max(marks.items(), key=lambda item: item[1], default=("", 0))
    if not mark or count < enough:
        return None
    kind = "percentages" if mark == "%" else f"numbers with the unit {mark!r}"
    return Question(kind, different[0], advice="write the numbers alone to have a column of numbers")
