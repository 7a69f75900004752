"""Arrays and data frames of a notebook: the same runs as an experiment file of the same table, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import yaml

import mtlscale
from mtlscale.config import UserError, load_experiment
from mtlscale.execution.preparing.arrays import joined, write_table
from mtlscale.execution.rehearsal.dry_run import plan
from mtlscale.records import Home

ROWS = 80
RNG = np.random.default_rng(0)
X = pd.DataFrame({"ash": RNG.normal(size=ROWS), "soil": RNG.choice(["clay", "sand"], ROWS)})
Y = pd.DataFrame({"grower": RNG.choice(["anna", "ben"], ROWS), "alcohol": X["ash"] + RNG.normal(size=ROWS)})
SMALL: dict[str, Any] = {
    "seeds": (0,),
    "training": {"epochs": 1, "batch_size": 32},
    "tracking": {"enabled": False},
    "floors": ["constant"],
    "resources": {"cpus_per_worker": 4},  # of the four of `local_ray`: one process
}


@pytest.mark.ray
def test_a_comparison_is_an_experiment_file_of_the_same_table(tmp_path: Path, local_ray: None) -> None:
    results = mtlscale.compare(X, Y, ["stl", "equal"], name="wine", home=tmp_path / "home", **SMALL)
    assert {record.status for record in results.records} == {"finished"}
    frame = results.to_pandas()
    assert set(frame["method"]) == {"stl", "equal", "constant"} and set(frame["task"]) == {"grower", "alcohol"}
    assert set(results.leaderboard().to_pandas()["method"]) == {"stl", "equal", "constant"}
    assert "grower" in results._repr_html_() and (tmp_path / "home/experiments/wine/leaderboard.html").exists()

    (table,) = (tmp_path / "home" / "tables").iterdir()
    spec = {
        "datasets": [{"name": "table", "label": "wine", "source": str(table),
                      "options": {"targets": {"grower": "auto", "alcohol": "auto"}, "constant": "drop"}}],
        "methods": ["stl", "equal"],
        "model": {"encoder": {"name": "mlp", "hidden": [64, 64]}},
        **SMALL, "seeds": [0], "training": {"epochs": 1, "batch_size": 32, "lr": 1e-3},
    }  # fmt: skip
    (tmp_path / "wine.yaml").write_text(yaml.safe_dump(spec))
    planned = plan(load_experiment(tmp_path / "wine.yaml"), Home(tmp_path / "home"))
    assert [one.run_id for one in planned.board.wanted] == [record.run_id for record in results.records]
    assert not planned.todo

    again = mtlscale.compare(X, Y, ["stl", "equal"], name="wine", home=tmp_path / "home", **SMALL)
    assert [record.finished for record in again.records] == [record.finished for record in results.records]

    # A name has one table in a home, and a table without a name has its own.
    grown = X.assign(ash=X["ash"] ** 2)
    with pytest.raises(UserError, match="the name wine belongs to 3 runs of other data in "):
        mtlscale.compare(grown, Y, ["constant"], name="wine", home=tmp_path / "home", **SMALL)
    split = mtlscale.compare(X, Y, ["constant"], name="wine", home=tmp_path / "home", options={"test": 0.3}, **SMALL)
    unnamed = [mtlscale.compare(x, Y, ["constant"], home=tmp_path / "home", **SMALL) for x in (X, grown)]
    assert split.folder == results.folder and len({one.folder for one in unnamed}) == 2
    assert unnamed[0].folder.name == f"comparison-{table.stem[:8]}"


def test_arrays_series_and_mappings_become_columns(tmp_path: Path) -> None:
    table, targets = joined(np.zeros((3, 2), np.float32), [1, 0, 1])
    assert table.column_names == ["x1", "x2", "y"] and targets == ["y"]
    table, targets = joined(
        {"a": [1.5, None, 2.0], "when": np.array(["2024-01-01"] * 3, "M8[D]")}, pd.Series([1, 2, 3])
    )
    assert table.column_names == ["a", "when", "y"] and table["a"].null_count == 1
    table, targets = joined(table.select(["a"]), np.eye(3))
    assert targets == ["y1", "y2", "y3"]

    frame = pd.DataFrame({0: pd.Categorical(["u", "v", "u"]), 1: [True, False, None]}, index=[5, 6, 7])
    table, _ = joined(frame, pd.Series([1.0, 2.0, 3.0], name="price", index=[5, 6, 7]))
    assert table.column_names == ["0", "1", "price"]
    known = write_table(table, tmp_path)
    assert write_table(joined(frame, pd.Series([1.0, 2.0, 3.0], name="price", index=[5, 6, 7]))[0], tmp_path) == known
    assert write_table(joined(frame, pd.Series([1.0, 2.0, 3.5], name="price", index=[5, 6, 7]))[0], tmp_path) != known


@pytest.mark.parametrize(
    ("x", "y", "more", "expected"),
    [
        (X, Y[:-1], {}, "compare: X has 80 rows and Y has 79; give both a row per sample"),
        (X, Y[::-1], {}, "compare: row 1 is 0 in X and 79 in Y; pass Y.loc[X.index]"),
        (X.assign(alcohol=1), Y, {}, "compare: column 'alcohol' is in X and in Y; drop it from X, or rename it"),
        (np.zeros((ROWS, 2, 3)), Y, {}, "compare: X has the shape [80, 2, 3]; give it a row per sample"),
        (scipy.sparse.eye(ROWS).tocsr(), Y, {}, "compare: X is a sparse matrix; pass X.toarray()"),
        (X.assign(bad=[1, "a"] * 40), Y, {}, "compare: column 'bad' of X has values of several kinds, such as texts"),
        (X.assign(bad=1j), Y, {}, "compare: X is no table: "),
        (pd.concat([X, X[["ash"]]], axis=1), Y, {}, "compare: X has two columns named 'ash'; rename or drop one"),
        (X, Y, {"targets": ["grower"]}, "compare: targets should be a mapping, such as {'y': 'class'}, not ['grower']"),
        (X, Y, {"options": ["group"]}, "compare: options should be a mapping, such as {'group': 'patient'}, not"),
        (X, Y, {"training": "fast"}, "compare: training should be a mapping, such as {'epochs': 5}, not 'fast'"),
        (X, Y.loc[[7, *range(7), *range(8, ROWS)]], {}, "compare: row 1 is 0 in X and 7 in Y; pass Y.loc[X.index]"),
        (X[:0], Y[:0], {}, "compare: X has no row"),
        (X[[]], Y, {}, "compare: X has no column"),
        (X, Y, {"targets": {"growr": "class"}}, "compare: targets: Y has no column 'growr'; did you mean grower?"),
        (X, Y, {"targets": {"grower": "klass"}}, "table: target 'grower' is of kind 'klass'; choose auto"),
        (X, Y, {"options": {"grup": "soil"}}, "compare: options: unknown option 'grup'; did you mean"),
        (X, Y, {"options": {"targets": {}}}, "compare: options: `targets` are the columns of Y"),
        (X, Y, {"methods": ["gatd"]}, "unknown method 'gatd': did you mean"),
        (X, Y, {"trainin": {}}, "compare: unknown key trainin"),
        (X, Y, {"training": {"epoch": 3}}, "compare: unknown key training.epoch: did you mean epochs"),
    ],
)
def test_a_mistake_gets_one_line(x: Any, y: Any, more: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        mtlscale.compare(x, y, **{"methods": ["equal"], "home": tmp_path, **more})
    assert expected in str(caught.value) and "\n" not in str(caught.value)
