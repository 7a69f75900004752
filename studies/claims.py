"""Write the differences and states of docs/claims.md from the tables of results/tables.

    python studies/claims.py            # writes the two columns of every row that has a comparison
    python studies/claims.py --check    # fails if the page would change

A row has one planned comparison, named before its table is read: a method and what the work compares it with. So its
interval and state need no correction for the other rows of a table, whose p is Holm's. Where a table has values by
seed, differences are of the same seed; otherwise means and half intervals are put together as those of independent
samples, which is wider where seeds are alike. Transfers and pairs are compared one by one.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import yaml
from scipy import stats

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"
TABLES = ROOT / "results" / "tables"
PLANNED = Path(__file__).with_suffix(".yaml")
HEAD = "| source | claim | printed | difference, 95 % interval | state | what came out | setting, command |"
STATES = ("shown", "smaller than printed", "excluded", "open", "–")
PRINTED, DIFFERENCE, STATE = 2, 3, 4  # columns of a row
LEVEL, POWER = 0.95, 0.8


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The one planned comparison of a row, in the direction of the claim: positive is what the work says.

    Attributes:
        source: The row's first cell.
        section: The heading above, or a part of it.
        table: CSV file below results/tables.
        method: What the claim is about.
        other: What it is compared with; "" if the table holds differences already.
        others: Methods whose mean by seed it is compared with; `other` says what they are.
        printed: The printed difference; None if the work says only that there is one.
        column: The column that is compared, or how it begins.
        rows: Whether methods are columns, with a row for each transfer or pair of tasks.
        lower: Whether a lower figure is better.
        seeds: Number of seeds behind the means.
    """

    section: str
    source: str
    table: str
    method: str
    other: str = ""
    others: Sequence[str] = ()
    printed: float | None = None
    column: str = "average"
    lower: bool = False
    rows: bool = False
    seeds: int = 3


def planned(path: Path = PLANNED) -> list[Comparison]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Comparison(section=section, **row) for section, rows in content.items() for row in rows]


@dataclass(frozen=True)
class Difference:
    """The mean of a difference, half its interval, the deviation of one seed's, and the degrees of freedom."""

    mean: float
    half: float
    spread: float
    freedom: int

    def state(self, printed: float | None) -> str:
        low, high = self.mean - self.half, self.mean + self.half
        if low > 0:
            return "shown" if printed is None or high >= printed else "smaller than printed"
        if high < (printed or 0):
            return "excluded"
        return "open"

    def needed(self, effect: float) -> int:
        """Return how many seeds find the effect four times of five, at the upper limit (80 %) of the spread."""
        spread = self.spread * math.sqrt(self.freedom / float(stats.chi2.ppf(1 - POWER, self.freedom)))
        if effect <= 0:
            raise ValueError(f"a printed difference of {effect:g}: comparisons are in the direction of the claim")
        seeds = 2
        while (_t(2 * seeds - 2) + float(stats.t.ppf(POWER, 2 * seeds - 2))) * spread > effect * math.sqrt(seeds):
            seeds += 1
        return seeds


def _t(freedom: int) -> float:
    return float(stats.t.ppf(0.5 + LEVEL / 2, freedom))


def paired(values: Sequence[float]) -> Difference:
    spread, freedom = stdev(values), len(values) - 1
    return Difference(fmean(values), _t(freedom) * spread / math.sqrt(len(values)), spread, freedom)


def independent(one: tuple[float, float], other: tuple[float, float], seeds: int) -> Difference:
    """Return the difference of two means ± half intervals, each over that many seeds, with 2 (seeds - 1) degrees."""
    errors = [half / _t(seeds - 1) for _, half in (one, other)]
    error = math.hypot(*errors)
    freedom = 2 * (seeds - 1)
    return Difference(one[0] - other[0], _t(freedom) * error, error * math.sqrt(seeds), freedom)


def number(text: str) -> float:
    return float(re.sub(r"[^\d.−+-].*", "", text.replace(",", "").strip()).replace("−", "-"))


def mean_and_half(text: str) -> tuple[float, float]:
    mean, _, half = text.partition("±")
    return number(mean), number(half)


def name(row: Mapping[str, str], columns: int = 1) -> str:
    """Return what a row is about: its first cells, without the marks that a leaderboard adds."""
    return ", ".join(list(row.values())[:columns]).removesuffix(" ≈")


