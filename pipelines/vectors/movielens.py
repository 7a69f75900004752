"""MovieLens-100k: what a user thinks of a film, from the two ids and what is known of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError, knob
from mtlscale.data.tables.raw_files import Problems, decoded, unpacked
from pipelines._tables.named_table import NamedTable, parts_of, read_columns, yes_or_no
from pipelines._tables.row_splits import RowSplit

RATINGS, FILMS, USERS = "u.data", "u.item", "u.user"
GENRES = (
    "unknown", "action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama", "fantasy",
    "film_noir", "horror", "musical", "mystery", "romance", "sci_fi", "thriller", "war", "western",
)  # fmt: skip
FILM_COLUMNS = ("item", "title", "released", "released_on_video", "url", *GENRES)
USER_COLUMNS = ("user", "age", "sex", "occupation", "zip")
LIKED, LOVED = 4, 5  # the least rating


class MovieLens(NamedTable):
    """MovieLens-100k: is a film liked (4 or 5 stars), is it loved (5 stars), and its rating.

    Inputs are the ids of user and film, the user's sex, occupation and age, the film's year and 19 genres. `love`
    follows `like`: whoever loves a film likes it. `by: time` makes the latest ratings test.
    """

    name: ClassVar[str] = "movielens"
    source: ClassVar[str] = "Harper & Konstan, TiiS 2015"
    folder: ClassVar[str] = "movielens100k"
    delta: ClassVar[tuple[str, ...]] = ("auroc", "rmse")
    kinds: ClassVar[Mapping[str, str]] = {"like": "class", "love": "class", "rating": "regression"}
    categorical: ClassVar[tuple[str, ...]] = ("user", "item")
    grouped: ClassVar[str] = "user"

    by: str = knob("random", choices=("random", "time"), help="the latest ratings are test, or random ones")

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        ratings = read_columns(
            self.name, _file(source, RATINGS), ("user", "item", "rating", "time"), problems, _separator(source, RATINGS)
        )
        films = read_columns(self.name, _file(source, FILMS), FILM_COLUMNS, problems, "|")
        users = read_columns(self.name, _file(source, USERS), USER_COLUMNS, problems, "|")

        year = pc.cast(pc.utf8_slice_codeunits(films["released"], -4, 1 << 20), pa.string())
        year = pc.cast(pc.if_else(pc.equal(year, ""), None, year), pa.int64())
        films = films.select(["item", *GENRES]).append_column("year", year)

        unknown = [row for column, table in (("user", users), ("item", films))
                   for row in _unknown(ratings[column], table[column], column)]  # fmt: skip
        problems += unknown
        users = users.drop_columns(["zip"])
        table = ratings.join(films, "item", join_type="inner").join(users, "user", join_type="inner")
        table = table.sort_by([("user", "ascending"), ("item", "ascending"), ("time", "ascending")])
        like, love = (yes_or_no(pc.greater_equal(table["rating"], least)) for least in (LIKED, LOVED))
        table = table.append_column("like", like).append_column("love", love)
        return (table if self.by == "time" else table.drop_columns(["time"])), {}

    def row_split(self, table: pa.Table) -> RowSplit:
        time = "time" if self.by == "time" else ""
        return RowSplit(pipeline=self.name, test=self.test, validation=self.validation, seed=self.split, time=time)


def _file(folder: Path, name: str) -> Path:
    return parts_of("movielens", folder, {"all": name})["all"]


def _separator(folder: Path, name: str) -> str:
    """Return the separator of the ratings: tabs in the official file."""
    path = _file(folder, name)
    text, _ = decoded(f"movielens: {name}", unpacked(f"movielens: {name}", path))
    first_line = text.partition("\n")[0]
    separator = next((mark for mark in "\t|," if mark in first_line), None)
    if separator is None:
        raise UserError(f"movielens: {path.name} has no tabs between user, item, rating and time; fetch it again")
    return separator


def _unknown(values: pa.ChunkedArray, known: pa.ChunkedArray, column: str) -> list[tuple[str, str]]:
    """Return the ratings whose user or film is in no list."""
    missing = pc.invert(pc.is_in(values, known.combine_chunks()))
    return [
        (f"{RATINGS}, row {row + 1}", f"has {column} {values[row]}, which no list has")
        for row in pc.indices_nonzero(missing).to_pylist()
    ]
