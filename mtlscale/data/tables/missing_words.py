"""Words such as NA that stand for an empty cell, or are a value: Namibia, North America, a class of that name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

WORDS = ("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
         "NaN", "n/a", "nan", "null")  # fmt: skip  # pyarrow's own
# A text without any of these has no such word.
IN_WORDS = (b"#", *(word.encode() for word in WORDS if "#" not in word and not any(
    other in word for other in WORDS if other != word)))  # fmt: skip
_SHARE = 0.05  # of a column's cells from which a word is rather one of its values
_FEW = 100  # different values of a column, at most, one of which a word may be


@dataclass(frozen=True)
class ColumnWords:
    """The words in some rows of a column.

    Attributes:
        texts: Whether the column has texts besides them.
        rows: Number of rows.
        empty: Number of cells without a letter.
        plain: Word -> number of cells with it, without quotes.
        quoted: Word -> number of cells with it in quotes.
        values: Different other values, cut off where they are many.
    """

    texts: bool
    rows: int
    empty: int = 0
    plain: Counter[str] = field(default_factory=Counter)
    quoted: Counter[str] = field(default_factory=Counter)
    values: frozenset[str] = frozenset()

    def merged(self, other: ColumnWords) -> ColumnWords:
        """Return the words of these rows and others."""
        return ColumnWords(
            self.texts or other.texts,
            self.rows + other.rows,
            self.empty + other.empty,
            self.plain + other.plain,
            self.quoted + other.quoted,
            cut(self.values | other.values),
        )


def cut(values: frozenset[str]) -> frozenset[str]:
    """Return a set, or enough of it to tell that there are many."""
    return frozenset(sorted(values)[: _FEW + 1])


def values_among(columns: Mapping[str, ColumnWords], *, quoted_texts: bool) -> dict[str, Counter[str]]:
    """Return the columns of texts in which the words are values -> the words and how many they are.

    In quotes a word is a value. Without them it is none if the file writes its texts in quotes, or if it also stands in
    a column of numbers. Otherwise it is one where the column has few values and truly empty cells besides, or the word
    in every twentieth cell.

    Args:
        quoted_texts: Whether the file writes texts in quotes.
    """
    markers = {word for words in columns.values() if not words.texts for word in words.plain}
    values = {}
    for name, words in columns.items():
        plain = Counter() if quoted_texts else Counter({w: n for w, n in words.plain.items() if w not in markers})
        few = len(words.values) <= _FEW and len(words.values) > 0
        often = plain.total() >= _SHARE * words.rows or words.empty
        if words.texts and (words.quoted or (plain and few and often)):
            values[name] = words.quoted + words.plain
    return values