def difference(comparison: Comparison, tables: Path = TABLES) -> Difference:
    """Return what a table says of a comparison, in the direction of the claim."""
    path = tables / comparison.table
    with path.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if next(iter(rows[0])) == "method by seed":
        of_seeds = {name(row): list(row.values())[1:] for row in rows}
        found = _by_seed(comparison, of_seeds)
    elif comparison.rows:
        found = paired([number(row[comparison.method]) - number(row[comparison.other]) for row in rows])
    else:
        cells = {name(row, len(comparison.method.split(", "))): row for row in reversed(rows)}
        column = next(title for title in rows[0] if title.startswith(comparison.column))
        mine = cells[comparison.method][column]
        by_seed = path.with_name(path.name.replace("_leaderboard", "_by_seed_seeds"))
        if not comparison.other:
            mean, half = mean_and_half(mine)
            freedom = comparison.seeds - 1
            found = Difference(mean, half, half / _t(freedom) * math.sqrt(comparison.seeds), freedom)
        elif comparison.column == "average" and by_seed.is_file() and by_seed != path:
            with by_seed.open(encoding="utf-8") as lines:
                seeds = {name(row): list(row.values())[1:] for row in csv.DictReader(lines)}
            found = _by_seed(comparison, seeds)
        else:
            other = mean_and_half(cells[comparison.other][column])
            found = independent(mean_and_half(mine), other, comparison.seeds)
    return replace(found, mean=-found.mean) if comparison.lower else found


def _by_seed(comparison: Comparison, seeds: Mapping[str, Sequence[str]]) -> Difference:
    """Return the difference of pairs of a seed, of the seeds that all compared methods have."""
    taken = [seeds[method] for method in (comparison.method, *(comparison.others or [comparison.other]))]
    complete = [list(map(number, of_seed)) for of_seed in zip(*taken, strict=True) if "–" not in of_seed]
    return paired([mine - fmean(others) for mine, *others in complete])


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def cells(comparison: Comparison) -> tuple[str, str, str]:
    """Return the cells: the printed difference, ours with its interval, and the state."""
    found = difference(comparison)
    low, high = found.mean - found.half, found.mean + found.half
    state = found.state(comparison.printed)
    if state == "open" and comparison.printed and not comparison.rows:
        state += f"; {found.needed(comparison.printed)} seeds a side would do"
    method = comparison.method.partition(", ")[0]
    pair = f"{method} − {comparison.other}" if comparison.other else method
    if comparison.lower:
        pair = f"{comparison.other} − {comparison.method}"
    ours = f"{pair}: {signed(found.mean)} ({signed(low)}, {signed(high)})"
    return "–" if comparison.printed is None else signed(comparison.printed), ours, state


def written(page: str, comparisons: Sequence[Comparison]) -> str:
    """Return the page with the cells of these comparisons; raise `ValueError` unless each has one row."""
    lines, section, met = page.splitlines(), "", []
    for index, line in enumerate(lines):
        if line.startswith("## "):
            section = line
        parts = [part.strip() for part in line.strip("|").split(" | ")]
        for comparison in comparisons:
            if line.startswith("|") and comparison.section in section and parts[0] == comparison.source:
                parts[PRINTED : STATE + 1] = cells(comparison)
                lines[index] = f"| {' | '.join(parts)} |"
                met.append(comparison)
    wrong = [comparison.source for comparison in comparisons if met.count(comparison) != 1]
    if wrong:
        raise ValueError(f"comparisons without exactly one row: {', '.join(wrong)}")
    return counted("\n".join(lines) + "\n")


def counted(page: str) -> str:
    """Return the page with the counts of its states in the sentence that begins with "Of the rows below"."""
    counts: Counter[str] = Counter()
    inside = False
    for line in page.splitlines():
        inside = line == HEAD or (inside and line.startswith("|"))
        parts = [part.strip() for part in line.strip("|").split(" | ")]
        if inside and line != HEAD and not line.startswith("| ---"):
            state = parts[STATE].partition(";")[0]
            if len(parts) != len(HEAD.strip("|").split(" | ")) or state not in STATES:
                raise ValueError(f"no state of {', '.join(STATES)}: {line[:80]}")
            counts[state] += 1
    told = [f"{counts[state]} are {state}" for state in STATES[:-1]]
    return re.sub(r"^Of the rows below, .*$", f"Of the rows below, {', '.join(told)}.", page, flags=re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the page would change")
    page = PAGE.read_text(encoding="utf-8")
    new = written(page, planned())
    if parser.parse_args().check:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
