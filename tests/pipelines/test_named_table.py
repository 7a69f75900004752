"""Census-Income, Adult and MovieLens: files in the official layout, and the real ones where they are."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_sets import DATA_SETS

from mtlscale.config import UserError
from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.readers.prepared import read_ids
from mtlscale.execution.preparing.prepare import prepare

RNG = np.random.default_rng(0)


def ready(name: str, source: Path | None, home: Path, skip_bad: bool = False, **options: Any) -> PreparedData:
    return load_prepared(prepare(name, options, source, home, skip_bad=skip_bad))


def column(data: PreparedData, split: str, name: str) -> np.ndarray:
    return data.splits[split]["all"].inputs[:, data.suite.extras["columns"].index(name)].numpy()


# -- census --------------------------------------------------------------------------------------------------------


@pytest.fixture
def census(tmp_path: Path) -> Path:
    return DATA_SETS["census_income"].write(tmp_path / "census")


def test_census_has_the_pairs_of_tasks_of_the_paper(census: Path, tmp_path: Path) -> None:
    data = ready("census_income", census, tmp_path)
    assert [task.name for task in data.suite.tasks] == ["income", "never_married"]
    assert {split: len(data.splits[split]["all"]) for split in data.splits} == {"train": 96, "val": 24, "test": 60}
    columns = data.suite.extras["columns"]
    assert not {"income", "marital", "instance_weight", "part"} & set(columns) and "education" in columns
    targets = data.splits["test"]["all"].targets
    assert int(targets["income"].sum()) == 12 and int(targets["never_married"].sum()) == 15
    assert data.suite.categories[columns.index("father_birth")] == 3  # ? is a category
    assert (
        data.suite.categories[columns.index("industry_code")] == 4 and not data.suite.categories[columns.index("age")]
    )
    assert sum(column(data, split, "age").sum() for split in ("train",)) == pytest.approx(0, abs=1e-3)

    other = ready("census_income", census, tmp_path, pair="education")
    assert [task.name for task in other.suite.tasks] == ["degree", "never_married"]
    assert "education" not in other.suite.extras["columns"] and "income" in other.suite.extras["columns"]
    assert int(other.splits["test"]["all"].targets["degree"].sum()) == 40


def test_one_part_of_census_is_split(census: Path, tmp_path: Path) -> None:
    (census / "census-income.data").unlink()
    data = ready("census_income", census, tmp_path, test=0.25)
    assert {split: len(data.splits[split]["all"]) for split in data.splits} == {"train": 36, "val": 9, "test": 15}
    (census / "census-income.test.gz").unlink()
    with pytest.raises(
        UserError, match=r"has none of census-income\.data or census-income\.data\.gz, census-income\.t"
    ):
        ready("census_income", census, tmp_path)


def test_a_row_of_census_with_too_few_fields_is_named(census: Path, tmp_path: Path) -> None:
    with (census / "census-income.data").open("a") as file:
        file.write("38, Private, 6\n")
    with pytest.raises(UserError, match=r"census-income\.data, row 121 has 3 fields, not 42; mend or pass --skip-bad"):
        ready("census_income", census, tmp_path)
    assert len(ready("census_income", census, tmp_path, skip_bad=True).splits["train"]["all"]) == 96


# -- adult ---------------------------------------------------------------------------------------------------------


def test_columns_in_another_order_are_named(census: Path, tmp_path: Path) -> None:
    for path in census.iterdir():
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        rows = [row.split(",") for row in text.splitlines()]
        path.unlink()
        lines = [",".join([*row[:4], "7", *row[5:]]) for row in rows]
        path.with_suffix("" if path.suffix == ".gz" else path.suffix).write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="column education has int64, not texts; are the columns of the file in the"):
        ready("census_income", census, tmp_path)


def test_adult_reads_both_parts(tmp_path: Path) -> None:
    data = ready("adult", DATA_SETS["adult"].write(tmp_path / "adult"), tmp_path)
    targets = data.splits["test"]["all"].targets
    assert [len(t) for t in targets.values()] == [60, 60]
    assert int(targets["income"].sum()) == 12 and int(targets["never_married"].sum()) == 15
    assert not {"marital", "income", "weight"} & set(data.suite.extras["columns"])


# -- MovieLens -----------------------------------------------------------------------------------------------------

USERS, FILMS, RATINGS = 20, 15, 240


@pytest.fixture(params=["official", "with names"])
def movielens(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    names = request.param == "with names"
    users = [f"{u}|{20 + u}|{'MF'[u % 2]}|{'writer' if u % 3 else 'other'}|12345" for u in range(1, USERS + 1)]
    genres = ["|".join("01"[(i + g) % 3 == 0] for g in range(19)) for i in range(FILMS + 1)]
    days = ["" if i == 3 else f"01-Jan-{1980 + i}" for i in range(FILMS + 1)]
    films = [f"{i}|Café {i} (1995)|{days[i]}||http://x|{genres[i]}" for i in range(1, FILMS + 1)]
    pairs = RNG.permutation(USERS * FILMS)[:RATINGS]
    mark = "|" if names else "\t"
    ratings = [mark.join(map(str, (1 + p // FILMS, 1 + p % FILMS, 1 + p % 5, 1000 + t))) for t, p in enumerate(pairs)]
    if names:
        users, films = (
            ["user|age|gender|occupation|zip", *users],
            ["item|title|released|video|url|" + "|".join("g" * 19), *films],
        )
        ratings = ["user|item|rating|timestamp", *ratings]
    (folder / "u.user").write_text("\n".join(users) + "\n")
    (folder / "u.item").write_bytes(("\n".join(films) + "\n").encode("latin-1"))
    (folder / "u.data").write_text("\n".join(ratings) + "\n")
    return folder


def test_movielens_joins_its_three_files(movielens: Path, tmp_path: Path) -> None:
    data = ready("movielens", movielens, tmp_path)
    assert [(task.name, task.loss) for task in data.suite.tasks] == [
        ("like", "bce"),
        ("love", "bce"),
        ("rating", "mse"),
    ]
    columns, categories = data.suite.extras["columns"], data.suite.categories
    assert columns[:2] == ["user", "item"] and categories[0] == USERS + 1 and categories[1] == FILMS + 1
    assert categories[columns.index("sex")] == 3 and categories[columns.index("occupation")] == 3
    assert data.suite.tasks[0].group == 0 and data.suite.tasks[0].metrics == ("auroc", "gauroc", "cross_entropy", "ece")
    assert sum(len(data.splits[split]["all"]) for split in data.splits) == RATINGS

    mean, deviation = data.suite.extras["target_scaling"]["rating"]
    for split in data.splits:
        targets = data.splits[split]["all"].targets
        stars = (targets["rating"] * deviation + mean).round()
        assert ((stars >= 4).long() == targets["like"]).all() and ((stars == 5).long() == targets["love"]).all()

        # A row is what its user and its film are, wherever it comes from.
        users, items = column(data, split, "user"), column(data, split, "item")
        odd = column(data, split, "sex")
        known = users > 0
        assert len(set(zip(users[known] % 2, odd[known], strict=True))) == 2
        third = column(data, split, "year is empty") > 0
        assert set(items[third & (items > 0)]) <= {3}


def test_the_latest_ratings_are_test(movielens: Path, tmp_path: Path) -> None:
    data = ready("movielens", movielens, tmp_path, by="time")
    assert {split: len(data.splits[split]["all"]) for split in data.splits} == {"train": 154, "val": 38, "test": 48}
    assert "time" not in data.suite.extras["columns"]


def test_a_rating_of_nobody_is_named(movielens: Path, tmp_path: Path) -> None:
    mark = "|" if "|" in (movielens / "u.data").read_text() else "\t"
    with (movielens / "u.data").open("a") as file:
        file.write(mark.join(["77", "1", "5", "9999"]) + "\n")
    with pytest.raises(UserError, match=r"u\.data, row 241 has user 77, which no list has; mend or pass --skip-bad"):
        ready("movielens", movielens, tmp_path)
    skipped = ready("movielens", movielens, tmp_path, skip_bad=True)
    assert sum(len(skipped.splits[split]["all"]) for split in skipped.splits) == RATINGS
    assert len(read_ids(skipped.folder, "train", "all")) == 154

    (movielens / "u.item").unlink()
    with pytest.raises(UserError, match=r"has none of u\.item or u\.item\.gz"):
        ready("movielens", movielens, tmp_path / "other")


def test_the_group_of_a_table_is_a_category_of_its_inputs(tmp_path: Path) -> None:
    rows = "".join(f"{u % 5 + u / 100 if u % 4 else ''},{u % 7},{'yes' if u % 3 else 'no'}\n" for u in range(120))
    (tmp_path / "own.csv").write_text("size,user,like\n" + rows)
    options: dict[str, Any] = {"targets": {"like": "class"}, "categorical": ["user"], "grouped": "user"}
    assert ready("table", tmp_path / "own.csv", tmp_path, **options).suite.tasks[0].group == 2
    for changed, mistake in (
        ({"grouped": "usr"}, "column 'usr' of `grouped` is no input; did you mean user"),
        ({"grouped": "size"}, "column 'size' of `grouped` has no categories; name it in `categorical`"),
        ({"most_categories": 3}, "has more values than `most_categories`"),
        ({"targets": {}, "task": "user", "target": "like"}, "`grouped` goes with `targets`"),
    ):
        with pytest.raises(UserError, match=mistake):
            ready("table", tmp_path / "own.csv", tmp_path, **{**options, **changed})
